//! Directory listings. Cookies are hashes of names, so that a listing can be continued while entries come and go.

use std::os::unix::fs::MetadataExt;

use corro_base::fnv::fnv1a_64;
use nfs3_server::nfs3_types::nfs3::{filename3, nfsstat3};
use nfs3_server::nfs3_types::xdr_codec::Opaque;
use nfs3_server::vfs::{DirEntryPlus, NextResult, ReadDirPlusIterator};
use rustix::fs::{Dir, OFlags};

use super::attributes::attributes;
use super::{NfsResult, Vfs};
use crate::nfs::tree::{FileTrees, Handle, status_of_errno};

/// Directory iterator that looks entries up only as far as the reply has space.
pub(super) struct Entries {
    pub(super) vfs: Vfs,
    pub(super) directory: Handle,
    pub(super) names: std::vec::IntoIter<(u64, Vec<u8>)>,
    pub(super) ready: std::vec::IntoIter<DirEntryPlus<Handle>>,
}

/// Number of entries looked up per blocking task.
const LOOKUP_BATCH: usize = 128;

impl ReadDirPlusIterator<Handle> for Entries {
    async fn next(&mut self) -> NextResult<DirEntryPlus<Handle>> {
        loop {
            if let Some(entry) = self.ready.next() {
                return NextResult::Ok(entry);
            }
            let some: Vec<_> = self.names.by_ref().take(LOOKUP_BATCH).collect();
            if some.is_empty() {
                return NextResult::Eof;
            }
            let directory = self.directory;
            let look_up = move |trees: &FileTrees| -> NfsResult<Vec<_>> {
                Ok(some.into_iter().filter_map(|name| directory_entry(trees, &directory, name)).collect())
            };
            match self.vfs.run_blocking(look_up).await {
                Ok(entries) => self.ready = entries.into_iter(),
                Err(error) => return NextResult::Err(error),
            }
        }
    }
}

/// Names after `cookie` in a directory, ordered by a hash of the name, so that the order is stable while entries come
/// and go.
pub(super) fn list_names(trees: &FileTrees, directory: &Handle, cookie: u64) -> NfsResult<Vec<(u64, Vec<u8>)>> {
    let (_, metadata) = trees.open(directory, OFlags::PATH)?;
    if !metadata.is_dir() {
        return Err(nfsstat3::NFS3ERR_NOTDIR);
    }
    let (opened, _) = trees.open(directory, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut names = Vec::new();
    for entry in Dir::read_from(&opened).map_err(status_of_errno)? {
        let name = entry.map_err(status_of_errno)?.file_name().to_bytes().to_vec();
        if !matches!(name.as_slice(), b"." | b"..") {
            names.push((cookie_of(&name), name));
        }
    }
    names.retain(|(own, _)| *own > cookie);
    names.sort_unstable();
    Ok(names)
}

/// `None` if the file is gone.
fn directory_entry(
    trees: &FileTrees,
    directory: &Handle,
    (cookie, name): (u64, Vec<u8>),
) -> Option<DirEntryPlus<Handle>> {
    let (handle, metadata) = trees.lookup(directory, &name).ok()?;
    Some(DirEntryPlus {
        fileid: metadata.ino(),
        name: filename3(Opaque::owned(name)),
        cookie,
        name_attributes: Some(attributes(&metadata)),
        name_handle: Some(handle),
    })
}

/// Stable cookie of a name. At least 16: the first values are reserved.
fn cookie_of(name: &[u8]) -> u64 {
    // Clients store it in a signed integer.
    (fnv1a_64(name) >> 1).max(16)
}
