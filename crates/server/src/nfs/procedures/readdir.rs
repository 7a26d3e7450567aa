//! READDIR and READDIRPLUS: fill a reply with as many entries as the client's limits allow.

use nfs3_server::nfs3_types::nfs3::*;
use nfs3_server::nfs3_types::xdr_codec::{BoundedList, List, Pack};
use nfs3_server::vfs::{NextResult, ReadDirPlusIterator};

use super::{MAX_DATA, ProcedureResult};
use crate::nfs::service::{ExportedFileSystem, Service};
use crate::nfs::xdr::Decoder;

/// Bytes of a READDIR reply besides its entries: headers and the directory's attributes.
const LIST_OVERHEAD: usize = 128;

impl<F: ExportedFileSystem> Service<F> {
    /// Cookies stay valid whatever happens to the directory, so its verifier is always zero.
    pub(super) async fn list(&self, mut args: Decoder<'_>) -> ProcedureResult<READDIR3resok<'static>, READDIR3resfail> {
        let (directory, cookie) = (args.handle_bytes()?, args.u64()?);
        let (_verifier, count) = (args.u64()?, args.u32()?.min(MAX_DATA) as usize);
        args.end()?;
        let directory = own_handle!(self, directory, READDIR3resfail::default());
        let dir_attributes = self.post_op_attributes(&directory).await;
        let mut entries = BoundedList::new(count.saturating_sub(LIST_OVERHEAD));
        let filled = self.fill_entries(&directory, cookie, |entry| {
            entries.try_push(entry3 { fileid: entry.fileid, name: entry.name, cookie: entry.cookie }).is_ok()
        });
        let filled = filled.await;
        let entries = entries.into_inner();
        Ok(match check_progress(filled, &entries) {
            Ok(eof) => Nfs3Result::Ok(READDIR3resok {
                dir_attributes,
                cookieverf: cookieverf3::default(),
                reply: dirlist3 { entries, eof },
            }),
            Err(status) => Nfs3Result::Err((status, READDIR3resfail { dir_attributes })),
        })
    }

    pub(super) async fn list_with_attributes(
        &self,
        mut args: Decoder<'_>,
    ) -> ProcedureResult<READDIRPLUS3resok<'static>, READDIRPLUS3resfail> {
        let (directory, cookie, _verifier) = (args.handle_bytes()?, args.u64()?, args.u64()?);
        let (mut names_left, count) = (args.u32()?.min(MAX_DATA) as usize, args.u32()?.min(MAX_DATA) as usize);
        args.end()?;
        let directory = own_handle!(self, directory, READDIRPLUS3resfail::default());
        let dir_attributes = self.post_op_attributes(&directory).await;
        let mut entries = BoundedList::new(count.saturating_sub(LIST_OVERHEAD));
        let filled = self.fill_entries(&directory, cookie, |entry| {
            let entry = entryplus3 {
                fileid: entry.fileid,
                name: entry.name,
                cookie: entry.cookie,
                name_attributes: entry.name_attributes.map_or(post_op_attr::None, post_op_attr::Some),
                name_handle: entry
                    .name_handle
                    .map_or(post_op_fh3::None, |handle| post_op_fh3::Some(self.encode_handle(&handle))),
            };
            // `dircount` limits the entries without attributes and handles.
            let size = entry.fileid.packed_size() + entry.name.packed_size() + entry.cookie.packed_size() + 4;
            let fits = size <= names_left && entries.try_push(entry).is_ok();
            names_left = names_left.saturating_sub(size);
            fits
        });
        let filled = filled.await;
        let entries = entries.into_inner();
        Ok(match check_progress(filled, &entries) {
            Ok(eof) => Nfs3Result::Ok(READDIRPLUS3resok {
                dir_attributes,
                cookieverf: cookieverf3::default(),
                reply: dirlistplus3 { entries, eof },
            }),
            Err(status) => Nfs3Result::Err((status, READDIRPLUS3resfail { dir_attributes })),
        })
    }

    /// Passes entries to `push` until it refuses one. Returns `true` at the end of the directory.
    async fn fill_entries(
        &self,
        directory: &F::Handle,
        cookie: u64,
        mut push: impl FnMut(nfs3_server::vfs::DirEntryPlus<F::Handle>) -> bool + Send,
    ) -> Result<bool, nfsstat3> {
        let mut entries = self.fs.readdirplus(directory, cookie).await?;
        loop {
            match entries.next().await {
                NextResult::Ok(entry) => {
                    if !push(entry) {
                        return Ok(false);
                    }
                }
                NextResult::Eof => return Ok(true),
                NextResult::Err(status) => return Err(status),
            }
        }
    }
}

/// Error for a reply without entries before the end: the client would repeat the call forever.
fn check_progress<T>(filled: Result<bool, nfsstat3>, entries: &List<T>) -> Result<bool, nfsstat3> {
    match filled? {
        false if entries.is_empty() => Err(nfsstat3::NFS3ERR_TOOSMALL),
        is_end => Ok(is_end),
    }
}
