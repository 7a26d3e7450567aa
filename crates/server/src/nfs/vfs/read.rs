//! Operations that change nothing: lookup, attributes, content, listings, symbolic links.

use std::os::unix::fs::FileExt;

use nfs3_server::nfs3_types::nfs3::{fattr3, filename3, nfspath3, nfsstat3};
use nfs3_server::nfs3_types::xdr_codec::Opaque;
use nfs3_server::vfs::{NfsReadFileSystem, ReadDirPlusIterator};
use rustix::fs::{OFlags, readlinkat};

use super::attributes::attributes;
use super::directory_entries::{Entries, list_names};
use super::{NfsResult, Vfs, open_content};
use crate::nfs::tree::{Handle, status_of_errno, status_of_io_error};

/// Maximum size of one read.
const MAX_READ: u32 = 1 << 20;

impl NfsReadFileSystem for Vfs {
    type Handle = Handle;

    /// There is no common root, because it would reveal all file servers.
    fn root_dir(&self) -> Handle {
        Handle::INVALID
    }

    async fn lookup(&self, directory: &Handle, name: &filename3<'_>) -> NfsResult<Handle> {
        let (directory, name) = (*directory, name.0.to_vec());
        self.run_blocking(move |trees| trees.lookup(&directory, &name).map(|(handle, _)| handle)).await
    }

    async fn lookup_by_path(&self, path: &str) -> NfsResult<Handle> {
        let path = path.to_owned();
        self.run_blocking(move |trees| trees.mount(&path)).await
    }

    async fn getattr(&self, handle: &Handle) -> NfsResult<fattr3> {
        let handle = *handle;
        self.run_blocking(move |trees| trees.open(&handle, OFlags::PATH).map(|(_, metadata)| attributes(&metadata)))
            .await
    }

    async fn read(&self, handle: &Handle, offset: u64, count: u32) -> NfsResult<(Vec<u8>, bool)> {
        let handle = *handle;
        self.run_blocking(move |trees| {
            let (file, metadata) = open_content(trees, &handle, OFlags::RDONLY)?;
            let mut bytes = vec![0; count.min(MAX_READ) as usize];
            let mut filled = 0;
            while filled < bytes.len() {
                match file.read_at(&mut bytes[filled..], offset + filled as u64).map_err(status_of_io_error)? {
                    0 => break,
                    n => filled += n,
                }
            }
            bytes.truncate(filled);
            Ok((bytes, offset.saturating_add(filled as u64) >= metadata.len()))
        })
        .await
    }

    async fn readdirplus(&self, directory: &Handle, cookie: u64) -> NfsResult<impl ReadDirPlusIterator<Handle>> {
        let directory = *directory;
        let names = self.run_blocking(move |trees| list_names(trees, &directory, cookie)).await?;
        Ok(Entries { vfs: Vfs(self.0.clone()), directory, names: names.into_iter(), ready: Vec::new().into_iter() })
    }

    async fn readlink(&self, handle: &Handle) -> NfsResult<nfspath3<'_>> {
        let handle = *handle;
        let target = self.run_blocking(move |trees| {
            let (link, metadata) = trees.open(&handle, OFlags::PATH)?;
            if !metadata.file_type().is_symlink() {
                return Err(nfsstat3::NFS3ERR_INVAL);
            }
            readlinkat(&link, c"", Vec::new()).map(std::ffi::CString::into_bytes).map_err(status_of_errno)
        });
        Ok(nfspath3(Opaque::owned(target.await?)))
    }
}
