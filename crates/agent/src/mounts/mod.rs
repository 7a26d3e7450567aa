//! Makes volumes appear at their place below a mount root, and takes them away. Entered by the driver for cluster volumes
//! and by `prepare` for those of a job. On the server's own machine a share, a container or a file server is a symbolic
//! link to its directory (`link`); what must be read-only or has a mount command of its own is a mount of the kernel's
//! (`kernel`, `command`); on other machines all that lies on the server comes over the file service (`remote`). `table` knows what is mounted: nothing below a node's directory outlives its node.

mod command;
mod kernel;
mod link;
mod lives;
mod remote;
mod table;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use thiserror::Error;

use corro_model::NodeId;
use corro_model::batchai::BatchAiError;
use corro_model::node::{Volume, VolumeSource};

use crate::spare::Spare;
use crate::{failure, tree};

pub use remote::Remotes;
pub use table::take_away_below;

/// Where volumes are mounted.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    pub node: &'a NodeId,
    pub spare: &'a Spare,
    /// What is mounted from the server.
    pub remotes: Option<&'a Remotes>,
}

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
    #[error("{why}")]
    Kernel { why: String },
    #[error("this machine does not see the server's directories, so it must be mounted over the network: {why}")]
    Remote { why: String },
    #[error("the mount command {how}{}{}", said(.output), without_rights())]
    Command { how: String, output: String },
    #[error("the mount command ended well, but nothing is mounted{}", said(.output))]
    NothingMounted { output: String },
}

/// Mounts one volume below `root`, whose path is `root_path`; gives the mount point. Mounting it again is no change.
/// Blocks: a mount command takes as long as it takes.
pub fn mount(root: &OwnedFd, root_path: &Path, volume: &Volume, site: Site<'_>) -> Result<PathBuf, BatchAiError> {
    let at = root_path.join(volume.relative.trim_matches('/'));
    match put(root, &at, volume, site) {
        Ok(()) => Ok(at),
        Err(error) => {
            let unavailable = matches!(error, MountError::Unavailable(_));
            Err(failure::mount(volume, &at, site.node, &failure::chain(&error), unavailable))
        }
    }
}

fn put(root: &OwnedFd, at: &Path, volume: &Volume, site: Site<'_>) -> Result<(), MountError> {
    match &volume.source {
        VolumeSource::Unavailable { why } => Err(MountError::Unavailable(why.clone())),
        VolumeSource::LocalDirectory(directory) => show(root, at, directory, volume, site),
        VolumeSource::Remote(wanted) => {
            let remotes = site.remotes.ok_or_else(|| MountError::Remote { why: "there is no server".to_owned() })?;
            on_place(root, at, volume, |at| remotes.mount(wanted, at, volume.read_only))
        }
        VolumeSource::Command { command } => {
            on_place(root, at, volume, |at| command::run(command, at, &format!("{}/mount", site.node)))
        }
    }
}

/// A directory of this machine.
fn show(root: &OwnedFd, at: &Path, directory: &Path, volume: &Volume, site: Site<'_>) -> Result<(), MountError> {
    match volume.read_only {
        false => link::make(root, directory, &volume.relative, site.spare),
        true if !directory.is_dir() => Err(MountError::Missing(directory.to_owned())),
        true => on_place(root, at, volume, |at| kernel::bind_read_only(directory, at)),
    }
}

/// Makes the empty directory that a mount needs, and removes it again when there is none.
fn on_place(
    root: &OwnedFd,
    at: &Path,
    volume: &Volume,
    mount: impl FnOnce(&Path) -> Result<(), MountError>,
) -> Result<(), MountError> {
    let (parent, name) = split(&volume.relative)?.ok_or(MountError::NoPlace)?;
    if table::is_mounted(at).map_err(MountError::Place)? {
        return Ok(());
    }
    let place = tree::make_beneath(root, &volume.relative).map_err(MountError::Place)?;
    if !tree::names(&place).map_err(|errno| MountError::Place(errno.into()))?.is_empty() {
        return Err(MountError::Occupied);
    }
    drop(place);
    let mounted = mount(at);
    if mounted.is_err() {
        // A command may have come half the way.
        let _ = table::take_away(at);
        if let Ok(Some(parent)) = tree::open_beneath(root, &parent) {
            let _ = rustix::fs::unlinkat(&parent, &*name, rustix::fs::AtFlags::REMOVEDIR);
        }
    }
    mounted
}

/// Takes the volume away; what it shows stays. True when it was mounted.
pub fn unmount(root: &OwnedFd, root_path: &Path, volume: &Volume, site: Site<'_>) -> io::Result<bool> {
    let Some((parent, name)) = split(&volume.relative).map_err(io::Error::other)? else {
        return Ok(false);
    };
    let Some(parent) = tree::open_beneath(root, &parent)? else {
        return Ok(false);
    };
    if link::remove(&parent, &name, site.spare)? {
        return Ok(true);
    }
    let at = root_path.join(volume.relative.trim_matches('/'));
    let was_remote = site.remotes.is_some_and(|remotes| remotes.lives.end(&at));
    let was_mounted = table::take_away(&at)? || was_remote;
    if was_mounted {
        tree::remove(&parent, &name)?;
    }
    Ok(was_mounted)
}

/// The parent directories and the last name; `None` for the mount root itself.
fn split(relative: &str) -> Result<Option<(String, String)>, MountError> {
    let names = tree::components(relative.trim_matches('/')).map_err(MountError::Place)?;
    Ok(names.split_last().map(|(name, parents)| (parents.join("/"), (*name).to_owned())))
}

fn said(output: &str) -> String {
    if output.is_empty() { String::new() } else { format!(": {output}") }
}

/// What most often stands in the way of a mount.
fn without_rights() -> String {
    let user = rustix::process::geteuid();
    match user.is_root() {
        true => String::new(),
        false => format!(" (the agent runs as user {}; most mounts need root)", user.as_raw()),
    }
}

#[cfg(test)]
mod tests;
