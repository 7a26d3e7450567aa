//! File operations of NFS clients. All disk access runs on blocking threads. Owners cannot be changed: all files belong
//! to the server's user.
//!
//! `read` and `write` implement the two traits of the `nfs3_server` crate, over `attributes` and `directory_entries`.

mod attributes;
mod directory_entries;
mod read;
mod write;

use std::fs::{File, Metadata};
use std::sync::Arc;

use nfs3_server::nfs3_types::nfs3::nfsstat3;
use rustix::fs::OFlags;
use tokio::task::spawn_blocking;

use super::service::ExportedFileSystem;
use super::tree::{FileTrees, Handle};

type NfsResult<T> = Result<T, nfsstat3>;

/// All file servers, in the interface of the `nfs3_server` crate.
pub struct Vfs(pub(super) Arc<FileTrees>);

impl Vfs {
    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&FileTrees) -> NfsResult<T> + Send + 'static,
    ) -> NfsResult<T> {
        let trees = self.0.clone();
        spawn_blocking(move || work(&trees)).await.unwrap_or(Err(nfsstat3::NFS3ERR_SERVERFAULT))
    }
}

impl ExportedFileSystem for Vfs {
    fn is_own_handle(&self, handle: &Handle) -> bool {
        self.0.check(handle).is_ok()
    }
}

/// Opens a regular file, and nothing else.
fn open_content(trees: &FileTrees, handle: &Handle, flags: OFlags) -> NfsResult<(File, Metadata)> {
    let (_, metadata) = trees.open(handle, OFlags::PATH)?;
    match metadata.is_file() {
        true => trees.open(handle, flags),
        false if metadata.is_dir() => Err(nfsstat3::NFS3ERR_ISDIR),
        false => Err(nfsstat3::NFS3ERR_INVAL),
    }
}
