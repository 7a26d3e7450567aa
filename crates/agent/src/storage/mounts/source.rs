//! The directory of this machine behind a volume. One inside a file server is resolved beneath that file server's own directory at
//! the moment it is used: a path that jobs can put links into is never trusted.

use std::io;
use std::path::PathBuf;

use corro_model::node::{Volume, VolumeSource};
use corro_shares::{SharePath, VolumeDir};

/// A handle on the directory; `None` for a volume that is no directory of this machine.
pub fn open_local(volume: &Volume) -> Option<io::Result<VolumeDir>> {
    let VolumeSource::LocalDirectory(directory) = &volume.source else { return None };
    let Some(root) = &volume.beneath else { return Some(VolumeDir::open(directory)) };
    let outside = || io::Error::new(io::ErrorKind::InvalidInput, "it does not lie in the tree that it should be of");
    let inside = directory.strip_prefix(root).ok().and_then(|inside| inside.to_str());
    let inside = inside.and_then(|inside| SharePath::parse(inside).ok()).ok_or_else(outside);
    Some(inside.and_then(|inside| VolumeDir::open(root)?.open_dir(&inside)))
}

/// Where the link that shows a volume leads: a path without links for a directory inside a tree. `None` for a volume that has no link,
/// or whose directory cannot be opened.
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
