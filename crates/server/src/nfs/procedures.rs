//! Procedures of NFS version 3 (RFC 1813): decodes arguments, calls the file system, encodes results. Requested sizes
//! are limited to what `record` and the file system allow. MKNOD and LINK are not implemented.

use nfs3_server::nfs3_types::nfs3::*;
use nfs3_server::nfs3_types::xdr_codec::{Opaque, Void};
use tokio::sync::OwnedSemaphorePermit;

use super::record::MAX_SMALL_RECORD;
use super::rpc::{Call, CallRejection, encode_reply};
use super::service::{ExportedFileSystem, Reply, Service};
use super::xdr::{Decoder, XdrError};

/// Maximum payload of a READ, READDIR or READDIRPLUS reply.
const MAX_DATA: u32 = 1 << 20;
const TEBIBYTE: u64 = 1 << 40;

type ProcedureResult<T, E> = Result<Nfs3Result<T, E>, CallRejection>;

/// Decodes a handle of the arguments, or returns early with its status.
macro_rules! own_handle {
    ($service:expr, $bytes:expr, $failed:expr) => {
        match $service.handle($bytes) {
            Ok(handle) => handle,
            Err(status) => return Ok(Nfs3Result::Err((status, $failed))),
        }
    };
}

mod readdir;

impl<F: ExportedFileSystem> Service<F> {
    pub(super) async fn perform(&self, call: Call<'_>) -> Reply {
        let (xid, args) = (call.xid, call.args);
        let Ok(procedure) = NFS_PROGRAM::try_from(call.procedure) else {
            return encode_reply(xid, &Err::<Void, _>(CallRejection::NoProcedure)).into();
        };
        let bytes = match procedure {
            NFS_PROGRAM::NFSPROC3_NULL => encode_reply(xid, &args.end().map(|()| Void).map_err(CallRejection::from)),
            NFS_PROGRAM::NFSPROC3_GETATTR => encode_reply(xid, &self.get_attributes(args).await),
            NFS_PROGRAM::NFSPROC3_SETATTR => encode_reply(xid, &self.set_attributes(args).await),
            NFS_PROGRAM::NFSPROC3_LOOKUP => encode_reply(xid, &self.look_up(args).await),
            NFS_PROGRAM::NFSPROC3_ACCESS => encode_reply(xid, &self.access(args).await),
            NFS_PROGRAM::NFSPROC3_READLINK => encode_reply(xid, &self.read_link(args).await),
            NFS_PROGRAM::NFSPROC3_WRITE => encode_reply(xid, &self.write(args).await),
            NFS_PROGRAM::NFSPROC3_CREATE => encode_reply(xid, &self.create(args).await),
            NFS_PROGRAM::NFSPROC3_MKDIR => encode_reply(xid, &self.make_directory(args).await),
            NFS_PROGRAM::NFSPROC3_SYMLINK => encode_reply(xid, &self.make_link(args).await),
            NFS_PROGRAM::NFSPROC3_REMOVE | NFS_PROGRAM::NFSPROC3_RMDIR => encode_reply(xid, &self.remove(args).await),
            NFS_PROGRAM::NFSPROC3_RENAME => encode_reply(xid, &self.rename(args).await),
            NFS_PROGRAM::NFSPROC3_FSSTAT => encode_reply(xid, &self.file_system_usage(args).await),
            NFS_PROGRAM::NFSPROC3_FSINFO => encode_reply(xid, &self.file_system_limits(args).await),
            NFS_PROGRAM::NFSPROC3_PATHCONF => encode_reply(xid, &self.path_limits(args).await),
            NFS_PROGRAM::NFSPROC3_COMMIT => encode_reply(xid, &self.commit(args).await),
            NFS_PROGRAM::NFSPROC3_MKNOD | NFS_PROGRAM::NFSPROC3_LINK => {
                encode_reply(xid, &Err::<Void, _>(CallRejection::NoProcedure))
            }
            NFS_PROGRAM::NFSPROC3_READ => {
                let (read, permit) = self.read(args).await;
                return Reply { permit, ..encode_reply(xid, &read).into() };
            }
            NFS_PROGRAM::NFSPROC3_READDIR => {
                let permit = Some(self.take_memory().await);
                return Reply { permit, ..encode_reply(xid, &self.list(args).await).into() };
            }
            NFS_PROGRAM::NFSPROC3_READDIRPLUS => {
                let permit = Some(self.take_memory().await);
                return Reply { permit, ..encode_reply(xid, &self.list_with_attributes(args).await).into() };
            }
        };
        bytes.into()
    }

    async fn get_attributes(&self, mut args: Decoder<'_>) -> ProcedureResult<GETATTR3resok, Void> {
        let object = args.handle_bytes()?;
        args.end()?;
        let object = own_handle!(self, object, Void);
        Ok(match self.fs.getattr(&object).await {
            Ok(obj_attributes) => Nfs3Result::Ok(GETATTR3resok { obj_attributes }),
            Err(status) => Nfs3Result::Err((status, Void)),
        })
    }

    async fn set_attributes(&self, mut args: Decoder<'_>) -> ProcedureResult<SETATTR3resok, SETATTR3resfail> {
        let (object, wanted, guard) = (args.handle_bytes()?, args.fixed()?, args.fixed::<sattrguard3>()?);
        args.end()?;
        let object = own_handle!(self, object, SETATTR3resfail::default());
        let before = self.pre_op_attributes(&object).await;
        if let (sattrguard3::Some(guard), pre_op_attr::Some(now)) = (guard, before)
            && guard != now.ctime
        {
            let obj_wcc = wcc_data { before, after: post_op_attr::None };
            return Ok(Nfs3Result::Err((nfsstat3::NFS3ERR_NOT_SYNC, SETATTR3resfail { obj_wcc })));
        }
        Ok(match self.fs.setattr(&object, wanted).await {
            Ok(after) => {
                Nfs3Result::Ok(SETATTR3resok { obj_wcc: wcc_data { before, after: post_op_attr::Some(after) } })
            }
            Err(status) => {
                let obj_wcc = wcc_data { before, after: post_op_attr::None };
                Nfs3Result::Err((status, SETATTR3resfail { obj_wcc }))
            }
        })
    }

    async fn look_up(&self, mut args: Decoder<'_>) -> ProcedureResult<LOOKUP3resok, LOOKUP3resfail> {
        let (directory, name) = (args.handle_bytes()?, args.name()?);
        args.end()?;
        let directory = own_handle!(self, directory, LOOKUP3resfail::default());
        let dir_attributes = self.post_op_attributes(&directory).await;
        Ok(match self.fs.lookup(&directory, &name).await {
            Ok(found) => Nfs3Result::Ok(LOOKUP3resok {
                object: self.encode_handle(&found),
                obj_attributes: self.post_op_attributes(&found).await,
                dir_attributes,
            }),
            Err(status) => Nfs3Result::Err((status, LOOKUP3resfail { dir_attributes })),
        })
    }

    /// Grants every access: knowing the export path is the permission.
    async fn access(&self, mut args: Decoder<'_>) -> ProcedureResult<ACCESS3resok, ACCESS3resfail> {
        let (object, access) = (args.handle_bytes()?, args.u32()?);
        args.end()?;
        let object = own_handle!(self, object, ACCESS3resfail::default());
        Ok(match self.fs.getattr(&object).await {
            Ok(attributes) => Nfs3Result::Ok(ACCESS3resok { obj_attributes: post_op_attr::Some(attributes), access }),
            Err(status) => Nfs3Result::Err((status, ACCESS3resfail::default())),
        })
    }

    async fn read_link(&self, mut args: Decoder<'_>) -> ProcedureResult<READLINK3resok<'static>, READLINK3resfail> {
        let link = args.handle_bytes()?;
        args.end()?;
        let link = own_handle!(self, link, READLINK3resfail::default());
        let symlink_attributes = self.post_op_attributes(&link).await;
        Ok(match self.fs.readlink(&link).await {
            Ok(target) => Nfs3Result::Ok(READLINK3resok { symlink_attributes, data: target.into_owned() }),
            Err(status) => Nfs3Result::Err((status, READLINK3resfail { symlink_attributes })),
        })
    }

    async fn read(
        &self,
        args: Decoder<'_>,
    ) -> (ProcedureResult<READ3resok<'static>, READ3resfail>, Option<OwnedSemaphorePermit>) {
        let decode = |mut args: Decoder<'_>| {
            let decoded = (args.handle_bytes()?.to_vec(), args.u64()?, args.u32()?.min(MAX_DATA));
            args.end().map(|()| decoded)
        };
        let (file, offset, count) = match decode(args) {
            Ok(decoded) => decoded,
            Err(malformed) => return (Err(malformed.into()), None),
        };
        let permit = match count as usize > MAX_SMALL_RECORD {
            true => Some(self.take_memory().await),
            false => None,
        };
        (self.read_from(&file, offset, count).await, permit)
    }

    async fn read_from(
        &self,
        file: &[u8],
        offset: u64,
        count: u32,
    ) -> ProcedureResult<READ3resok<'static>, READ3resfail> {
        let file = own_handle!(self, file, READ3resfail::default());
        let file_attributes = self.post_op_attributes(&file).await;
        Ok(match self.fs.read(&file, offset, count).await {
            Ok((bytes, eof)) => Nfs3Result::Ok(READ3resok {
                file_attributes,
                count: u32::try_from(bytes.len()).expect("no more than was asked for"),
                eof,
                data: Opaque::owned(bytes),
            }),
            Err(status) => Nfs3Result::Err((status, READ3resfail { file_attributes })),
        })
    }

    async fn write(&self, mut args: Decoder<'_>) -> ProcedureResult<WRITE3resok, WRITE3resfail> {
        let (file, offset, count) = (args.handle_bytes()?, args.u64()?, args.u32()?);
        let (stable, data) = (args.fixed::<stable_how>()?, args.opaque(usize::MAX)?);
        args.end()?;
        if data.len() != count as usize {
            return Ok(Nfs3Result::Err((nfsstat3::NFS3ERR_INVAL, WRITE3resfail::default())));
        }
        let file = own_handle!(self, file, WRITE3resfail::default());
        let before = self.pre_op_attributes(&file).await;
        Ok(match self.fs.write(&file, offset, data, stable).await {
            Ok((after, committed)) => Nfs3Result::Ok(WRITE3resok {
                file_wcc: wcc_data { before, after: post_op_attr::Some(after) },
                count,
                committed,
                verf: writeverf3(self.generation),
            }),
            Err(status) => {
                let file_wcc = wcc_data { before, after: post_op_attr::None };
                Nfs3Result::Err((status, WRITE3resfail { file_wcc }))
            }
        })
    }

    async fn create(&self, mut args: Decoder<'_>) -> ProcedureResult<CREATE3resok, CREATE3resfail> {
        let (directory, name, how) = (args.handle_bytes()?, args.name()?, args.fixed::<createhow3>()?);
        args.end()?;
        let directory = own_handle!(self, directory, CREATE3resfail::default());
        let before = self.pre_op_attributes(&directory).await;
        let is_there = matches!(how, createhow3::GUARDED(_)) && self.fs.lookup(&directory, &name).await.is_ok();
        let made = match how {
            _ if is_there => Err(nfsstat3::NFS3ERR_EXIST),
            createhow3::EXCLUSIVE(verifier) => {
                self.fs.create_exclusive(&directory, &name, verifier).await.map(|made| (made, post_op_attr::None))
            }
            createhow3::UNCHECKED(wanted) | createhow3::GUARDED(wanted) => {
                let made = self.fs.create(&directory, &name, wanted).await;
                made.map(|(made, attributes)| (made, post_op_attr::Some(attributes)))
            }
        };
        let dir_wcc = wcc_data { before, after: self.post_op_attributes(&directory).await };
        Ok(match made {
            Ok((made, obj_attributes)) => {
                let obj = post_op_fh3::Some(self.encode_handle(&made));
                Nfs3Result::Ok(CREATE3resok { obj, obj_attributes, dir_wcc })
            }
            Err(status) => Nfs3Result::Err((status, CREATE3resfail { dir_wcc })),
        })
    }

    async fn make_directory(&self, mut args: Decoder<'_>) -> ProcedureResult<MKDIR3resok, MKDIR3resfail> {
        let (directory, name, _wanted) = (args.handle_bytes()?, args.name()?, args.fixed::<sattr3>()?);
        args.end()?;
        let directory = own_handle!(self, directory, MKDIR3resfail::default());
        let before = self.pre_op_attributes(&directory).await;
        let made = self.fs.mkdir(&directory, &name).await;
        let dir_wcc = wcc_data { before, after: self.post_op_attributes(&directory).await };
        Ok(match made {
            Ok((made, attributes)) => {
                let obj = post_op_fh3::Some(self.encode_handle(&made));
                Nfs3Result::Ok(MKDIR3resok { obj, obj_attributes: post_op_attr::Some(attributes), dir_wcc })
            }
            Err(status) => Nfs3Result::Err((status, MKDIR3resfail { dir_wcc })),
        })
    }

    async fn make_link(&self, mut args: Decoder<'_>) -> ProcedureResult<SYMLINK3resok, SYMLINK3resfail> {
        let (directory, name, wanted) = (args.handle_bytes()?, args.name()?, args.fixed::<sattr3>()?);
        let target = nfspath3(Opaque::borrowed(args.opaque(usize::MAX)?));
        args.end()?;
        let directory = own_handle!(self, directory, SYMLINK3resfail::default());
        let before = self.pre_op_attributes(&directory).await;
        let made = self.fs.symlink(&directory, &name, &target, &wanted).await;
        let dir_wcc = wcc_data { before, after: self.post_op_attributes(&directory).await };
        Ok(match made {
            Ok((made, attributes)) => {
                let obj = post_op_fh3::Some(self.encode_handle(&made));
                Nfs3Result::Ok(SYMLINK3resok { obj, obj_attributes: post_op_attr::Some(attributes), dir_wcc })
            }
            Err(status) => Nfs3Result::Err((status, SYMLINK3resfail { dir_wcc })),
        })
    }

    async fn remove(&self, mut args: Decoder<'_>) -> ProcedureResult<REMOVE3resok, REMOVE3resfail> {
        let (directory, name) = (args.handle_bytes()?, args.name()?);
        args.end()?;
        let directory = own_handle!(self, directory, REMOVE3resfail::default());
        let before = self.pre_op_attributes(&directory).await;
        let removed = self.fs.remove(&directory, &name).await;
        let dir_wcc = wcc_data { before, after: self.post_op_attributes(&directory).await };
        Ok(match removed {
            Ok(()) => Nfs3Result::Ok(REMOVE3resok { dir_wcc }),
            Err(status) => Nfs3Result::Err((status, REMOVE3resfail { dir_wcc })),
        })
    }

    async fn rename(&self, mut args: Decoder<'_>) -> ProcedureResult<RENAME3resok, RENAME3resfail> {
        let (from, from_name) = (args.handle_bytes()?, args.name()?);
        let (to, to_name) = (args.handle_bytes()?, args.name()?);
        args.end()?;
        let from = own_handle!(self, from, RENAME3resfail::default());
        let to = own_handle!(self, to, RENAME3resfail::default());
        let before = (self.pre_op_attributes(&from).await, self.pre_op_attributes(&to).await);
        let renamed = self.fs.rename(&from, &from_name, &to, &to_name).await;
        let fromdir_wcc = wcc_data { before: before.0, after: self.post_op_attributes(&from).await };
        let todir_wcc = wcc_data { before: before.1, after: self.post_op_attributes(&to).await };
        Ok(match renamed {
            Ok(()) => Nfs3Result::Ok(RENAME3resok { fromdir_wcc, todir_wcc }),
            Err(status) => Nfs3Result::Err((status, RENAME3resfail { fromdir_wcc, todir_wcc })),
        })
    }

    async fn file_system_usage(&self, mut args: Decoder<'_>) -> ProcedureResult<FSSTAT3resok, FSSTAT3resfail> {
        let root = args.handle_bytes()?;
        args.end()?;
        let root = own_handle!(self, root, FSSTAT3resfail::default());
        Ok(match self.fs.getattr(&root).await {
            Ok(attributes) => Nfs3Result::Ok(FSSTAT3resok {
                obj_attributes: post_op_attr::Some(attributes),
                tbytes: TEBIBYTE,
                fbytes: TEBIBYTE,
                abytes: TEBIBYTE,
                tfiles: 1 << 30,
                ffiles: 1 << 30,
                afiles: 1 << 30,
                invarsec: u32::MAX,
            }),
            Err(status) => Nfs3Result::Err((status, FSSTAT3resfail::default())),
        })
    }

    async fn file_system_limits(&self, mut args: Decoder<'_>) -> ProcedureResult<FSINFO3resok, FSINFO3resfail> {
        let root = args.handle_bytes()?;
        args.end()?;
        let root = own_handle!(self, root, FSINFO3resfail::default());
        if let Err(status) = self.fs.getattr(&root).await {
            return Ok(Nfs3Result::Err((status, FSINFO3resfail::default())));
        }
        Ok(match self.fs.fsinfo(&root).await {
            Ok(limits) => Nfs3Result::Ok(limits),
            Err(status) => Nfs3Result::Err((status, FSINFO3resfail::default())),
        })
    }

    async fn path_limits(&self, mut args: Decoder<'_>) -> ProcedureResult<PATHCONF3resok, PATHCONF3resfail> {
        let object = args.handle_bytes()?;
        args.end()?;
        let object = own_handle!(self, object, PATHCONF3resfail::default());
        Ok(match self.fs.getattr(&object).await {
            Ok(attributes) => Nfs3Result::Ok(PATHCONF3resok {
                obj_attributes: post_op_attr::Some(attributes),
                linkmax: 0,
                name_max: 255,
                no_trunc: true,
                chown_restricted: true,
                case_insensitive: false,
                case_preserving: true,
            }),
            Err(status) => Nfs3Result::Err((status, PATHCONF3resfail::default())),
        })
    }

    async fn commit(&self, mut args: Decoder<'_>) -> ProcedureResult<COMMIT3resok, COMMIT3resfail> {
        let (file, offset, count) = (args.handle_bytes()?, args.u64()?, args.u32()?);
        args.end()?;
        let file = own_handle!(self, file, COMMIT3resfail { file_wcc: wcc_data::default() });
        let before = self.pre_op_attributes(&file).await;
        let committed = self.fs.commit(&file, offset, count).await;
        let file_wcc = wcc_data { before, after: self.post_op_attributes(&file).await };
        Ok(match committed {
            Ok(()) => Nfs3Result::Ok(COMMIT3resok { file_wcc, verf: writeverf3(self.generation) }),
            Err(status) => Nfs3Result::Err((status, COMMIT3resfail { file_wcc })),
        })
    }

    async fn pre_op_attributes(&self, object: &F::Handle) -> pre_op_attr {
        match self.fs.getattr(object).await {
            Ok(now) => pre_op_attr::Some(wcc_attr { size: now.size, mtime: now.mtime, ctime: now.ctime }),
            Err(_) => pre_op_attr::None,
        }
    }

    async fn post_op_attributes(&self, object: &F::Handle) -> post_op_attr {
        self.fs.getattr(object).await.map_or(post_op_attr::None, post_op_attr::Some)
    }
}

impl<'a> Decoder<'a> {
    fn handle_bytes(&mut self) -> Result<&'a [u8], XdrError> {
        self.opaque(NFS3_FHSIZE)
    }

    fn name(&mut self) -> Result<filename3<'a>, XdrError> {
        self.opaque(usize::MAX).map(|name| filename3(Opaque::borrowed(name)))
    }
}
