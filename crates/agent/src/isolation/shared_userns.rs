//! Sharing of one user namespace between the nodes of a job on one machine. Ranks may read each other's memory
//! (`process_vm_readv`) only within a user namespace. The first node publishes the address of its namespace in a file
//! beside the job's shared directory.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use corro_launch::namespaces::{MountView, NamespaceError, Namespaces};
use corro_model::node::TaskOrder;

use crate::fs::dirfd;

/// Joins the user namespace of the job's other nodes on this machine, or creates and publishes one.
pub fn join_or_create(view: &MountView, order: &TaskOrder) -> Result<Namespaces, NamespaceError> {
    if order.hosts.len() == 1 {
        return Namespaces::create(view, None);
    }
    let Some(directory) = order.shared_temp.as_deref().and_then(exchange_dir) else {
        return Namespaces::create(view, None);
    };
    // Retries, since the publishing node may die before its namespace is opened.
    for _ in 0..3 {
        if let Ok(user) = read_address(&directory) {
            return Namespaces::create(view, Some(user));
        }
        let made = Namespaces::create(view, None)?;
        match publish_address(&directory, &made.address()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if read_address(&directory).is_err() {
                    let _ = std::fs::remove_file(directory.join(ADDRESS_FILE));
                }
            }
            // Without a published address each node has its own user namespace: slower, and just as isolated.
            _ => return Ok(made),
        }
    }
    Namespaces::create(view, None)
}

const ADDRESS_FILE: &str = "address";

/// Directory for the address, beside the job's shared directory, where jobs do not see it.
fn exchange_dir(shared_temp: &Path) -> Option<PathBuf> {
    let name = shared_temp.file_name()?.to_str()?;
    Some(shared_temp.with_file_name(format!("{name}.users")))
}

/// Removes the published address of a job.
pub fn forget(shared_temp: &Path) -> io::Result<()> {
    let Some((parent, directory)) = shared_temp.parent().zip(exchange_dir(shared_temp)) else { return Ok(()) };
    match (dirfd::open_directory(parent), directory.file_name().and_then(|name| name.to_str())) {
        (Ok(parent), Some(name)) => dirfd::remove(&parent, name),
        _ => Ok(()),
    }
}

fn read_address(directory: &Path) -> io::Result<Arc<OwnedFd>> {
    Namespaces::open_user_namespace(&std::fs::read_to_string(directory.join(ADDRESS_FILE))?)
}

/// Publishes the address atomically; fails if there is one already.
fn publish_address(directory: &Path, address: &str) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let staged = directory.join(format!("draft-{}", std::process::id()));
    std::fs::write(&staged, address)?;
    let published = std::fs::hard_link(&staged, directory.join(ADDRESS_FILE));
    std::fs::remove_file(&staged)?;
    published
}
