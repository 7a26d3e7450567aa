//! Makes volumes (shares and containers) appear at their place below a mount root, and takes them away. Entered by the driver for cluster volumes
//! and by `prepare` for those of a job. On the server's own machine a mount is a symbolic link to the directory of the share or container.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, readlinkat, statat, symlinkat, unlinkat};
use rustix::io::Errno;
use thiserror::Error;

use corro_model::batchai::BatchAiError;
use corro_model::node::{Volume, VolumeKind, VolumeSource};

use crate::spare::Spare;
use crate::{failure, tree};

#[derive(Debug, Error)]
enum MountError {
    #[error("{0}")]
    Unavailable(String),
    #[error("the directory {} of the share does not exist on this machine", .0.display())]
    Missing(PathBuf),
    #[error("the relative mount path is empty")]
    NoPlace,
    #[error("something else is there already")]
    Occupied,
    #[error("the mount point cannot be made")]
    Place(#[source] io::Error),
}

/// Mounts one volume below `root`, whose path is `root_path`; gives the mount point. Mounting it again is no change.
pub fn mount(root: &OwnedFd, root_path: &Path, volume: &Volume, spare: &Spare) -> Result<PathBuf, BatchAiError> {
    let at = root_path.join(volume.relative.trim_matches('/'));
    if let VolumeSource::Unsupported { error } = &volume.source {
        return Err(error.clone());
    }
    match link(root, volume, spare) {
        Ok(()) => Ok(at),
        Err(error) => Err(refusal(volume, &at, &error)),
    }
}

fn refusal(volume: &Volume, at: &Path, error: &MountError) -> BatchAiError {
    let why = failure::chain(error);
    match (volume.kind, error) {
        (VolumeKind::FileShare, _) => failure::mount(&volume.label, at, &why),
        (VolumeKind::Container, MountError::Unavailable(why)) => failure::mount_container(why.clone()),
        (VolumeKind::Container, _) => {
            failure::mount_container(format!("Could not mount {} at {}: {why}", volume.label, at.display()))
        }
    }
}

/// Takes the volume away; the share and everything in it stays. True when it was mounted.
pub fn unmount(root: &OwnedFd, volume: &Volume, spare: &Spare) -> io::Result<bool> {
    let Some((parent, name)) = split(&volume.relative).map_err(io::Error::other)? else {
        return Ok(false);
    };
    let Some(parent) = tree::open_beneath(root, &parent)? else {
        return Ok(false);
    };
    match statat(&parent, &*name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
            if !spare.keep_link(&parent, &name) {
                unlinkat(&parent, &*name, AtFlags::empty())?;
            }
            Ok(true)
        }
        Ok(_) | Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn link(root: &OwnedFd, volume: &Volume, spare: &Spare) -> Result<(), MountError> {
    let source = match &volume.source {
        VolumeSource::LocalDirectory(path) => path,
        VolumeSource::Unavailable { why } => return Err(MountError::Unavailable(why.clone())),
        VolumeSource::Unsupported { error } => return Err(MountError::Unavailable(error.message.clone())),
    };
    if !source.is_dir() {
        return Err(MountError::Missing(source.clone()));
    }
    let (parent, name) = split(&volume.relative)?.ok_or(MountError::NoPlace)?;
    let parent = tree::make_beneath(root, &parent).map_err(MountError::Place)?;
    let place = |errno: Errno| MountError::Place(errno.into());
    if spare.take_link(source, &parent, &name) {
        return Ok(());
    }
    match symlinkat(source, &parent, &*name) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => match readlinkat(&parent, &*name, Vec::new()) {
            Ok(target) if target.as_bytes() == source.as_os_str().as_encoded_bytes() => Ok(()),
            Ok(_) | Err(Errno::INVAL) => Err(MountError::Occupied),
            Err(errno) => Err(place(errno)),
        },
        Err(errno) => Err(place(errno)),
    }
}

/// The parent directories and the last name; `None` for the mount root itself.
fn split(relative: &str) -> Result<Option<(String, String)>, MountError> {
    let names = tree::components(relative.trim_matches('/')).map_err(MountError::Place)?;
    Ok(names.split_last().map(|(name, parents)| (parents.join("/"), (*name).to_owned())))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn volume(relative: &str, source: VolumeSource) -> Volume {
        let label = "//acc.file.core.windows.net/logs".into();
        Volume { kind: VolumeKind::FileShare, relative: relative.into(), label, source }
    }

    fn info(error: &BatchAiError) -> &str {
        assert_eq!((error.code.as_str(), error.message.as_str()), ("AZFMountError", "Unable to mount Azure File"));
        assert_eq!(error.details[0].name, "Info");
        &error.details[0].value
    }

    #[test]
    fn a_volume_comes_and_goes_and_the_share_stays() {
        let (root, share) = (tempfile::tempdir().expect("a root"), tempfile::tempdir().expect("a share"));
        fs::write(share.path().join("file"), "x").expect("a file on the share");
        let handle = tree::open_directory(root.path()).expect("the root");
        let spare = Spare::open(&handle).expect("a store");
        let volume = volume("deep/logs", VolumeSource::LocalDirectory(share.path().to_owned()));
        for _ in 0..2 {
            let at = mount(&handle, root.path(), &volume, &spare).expect("it mounts");
            assert_eq!(fs::read_to_string(at.join("file")).expect("the share is seen"), "x");
        }
        assert!(unmount(&handle, &volume, &spare).expect("it can be taken away"));
        assert!(!unmount(&handle, &volume, &spare).expect("once"));
        assert!(share.path().join("file").exists() && !root.path().join("deep/logs").exists());
    }

    #[test]
    fn refusals_say_what_and_why() {
        let root = tempfile::tempdir().expect("a root");
        let handle = tree::open_directory(root.path()).expect("the root");
        let spare = Spare::open(&handle).expect("a store");
        let at = root.path().join("logs");
        let check = |volume: Volume, expected: &str| {
            let error = mount(&handle, root.path(), &volume, &spare).expect_err("it cannot be mounted");
            assert!(info(&error).contains(expected), "{}", info(&error));
        };
        check(
            volume("logs", VolumeSource::Unavailable { why: "the share 'logs' does not exist".into() }),
            &format!(
                "Could not mount Azure File Share //acc.file.core.windows.net/logs at {}: the share 'logs' does not exist",
                at.display()
            ),
        );
        check(volume("logs", VolumeSource::LocalDirectory("/nowhere/logs".into())), "/nowhere/logs");
        let why = "Azure Blob Container 'data' doesn't exist";
        let missing = volume("data", VolumeSource::Unavailable { why: why.into() });
        let error = mount(&handle, root.path(), &Volume { kind: VolumeKind::Container, ..missing }, &spare)
            .expect_err("missing");
        assert_eq!(
            (error.code.as_str(), error.message.as_str()),
            ("BFSMountError", "unable to mount blob fuse file system")
        );
        assert_eq!((error.details[0].name.as_str(), error.details[0].value.as_str()), ("Info", why));
        let here = VolumeSource::LocalDirectory(root.path().to_owned());
        check(volume("../logs", here.clone()), "leads out");
        check(volume("", here.clone()), "empty");
        fs::create_dir(&at).expect("a directory in the way");
        check(volume("logs", here), "something else is there already");
    }
}
