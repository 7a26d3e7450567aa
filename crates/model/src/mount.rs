//! Resolves paths in job files to volumes: `$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar` is the directory `cifar` of the
//! volume mounted at `myshare`. Pure path arithmetic.

use crate::batchai::{AzureBlobFileSystemReference, AzureFileShareReference, MountVolumes};

/// A mount root variable: the directory on a node that holds the cluster's or the job's volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountRoot {
    Cluster,
    Job,
}

impl MountRoot {
    pub fn variable(self) -> &'static str {
        match self {
            MountRoot::Cluster => "AZ_BATCHAI_MOUNT_ROOT",
            MountRoot::Job => "AZ_BATCHAI_JOB_MOUNT_ROOT",
        }
    }
}

/// Location on a file share: the share, and the path inside it (no leading or trailing slash).
#[derive(Debug, PartialEq, Eq)]
pub struct ShareLocation<'a> {
    pub share: &'a AzureFileShareReference,
    pub inside: String,
}

/// Finds the file share that `path` is on; `None` when it is on a node's own disk or on another kind of volume.
pub fn find_share<'a>(
    path: &str,
    cluster: Option<&'a MountVolumes>,
    job: Option<&'a MountVolumes>,
) -> Option<ShareLocation<'a>> {
    let (volumes, wanted) = below_roots(path, cluster, job)?;
    volumes
        .azure_file_shares
        .iter()
        .find_map(|share| Some(ShareLocation { share, inside: inside(&wanted, &share.relative_mount_path)? }))
}

/// Finds the blob container that `path` is in, and the path inside it.
pub fn find_container<'a>(
    path: &str,
    cluster: Option<&'a MountVolumes>,
    job: Option<&'a MountVolumes>,
) -> Option<(&'a AzureBlobFileSystemReference, String)> {
    let (volumes, wanted) = below_roots(path, cluster, job)?;
    let mut containers = volumes.azure_blob_file_systems.iter();
    containers.find_map(|container| Some((container, inside(&wanted, &container.relative_mount_path)?)))
}

/// Whether `path` is on a volume of any kind.
pub fn is_on_volume(path: &str, cluster: Option<&MountVolumes>, job: Option<&MountVolumes>) -> bool {
    let found = below_roots(path, cluster, job);
    found.is_some_and(|(volumes, wanted)| mount_paths(Some(volumes)).iter().any(|at| inside(&wanted, at).is_some()))
}

/// Relative mount paths of all volumes, of any kind.
pub fn mount_paths(volumes: Option<&MountVolumes>) -> Vec<&str> {
    let Some(volumes) = volumes else { return Vec::new() };
    let shares = volumes.azure_file_shares.iter().map(|volume| &volume.relative_mount_path);
    let containers = volumes.azure_blob_file_systems.iter().map(|volume| &volume.relative_mount_path);
    let servers = volumes.file_servers.iter().map(|volume| &volume.relative_mount_path);
    let others = volumes.unmanaged_file_systems.iter().map(|volume| &volume.relative_mount_path);
    shares.chain(containers).chain(servers).chain(others).map(String::as_str).collect()
}

/// Volumes of a path's root variable, and the path components below it.
fn below_roots<'a, 'p>(
    path: &'p str,
    cluster: Option<&'a MountVolumes>,
    job: Option<&'a MountVolumes>,
) -> Option<(&'a MountVolumes, Vec<&'p str>)> {
    let (volumes, rest) = [(MountRoot::Job, job), (MountRoot::Cluster, cluster)]
        .into_iter()
        .find_map(|(root, volumes)| strip_variable(path, root.variable()).map(|rest| (volumes, rest)))?;
    Some((volumes?, components(rest)))
}

fn inside(wanted: &[&str], mount: &str) -> Option<String> {
    wanted.strip_prefix(components(mount).as_slice()).map(|inside| inside.join("/"))
}

/// Path components from a mount root to `path`; `None` when it does not begin there.
pub fn below(path: &str, root: MountRoot) -> Option<Vec<&str>> {
    strip_variable(path, root.variable()).map(components)
}

/// The rest of `path` after a leading `$NAME` or `${NAME}` that is followed by a slash or the end.
pub fn strip_variable<'a>(path: &'a str, name: &str) -> Option<&'a str> {
    let after = path.strip_prefix('$')?;
    let rest = match after.strip_prefix('{') {
        Some(braced) => braced.strip_prefix(name)?.strip_prefix('}')?,
        None => after.strip_prefix(name)?,
    };
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

/// Names of the directories of a path, without empty ones and `.`.
pub fn components(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".").collect()
}

/// Whether mount options, as `-o ro,x` or `ro,x`, make a mount read-only. The last of `ro` and `rw` wins.
pub fn is_read_only(options: &str) -> bool {
    let mut words = options.split([',', ' ', '\t']).filter_map(|word| match word.trim_start_matches("-o") {
        "ro" => Some(true),
        "rw" => Some(false),
        _ => None,
    });
    words.next_back().unwrap_or(false)
}

/// Whether the modes of a share forbid creating and writing files for everyone.
pub fn forbids_writing(file_mode: &str, directory_mode: &str) -> bool {
    let writable = |mode: &str| parse_mode(mode).is_none_or(|mode| mode & 0o222 != 0);
    !writable(file_mode) && !writable(directory_mode)
}

/// Parses an octal file mode: `0777`.
pub fn parse_mode(text: &str) -> Option<u32> {
    let digits = (1..=4).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    digits.then(|| u32::from_str_radix(text, 8).ok()).flatten()
}

/// Joins `inside` to `root`; `None` when the result would leave `root`. Symbolic links are not resolved.
pub fn inside_of(root: &std::path::Path, inside: &str) -> Option<std::path::PathBuf> {
    let names = components(inside);
    (!names.contains(&"..") && !inside.contains('\0'))
        .then(|| names.iter().fold(root.to_owned(), |path, name| path.join(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(at: &str) -> AzureFileShareReference {
        serde_json::from_value(serde_json::json!({
            "azureFileUrl": "https://acc.file.core.windows.net/myshare", "relativeMountPath": at
        }))
        .expect("a literal")
    }

    #[test]
    fn paths_are_found_on_the_share_they_lie_on() {
        let volumes = MountVolumes { azure_file_shares: vec![share("myshare")], ..Default::default() };
        let check = |path: &str, inside: Option<&str>| {
            let found = find_share(path, None, Some(&volumes));
            assert_eq!(found.map(|f| f.inside).as_deref(), inside, "{path}");
        };
        check("$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar", Some("cifar"));
        check("${AZ_BATCHAI_JOB_MOUNT_ROOT}/myshare/", Some(""));
        check("$AZ_BATCHAI_JOB_MOUNT_ROOT/other", None);
        check("$AZ_BATCHAI_JOB_MOUNT_ROOTS/myshare", None);
        check("$AZ_BATCHAI_MOUNT_ROOT/myshare", None);
        check("/tmp/myshare", None);
    }

    #[test]
    fn options_and_modes_say_what_may_be_written() {
        for (options, expected) in [
            ("", false),
            ("rw", false),
            ("ro", true),
            ("rsize=1,ro", true),
            ("ro,rw", false),
            ("-o ro", true),
            ("--use-https=true -o big_writes -o ro", true),
            ("-oro", true),
            ("error=ro2", false),
        ] {
            assert_eq!(is_read_only(options), expected, "{options}");
        }
        assert!(
            forbids_writing("0444", "0555") && !forbids_writing("0444", "0777") && !forbids_writing("0777", "0777")
        );
        assert_eq!(
            (parse_mode("0777"), parse_mode("755"), parse_mode("4755")),
            (Some(0o777), Some(0o755), Some(0o4755))
        );
        assert_eq!(
            (parse_mode(""), parse_mode("rwx"), parse_mode("0o777"), parse_mode("888")),
            (None, None, None, None)
        );
        let root = std::path::Path::new("/data/f");
        assert_eq!(inside_of(root, "a//b/"), Some("/data/f/a/b".into()));
        assert_eq!((inside_of(root, ""), inside_of(root, "a/../b")), (Some(root.to_owned()), None));
    }

    #[test]
    fn account_and_share_come_from_the_url() {
        assert_eq!(share("x").account(), Some("acc"));
        assert_eq!(share("x").share_name(), Some("myshare"));
    }
}
