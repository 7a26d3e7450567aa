//! Paths of batch commands: a share by name or URL, the files below a local directory, and the local path of a share's file. A path from a share never
//! leaves the target directory.

use std::fs;
use std::path::{Path, PathBuf};

use corro_model::names::{NameKind, check_name};

use crate::error::CliError;

/// A share, or a directory of it.
#[derive(Debug, PartialEq, Eq)]
pub struct ShareRef {
    /// From a URL.
    pub account: Option<String>,
    pub share: String,
    /// Empty for the whole share.
    pub directory: String,
}

impl ShareRef {
    /// `myshare`, `myshare/dir`, `http://host:port/account/myshare` or `https://account.file.host/myshare`.
    pub fn parse(flag: &str, text: &str) -> Result<ShareRef, CliError> {
        let wrong = || {
            CliError::usage(format!("argument {flag}: '{text}' is neither the name nor the address of a share"))
                .hint("give it as myshare, or as http://HOST:PORT/ACCOUNT/myshare")
        };
        let plain = text.split('?').next().unwrap_or_default();
        let (account, rest) = match plain.split_once("://") {
            None => (None, plain),
            Some((_, address)) => {
                let (host, path) = address.split_once('/').ok_or_else(wrong)?;
                match host.split_once(".file.") {
                    Some((account, _)) => (Some(account), path),
                    None => path.split_once('/').map(|(account, rest)| (Some(account), rest)).ok_or_else(wrong)?,
                }
            }
        };
        let (share, directory) = rest.trim_matches('/').split_once('/').unwrap_or((rest.trim_matches('/'), ""));
        check_name(NameKind::Share, share).map_err(|_| wrong())?;
        Ok(ShareRef {
            account: account.map(str::to_owned),
            share: share.to_owned(),
            directory: directory.trim_matches('/').to_owned(),
        })
    }
}

/// All files below `root` with their relative paths, in byte order. Links to files count as files; links to directories are skipped, since they may be
/// cyclic.
pub fn local_files(root: &Path) -> Result<Vec<(PathBuf, String)>, CliError> {
    if !root.is_dir() {
        return Err(CliError::usage(format!(
            "incorrect usage: source must be an existing directory: {}",
            root.display()
        )));
    }
    let cannot = |path: &Path, error: std::io::Error| CliError::new(format!("cannot read {}: {error}", path.display()));
    let mut files = Vec::new();
    let mut unvisited = vec![(root.to_owned(), String::new())];
    while let Some((directory, prefix)) = unvisited.pop() {
        for entry in fs::read_dir(&directory).map_err(|error| cannot(&directory, error))? {
            let entry = entry.map_err(|error| cannot(&directory, error))?;
            let path = entry.path();
            let name = entry.file_name().into_string().map_err(|_| {
                CliError::new(format!("{} has a name that is not valid on a share: it is not UTF-8", path.display()))
            })?;
            let within = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
            let kind = entry.file_type().map_err(|error| cannot(&path, error))?;
            if kind.is_dir() {
                unvisited.push((path, within));
            } else if path.is_file() {
                files.push((path, within));
            }
        }
    }
    files.sort_unstable_by(|a, b| a.1.cmp(&b.1));
    Ok(files)
}

/// Local path below `root` of a file of a share.
pub fn local_path(root: &Path, path: &str) -> Result<PathBuf, CliError> {
    let plain = |name: &str| !matches!(name, "" | "." | "..") && !name.contains(['\0', '\\']);
    if !path.split('/').all(plain) {
        return Err(CliError::new(format!("the share has a file {path:?}, which is not a valid path on this machine")));
    }
    Ok(root.join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_by_name_and_by_address() {
        let of = |text: &str| ShareRef::parse("--source", text).map_err(|failure| failure.exit);
        let expect = |account: Option<&str>, directory: &str| {
            Ok(ShareRef { account: account.map(str::to_owned), share: "myshare".into(), directory: directory.into() })
        };
        for (text, expected) in [
            ("myshare", expect(None, "")),
            ("myshare/", expect(None, "")),
            ("myshare/a/b/", expect(None, "a/b")),
            ("http://127.0.0.1:8470/acc/myshare", expect(Some("acc"), "")),
            ("https://acc.file.core.windows.net/myshare/d?sv=1", expect(Some("acc"), "d")),
            ("http://127.0.0.1:8470/myshare", Err(2)),
            ("My Share", Err(2)),
            ("", Err(2)),
            ("..", Err(2)),
        ] {
            assert_eq!(of(text), expected, "{text}");
        }
    }

    #[test]
    fn a_name_from_a_share_stays_below_the_directory() {
        let root = Path::new("/tmp/out");
        assert_eq!(local_path(root, "a/b c").expect("fine"), Path::new("/tmp/out/a/b c"));
        for path in ["../x", "a/../../x", "/etc/passwd", "a//b", ".", "", "a\\b", "a\0"] {
            assert!(local_path(root, path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn files_below_a_directory() {
        let dir = tempfile::tempdir().expect("temp dir");
        fs::create_dir_all(dir.path().join("b/empty")).expect("made");
        fs::write(dir.path().join("b/z"), "1").expect("written");
        fs::write(dir.path().join("a"), "2").expect("written");
        std::os::unix::fs::symlink("a", dir.path().join("link")).expect("linked");
        std::os::unix::fs::symlink(".", dir.path().join("circle")).expect("linked");
        let found: Vec<_> = local_files(dir.path()).expect("listed").into_iter().map(|(_, path)| path).collect();
        assert_eq!(found, ["a", "b/z", "link"]);
        assert_eq!(local_files(&dir.path().join("none")).map_err(|failure| failure.exit), Err(2));
    }
}
