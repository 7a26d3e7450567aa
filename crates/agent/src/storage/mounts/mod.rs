//! Mounts and unmounts volumes below a mount root. On the server's own machine a share, a blob container or a file
//! server is a symlink to its directory (`symlink`). A directory inside of one and a read-only volume are bind mounts
//! (`bind`); unmanaged file systems use the user's mount command (`command`). On other machines volumes on the server
//! are FUSE mounts (`fuse`). `mountinfo` reads the kernel's mount table: no mount below a node's directory outlives the
//! node.

mod bind;
mod command;
mod fuse;
mod mount_processes;
mod mountinfo;
mod source;
mod symlink;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use corro_base::error_chain;
use thiserror::Error;

use corro_model::NodeId;
use corro_model::batchai::BatchAiError;
use corro_model::node::{Volume, VolumeSource};

use crate::fs::dirfd;
use crate::identity::incarnation::TagPrefix;
use crate::storage::dir_reuse::DirReuse;
use crate::task_errors;

pub use fuse::FuseMounts;
pub use mountinfo::unmount_below;
pub use source::{linked_directory, open_local};

/// Handles that mounting needs.
#[derive(Clone, Copy, Debug)]
pub struct MountContext<'a> {
    pub node: &'a NodeId,
    /// Tag prefix of the node's processes.
    pub tags: &'a TagPrefix,
    pub dir_reuse: &'a DirReuse,
    /// FUSE mounts from the server.
    pub fuse_mounts: Option<&'a FuseMounts>,
    pub commands: MountCommands,
}

/// Origin of mount commands. They run as the agent's user, outside of every job's namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountCommands {
    /// Commands of the cluster, whose owner is trusted with the node. Their output is shown in the error.
    Cluster,
    /// Commands of a job that is not isolated. Their output goes to the job's execution log only.
    Job,
    /// Commands of an isolated job: none is run.
    Refused,
}

/// A mounted volume.
#[derive(Debug)]
pub struct MountedVolume {
    pub at: PathBuf,
    /// Output of its mount command for the execution log.
    pub output: String,
}

/// A volume that could not be mounted.
#[derive(Debug)]
pub struct MountFailure {
    pub error: BatchAiError,
    /// As in [`MountedVolume`].
    pub output: String,
}

/// The cluster's volumes that this node has mounted. Clones share the list.
#[derive(Clone, Debug, Default)]
pub struct ClusterVolumes(Arc<Mutex<Arc<[Volume]>>>);

impl ClusterVolumes {
    pub fn set(&self, volumes: &[Volume]) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = volumes.into();
    }

    pub fn get(&self) -> Arc<[Volume]> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug, Error)]
enum MountError {
    #[error("{0}")]
    Unavailable(String),
    #[error("the directory {} of the share does not exist on this machine", .0.display())]
    Missing(PathBuf),
    #[error("the directory {} cannot be opened", directory.display())]
    Source {
        directory: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the relative mount path is empty")]
    EmptyPath,
    #[error("the mount point exists and is not empty")]
    Occupied,
    #[error("cannot create the mount point")]
    MountPoint(#[source] io::Error),
    #[error("{why}")]
    Kernel { why: String },
    #[error("this machine does not see the server's directories, so it must be mounted over the network: {why}")]
    Remote { why: String },
    #[error(
        "its mountCommand is not run for a job that is isolated from others: it would run on the node as the agent's user, \
         outside of the job's namespaces. Put the file system into nodeSetup.mountVolumes.unmanagedFileSystems of the cluster, or \
         have the operator start the node with --isolation off"
    )]
    CommandRefused,
    #[error("the mount command {outcome}{}{}", output_suffix(.output), privilege_hint())]
    Command { outcome: String, output: String },
    #[error("the mount command succeeded, but nothing is mounted{}", output_suffix(.output))]
    NothingMounted { output: String },
}

/// Mounts a volume below `root`, whose path is `root_path`, and returns the mount point. Idempotent. Blocks for as long
/// as a mount command runs.
pub fn mount(
    root: &OwnedFd,
    root_path: &Path,
    volume: &Volume,
    context: MountContext<'_>,
) -> Result<MountedVolume, MountFailure> {
    let at = root_path.join(volume.relative.trim_matches('/'));
    let mut output = String::new();
    match mount_source(root, &at, volume, context, &mut output) {
        Ok(()) => Ok(MountedVolume { at, output }),
        Err(mut error) => {
            match context.commands {
                MountCommands::Cluster => output.clear(),
                MountCommands::Job | MountCommands::Refused => error.hide_output(),
            }
            let unavailable = matches!(error, MountError::Unavailable(_));
            let error = task_errors::mount(volume, &at, context.node, &error_chain::join(&error), unavailable);
            Err(MountFailure { error, output })
        }
    }
}

fn mount_source(
    root: &OwnedFd,
    at: &Path,
    volume: &Volume,
    context: MountContext<'_>,
    output: &mut String,
) -> Result<(), MountError> {
    match &volume.source {
        VolumeSource::Unavailable { why } => Err(MountError::Unavailable(why.clone())),
        VolumeSource::LocalDirectory(directory) => mount_local(root, at, directory, volume, context),
        VolumeSource::Remote(wanted) => {
            let fuse_mounts =
                context.fuse_mounts.ok_or_else(|| MountError::Remote { why: "there is no server".to_owned() })?;
            at_mount_point(root, at, volume, |at| fuse_mounts.mount(wanted, at, volume.read_only))
        }
        VolumeSource::Command { .. } if context.commands == MountCommands::Refused => Err(MountError::CommandRefused),
        VolumeSource::Command { command } => {
            at_mount_point(root, at, volume, |at| command::run(command, at, &context.tags.with("mount"), output))
        }
    }
}

/// Mounts a directory of this machine.
fn mount_local(
    root: &OwnedFd,
    at: &Path,
    directory: &Path,
    volume: &Volume,
    context: MountContext<'_>,
) -> Result<(), MountError> {
    let opened = source::open_local(volume).unwrap_or(Err(io::ErrorKind::NotFound.into()));
    let opened = opened.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => MountError::Missing(directory.to_owned()),
        _ => MountError::Source { directory: directory.to_owned(), source },
    })?;
    if volume.read_only {
        return at_mount_point(root, at, volume, |at| bind::bind_read_only(&opened, at));
    }
    if volume.beneath.is_none() {
        return symlink::make(root, directory, &volume.relative, context.dir_reuse);
    }
    // A bind mount stays on the opened directory whatever happens to its path. A user who may not mount gets a symlink
    // to the current path; mount namespaces then show exactly that directory (`View`).
    if at_mount_point(root, at, volume, |at| bind::bind(&opened, at)).is_ok() {
        return Ok(());
    }
    symlink::make(root, &opened.path().map_err(MountError::MountPoint)?, &volume.relative, context.dir_reuse)
}

/// Recreates the symlinks of mounted volumes that were replaced: all jobs of the node can write to their directory, and
/// a job must not substitute another job's volume.
pub fn restore_links(
    root: &OwnedFd,
    root_path: &Path,
    volumes: &[Volume],
    context: MountContext<'_>,
) -> io::Result<()> {
    for volume in volumes.iter().filter(|volume| volume.is_linked()) {
        let at = root_path.join(volume.relative.trim_matches('/'));
        let Some((parent, name)) = split(&volume.relative).map_err(io::Error::other)? else { continue };
        let Some(target) = linked_directory(volume) else { continue };
        if std::fs::read_link(&at).is_ok_and(|found| found == target)
            || (volume.beneath.is_some() && mountinfo::is_mounted(&at)?)
        {
            continue;
        }
        tracing::warn!(
            volume = volume.label,
            "a job replaced the symbolic link to a volume of the cluster; it has been recreated"
        );
        let parent = match dirfd::make_beneath(root, &parent) {
            Ok(parent) => parent,
            Err(_) => {
                // A parent directory was replaced by something else.
                dirfd::remove(root, dirfd::components(&volume.relative)?[0])?;
                dirfd::make_beneath(root, &parent)?
            }
        };
        dirfd::remove(&parent, &name)?;
        mount(root, root_path, volume, context).map_err(|failure| io::Error::other(failure.error.message))?;
    }
    Ok(())
}

/// Whether a directory inside a volume is a symlink here. A container engine would follow it at a later time.
pub fn is_symlinked_subdirectory(root_path: &Path, volume: &Volume) -> bool {
    volume.beneath.is_some() && root_path.join(volume.relative.trim_matches('/')).is_symlink()
}

/// Creates the empty directory that a mount needs, and removes it if mounting fails.
fn at_mount_point(
    root: &OwnedFd,
    at: &Path,
    volume: &Volume,
    mount: impl FnOnce(&Path) -> Result<(), MountError>,
) -> Result<(), MountError> {
    let (parent, name) = split(&volume.relative)?.ok_or(MountError::EmptyPath)?;
    if mountinfo::is_mounted(at).map_err(MountError::MountPoint)? {
        return Ok(());
    }
    let mount_point = dirfd::make_beneath(root, &volume.relative).map_err(MountError::MountPoint)?;
    if !dirfd::names(&mount_point).map_err(|errno| MountError::MountPoint(errno.into()))?.is_empty() {
        return Err(MountError::Occupied);
    }
    drop(mount_point);
    let mounted = mount(at);
    if mounted.is_err() {
        // A mount command may have mounted something before it failed.
        let _ = mountinfo::unmount_layers(at);
        if let Ok(Some(parent)) = dirfd::open_beneath(root, &parent) {
            let _ = rustix::fs::unlinkat(&parent, &*name, rustix::fs::AtFlags::REMOVEDIR);
        }
    }
    mounted
}

/// Unmounts the volume; its content stays. True if it was mounted.
pub fn unmount(root: &OwnedFd, root_path: &Path, volume: &Volume, context: MountContext<'_>) -> io::Result<bool> {
    let Some((parent, name)) = split(&volume.relative).map_err(io::Error::other)? else {
        return Ok(false);
    };
    let Some(parent) = dirfd::open_beneath(root, &parent)? else {
        return Ok(false);
    };
    if symlink::remove(&parent, &name, context.dir_reuse)? {
        return Ok(true);
    }
    let at = root_path.join(volume.relative.trim_matches('/'));
    let was_remote = context.fuse_mounts.is_some_and(|fuse_mounts| fuse_mounts.processes.unmount(&at));
    let was_mounted = mountinfo::unmount_layers(&at)? || was_remote;
    if was_mounted {
        dirfd::remove(&parent, &name)?;
    }
    Ok(was_mounted)
}

/// Parent path and last component; `None` for the mount root itself.
fn split(relative: &str) -> Result<Option<(String, String)>, MountError> {
    let names = dirfd::components(relative.trim_matches('/')).map_err(MountError::MountPoint)?;
    Ok(names.split_last().map(|(name, parents)| (parents.join("/"), (*name).to_owned())))
}

impl MountError {
    /// Removes a mount command's output from the error text.
    fn hide_output(&mut self) {
        if let MountError::Command { output, .. } | MountError::NothingMounted { output } = self
            && !output.is_empty()
        {
            *output = "its output is in the execution log".to_owned();
        }
    }
}

fn output_suffix(output: &str) -> String {
    if output.is_empty() { String::new() } else { format!(": {output}") }
}

/// Hint at the most frequent cause of a failed mount.
fn privilege_hint() -> String {
    let user = rustix::process::geteuid();
    match user.is_root() {
        true => String::new(),
        false => format!(" (the agent runs as user {}; most mounts need root)", user.as_raw()),
    }
}

#[cfg(test)]
mod tests;
