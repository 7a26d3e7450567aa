//! Source directory of a volume on this machine. A directory inside a file server is resolved beneath the file server's
//! root each time it is used, since jobs can put symlinks into its path.

use std::io;
use std::path::PathBuf;

use corro_model::node::{Volume, VolumeSource};
use corro_shares::{SharePath, VolumeDir};

/// Opens the source directory; `None` for a volume that is not a directory of this machine.
pub fn open_local(volume: &Volume) -> Option<io::Result<VolumeDir>> {
    let VolumeSource::LocalDirectory(directory) = &volume.source else { return None };
    let Some(root) = &volume.beneath else { return Some(VolumeDir::open(directory)) };
    let outside = || io::Error::new(io::ErrorKind::InvalidInput, "it is outside of the file server's directory");
    let inside = directory.strip_prefix(root).ok().and_then(|inside| inside.to_str());
    let inside = inside.and_then(|inside| SharePath::parse(inside).ok()).ok_or_else(outside);
    Some(inside.and_then(|inside| VolumeDir::open(root)?.open_dir(&inside)))
}

/// Target of the symlink that represents a volume; free of symlinks for a directory inside a tree. `None` for a volume
/// without a symlink, or whose directory cannot be opened.
pub fn linked_directory(volume: &Volume) -> Option<PathBuf> {
    match &volume.source {
        VolumeSource::LocalDirectory(directory) if volume.is_linked() => match &volume.beneath {
            None => Some(directory.clone()),
            Some(_) => open_local(volume)?.ok()?.path().ok(),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use corro_model::node::VolumeKind;

    use super::*;

    #[test]
    fn a_directory_of_a_file_server_is_found_beneath_its_root() {
        let base = tempfile::tempdir().expect("file servers");
        let base = base.path().canonicalize().expect("a path");
        let (own, others) = (base.join("own"), base.join("others"));
        fs::create_dir_all(own.join("real/deep")).expect("directories");
        fs::create_dir_all(&others).expect("a directory");
        symlink("..", own.join("up")).expect("a link");
        symlink("../others", own.join("beside")).expect("a link");
        symlink(&others, own.join("absolute")).expect("a link");
        symlink("real/deep", own.join("near")).expect("a link");
        let volume = |inside: &str| Volume {
            kind: VolumeKind::FileServer,
            relative: "nfs".into(),
            label: "f".into(),
            source: VolumeSource::LocalDirectory(own.join(inside)),
            read_only: false,
            beneath: Some(own.clone()),
        };
        let found = |inside: &str| linked_directory(&volume(inside));
        assert_eq!(found("real"), Some(own.join("real")));
        assert_eq!(found("near"), Some(own.join("real/deep")));
        for bad in ["up", "beside", "absolute", "up/others", "none", "../others"] {
            assert_eq!(found(bad), None, "{bad}");
            assert!(open_local(&volume(bad)).is_some_and(|opened| opened.is_err()), "{bad}");
        }
        let elsewhere = Volume { beneath: Some(others), ..volume("real") };
        assert!(open_local(&elsewhere).is_some_and(|opened| opened.is_err()));
        let whole =
            Volume { beneath: None, source: VolumeSource::LocalDirectory(Path::new("/a").into()), ..volume("") };
        assert_eq!(linked_directory(&whole), Some("/a".into()));
    }
}
