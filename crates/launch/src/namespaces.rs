//! Name spaces that the processes of a job share: one of users, so that processes outside cannot be looked into, and one of
//! mounts, in which some directories are hidden. Made by an agent, entered by processes through their guards. Leaves nothing
//! behind: they are gone with the last process inside and the last descriptor.
//!
//! Root inside is root's number outside, so the kernel's settings, which are files of root, are read-only inside, as container runtimes
//! have it. No name space of control groups can be made inside: whoever has one may mount the groups and write to those that are theirs, the
//! limits of their own job among them.
//!
//! Needs no rights where the machine lets everybody make user name spaces. Inside, everybody has the numbers they have
//! outside, so files belong to whom they belong to; rights that go beyond files end at the name space.

mod maker;
pub mod trial;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

/// Held open by whoever starts processes in them. Clones are the same.
#[derive(Clone, Debug)]
pub struct Namespaces {
    pub(crate) user: Arc<OwnedFd>,
    pub(crate) mount: Arc<OwnedFd>,
    left_writable: Option<Arc<str>>,
}

/// What is seen inside. Paths are absolute and lead through no links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Empty and read-only inside.
    pub hidden: Vec<PathBuf>,
    /// Directories in those that are there all the same.
    pub shown: Vec<PathBuf>,
    /// Those of them that cannot be written to themselves. What is mounted in them is as it is.
    pub read_only: Vec<PathBuf>,
}

#[derive(Debug, Error)]
pub enum NamespaceError {
    #[error("a process for it cannot be started")]
    Clone(#[source] io::Error),
    #[error("the numbers of users cannot be given to it")]
    Map(#[source] io::Error),
    #[error("{step} {}", path.display())]
    Step {
        step: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl View {
    /// The least that does the same: nothing hidden or shown within something that is, nothing shown that nothing hides.
    pub fn new(hidden: impl IntoIterator<Item = PathBuf>, shown: impl IntoIterator<Item = PathBuf>) -> View {
        let hidden = outermost(hidden.into_iter().collect());
        let within = |path: &PathBuf| hidden.iter().any(|root| path.starts_with(root) && path != root);
        let shown = outermost(shown.into_iter().filter(within).collect());
        View { hidden, shown, read_only: Vec::new() }
    }

    pub fn with_read_only(self, read_only: Vec<PathBuf>) -> View {
        View { read_only, ..self }
    }

    /// Directories that have to be made in what hides `shown`, parents first.
    fn way_to(&self, shown: &Path) -> Vec<PathBuf> {
        let Some(root) = self.hidden.iter().find(|root| shown.starts_with(root)) else { return Vec::new() };
        let mut way: Vec<PathBuf> = shown.ancestors().take_while(|path| path != root).map(Path::to_owned).collect();
        way.reverse();
        way
    }
}

fn outermost(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort();
    let mut kept: Vec<PathBuf> = Vec::new();
    for path in paths {
        if !kept.iter().any(|outer| path.starts_with(outer)) {
            kept.push(path);
        }
    }
    kept
}

impl Namespaces {
    /// Makes both, or only that of mounts within one of users that is there. Blocks for less than a millisecond.
    pub fn make(view: &View, user: Option<Arc<OwnedFd>>) -> Result<Namespaces, NamespaceError> {
        maker::make(view, user)
    }

    /// Settings of the machine that could not be made read-only inside, and why: `None` where none is left writable.
    pub fn left_writable(&self) -> Option<&str> {
        self.left_writable.as_deref()
    }

    /// The name space of users, for more of mounts in it.
    pub fn user(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.user)
    }

    /// How another process of the same user finds the name space of users while this one holds it.
    pub fn address(&self) -> String {
        format!("{} {}", std::process::id(), self.user.as_raw_fd())
    }

    /// The name space of users at such an address. Anything but one that this user has made is refused.
    pub fn at(address: &str) -> io::Result<Arc<OwnedFd>> {
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
    // SAFETY: asks a descriptor that is open, and writes nothing; -1 for anything but a name space.
    unsafe { libc::ioctl(descriptor.as_raw_fd(), NS_GET_NSTYPE) }
}

fn owner_of(descriptor: BorrowedFd<'_>) -> Option<u32> {
    let mut owner: libc::uid_t = 0;
    // SAFETY: writes one number, to a place for it.
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
    fn a_view_is_as_small_as_it_can_be() {
        let view = View::new(
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
        assert_eq!(view.shown, paths(&["/data/nodes/n/jobs", "/data/shares/a/s"]));
        let way = view.way_to(Path::new("/data/nodes/n/jobs"));
        assert_eq!(way, paths(&["/data/nodes", "/data/nodes/n", "/data/nodes/n/jobs"]));
    }

    #[test]
    fn only_a_name_space_of_ones_own_has_an_address() {
        for address in ["", "1", "x y", "1 2 3", &format!("{} 0", std::process::id()), "0 0"] {
            assert!(Namespaces::at(address).is_err(), "{address:?}");
        }
    }
}
