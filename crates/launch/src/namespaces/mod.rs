//! Namespaces that the processes of a job share: a user namespace, so that processes outside cannot be inspected, and a mount namespace
//! in which some directories are hidden. Processes enter them through their guards. Nothing is left behind: they end
//! with the last process inside and the last descriptor.
//!
//! Root inside has root's uid outside, so kernel settings, which are files of root, are read-only inside, as in container runtimes. No cgroup
//! namespaces can be created inside: their creator could mount the cgroup file system and change the limits of its own job.
//!
//! Needs no privileges where unprivileged user namespaces are allowed. Uids and gids are the same inside and outside, so file ownership
//! is unchanged; capabilities beyond files end at the namespace.

mod create;
pub mod probe;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

/// Descriptors of the namespaces. Clones share them.
#[derive(Clone, Debug)]
pub struct Namespaces {
    pub(crate) user: Arc<OwnedFd>,
    pub(crate) mount: Arc<OwnedFd>,
    left_writable: Option<Arc<str>>,
}

/// The directories that are hidden and visible inside. Paths are absolute and contain no symbolic links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountView {
    /// Hidden directories: empty and read-only inside.
    pub hidden: Vec<PathBuf>,
    /// Directories within hidden ones that stay visible.
    pub visible: Vec<PathBuf>,
    /// Visible directories that are read-only. Mounts within them are unchanged.
    pub read_only: Vec<PathBuf>,
}

#[derive(Debug, Error)]
pub enum NamespaceError {
    #[error("cannot start a process that creates them")]
    Clone(#[source] io::Error),
    #[error("cannot map user ids")]
    Map(#[source] io::Error),
    #[error("{step} {}", path.display())]
    Step {
        step: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl MountView {
    /// The minimal equivalent view: without directories within hidden or visible ones, and without visible ones that nothing hides.
    pub fn new(hidden: impl IntoIterator<Item = PathBuf>, visible: impl IntoIterator<Item = PathBuf>) -> MountView {
        let hidden = outermost(hidden.into_iter().collect());
        let within = |path: &PathBuf| hidden.iter().any(|root| path.starts_with(root) && path != root);
        let visible = outermost(visible.into_iter().filter(within).collect());
        MountView { hidden, visible, read_only: Vec::new() }
    }

    pub fn with_read_only(self, read_only: Vec<PathBuf>) -> MountView {
        MountView { read_only, ..self }
    }

    /// The view with `parent` hidden except for `directory` in it.
    pub fn showing(&self, parent: PathBuf, directory: PathBuf, is_read_only: bool) -> MountView {
        let hidden = self.hidden.iter().cloned().chain([parent]);
        let mut read_only = self.read_only.clone();
        read_only.extend(is_read_only.then(|| directory.clone()));
        MountView::new(hidden, self.visible.iter().cloned().chain([directory])).with_read_only(read_only)
    }

    /// Directories to create in the tmpfs that hides `visible`, parents first.
    fn missing_parents(&self, visible: &Path) -> Vec<PathBuf> {
        let Some(root) = self.hidden.iter().find(|root| visible.starts_with(root)) else { return Vec::new() };
        let mut parents: Vec<PathBuf> =
            visible.ancestors().take_while(|path| path != root).map(Path::to_owned).collect();
        parents.reverse();
        parents
    }
}

fn outermost(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort();
    let mut outer_paths: Vec<PathBuf> = Vec::new();
    for path in paths {
        if !outer_paths.iter().any(|outer| path.starts_with(outer)) {
            outer_paths.push(path);
        }
    }
    outer_paths
}

impl Namespaces {
    /// Creates both namespaces, or only a mount namespace within the user namespace `user`. Blocks for less than a millisecond.
    pub fn create(view: &MountView, user: Option<Arc<OwnedFd>>) -> Result<Namespaces, NamespaceError> {
        create::create(view, user)
    }

    /// Kernel settings that could not be made read-only inside, and why; `None` if there are none.
    pub fn left_writable(&self) -> Option<&str> {
        self.left_writable.as_deref()
    }

    /// The user namespace, for further mount namespaces in it.
    pub fn user(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.user)
    }

    /// Address of the user namespace for other processes of the same user: pid and descriptor number. Valid while this process holds it.
    pub fn address(&self) -> String {
        format!("{} {}", std::process::id(), self.user.as_raw_fd())
    }

    /// Opens the user namespace at an [`Namespaces::address`]. Refuses anything but a user namespace of this user.
    pub fn open_user_namespace(address: &str) -> io::Result<Arc<OwnedFd>> {
        let mut parts = address.split_whitespace().map(str::parse::<u32>);
        let (Some(Ok(process)), Some(Ok(descriptor)), None) = (parts.next(), parts.next(), parts.next()) else {
            return Err(ErrorKind::InvalidData.into());
        };
        let found = OwnedFd::from(File::open(format!("/proc/{process}/fd/{descriptor}"))?);
        if kind_of(found.as_fd()) != libc::CLONE_NEWUSER
            || owner_of(found.as_fd()) != Some(rustix::process::geteuid().as_raw())
        {
            return Err(ErrorKind::InvalidData.into());
        }
        Ok(Arc::new(found))
    }

    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.user.as_fd(), self.mount.as_fd()]
    }
}

const NS_GET_NSTYPE: libc::c_ulong = 0xb703;
const NS_GET_OWNER_UID: libc::c_ulong = 0xb704;

fn kind_of(descriptor: BorrowedFd<'_>) -> i32 {
    // SAFETY: the descriptor is open; the ioctl takes no pointer, and returns -1 for anything but a namespace.
    unsafe { libc::ioctl(descriptor.as_raw_fd(), NS_GET_NSTYPE) }
}

fn owner_of(descriptor: BorrowedFd<'_>) -> Option<u32> {
    let mut owner: libc::uid_t = 0;
    // SAFETY: the ioctl writes one uid to `owner`.
    let asked = unsafe { libc::ioctl(descriptor.as_raw_fd(), NS_GET_OWNER_UID, &raw mut owner) };
    (asked == 0).then_some(owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(texts: &[&str]) -> Vec<PathBuf> {
        texts.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn a_view_is_minimal() {
        let view = MountView::new(
            paths(&["/data/nodes", "/data", "/config", "/data"]),
            paths(&[
                "/data/nodes/n/jobs",
                "/data/shares/a/s",
                "/elsewhere",
                "/data/nodes/n/jobs/j",
                "/database",
                "/config",
            ]),
        );
        assert_eq!(view.hidden, paths(&["/config", "/data"]));
        assert_eq!(view.visible, paths(&["/data/nodes/n/jobs", "/data/shares/a/s"]));
        let parents = view.missing_parents(Path::new("/data/nodes/n/jobs"));
        assert_eq!(parents, paths(&["/data/nodes", "/data/nodes/n", "/data/nodes/n/jobs"]));
    }

    #[test]
    fn only_a_user_namespace_of_this_user_is_opened() {
        for address in ["", "1", "x y", "1 2 3", &format!("{} 0", std::process::id()), "0 0"] {
            assert!(Namespaces::open_user_namespace(address).is_err(), "{address:?}");
        }
    }
}
