//! Sharing of one user namespace between the nodes of a job on one machine.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use corro_launch::namespaces::{NamespaceError, Namespaces, View};
use corro_model::node::TaskOrder;

use crate::fs::dirfd;

/// Nodes of one job on one machine share a name space of users: only so may their ranks read each other's memory.
pub fn enter(view: &View, order: &TaskOrder) -> Result<Namespaces, NamespaceError> {
    if order.hosts.len() == 1 {
        return Namespaces::make(view, None);
    }
    let Some(meeting) = order.shared_temp.as_deref().and_then(meeting_place) else {
        return Namespaces::make(view, None);
    };
    // Somebody may die between telling and being asked, so look again.
    for _ in 0..3 {
        if let Ok(user) = told_at(&meeting) {
            return Namespaces::make(view, Some(user));
        }
        let made = Namespaces::make(view, None)?;
        match tell_at(&meeting, &made.address()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if told_at(&meeting).is_err() {
                    let _ = std::fs::remove_file(meeting.join(ADDRESS));
                }
            }
            // Where nothing can be told, each node is on its own: slower, and no less closed.
            _ => return Ok(made),
        }
    }
    Namespaces::make(view, None)
}

const ADDRESS: &str = "address";

/// Beside the directory that the nodes share, where no job sees it.
fn meeting_place(shared_temp: &Path) -> Option<PathBuf> {
    let name = shared_temp.file_name()?.to_str()?;
    Some(shared_temp.with_file_name(format!("{name}.users")))
}

/// Removes what nodes told each other about a job.
pub fn forget(shared_temp: &Path) -> io::Result<()> {
    let Some((parent, place)) = shared_temp.parent().zip(meeting_place(shared_temp)) else { return Ok(()) };
    match (dirfd::open_directory(parent), place.file_name().and_then(|name| name.to_str())) {
        (Ok(parent), Some(name)) => dirfd::remove(&parent, name),
        _ => Ok(()),
    }
}

fn told_at(meeting: &Path) -> io::Result<Arc<OwnedFd>> {
    Namespaces::at(&std::fs::read_to_string(meeting.join(ADDRESS))?)
}

/// Whole or not at all, and only the first.
fn tell_at(meeting: &Path, address: &str) -> io::Result<()> {
    std::fs::create_dir_all(meeting)?;
    let draft = meeting.join(format!("draft-{}", std::process::id()));
    std::fs::write(&draft, address)?;
    let told = std::fs::hard_link(&draft, meeting.join(ADDRESS));
    std::fs::remove_file(&draft)?;
    told
}
