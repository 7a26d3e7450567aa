//! RPC programs of the NFS port: NFS version 3 (`procedures`), MOUNT version 3, and a portmapper that returns this port
//! for everything. Decodes calls, runs them on a file system, encodes replies. Memory for large records and replies
//! comes from one semaphore, so it is bounded whatever clients request.

use std::sync::Arc;

use nfs3_server::nfs3_types::mount::{dirpath, export_node, fhandle3, mountres3, mountres3_ok, mountstat3};
use nfs3_server::nfs3_types::nfs3::{nfs_fh3, nfsstat3};
use nfs3_server::nfs3_types::xdr_codec::{List, Opaque, Void};
use nfs3_server::nfs3_types::{mount, nfs3, portmap};
use nfs3_server::vfs::{FileHandle, NfsFileSystem};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::record::Admission;
use super::rpc::{Call, CallRejection, DecodeCallError, encode_reply, encode_version_mismatch};
use super::xdr::Decoder;

/// Maximum number of large records and replies in memory. Each takes 2 MiB, plus a copy of its data during disk I/O.
const MAX_LARGE: usize = 24;
/// Maximum size of an `nfs_fh3`.
const MAX_HANDLE: usize = nfs3::NFS3_FHSIZE;

/// File system with unforgeable handles.
pub trait ExportedFileSystem: NfsFileSystem {
    /// Whether this server made the handle. Does not check that its file still exists.
    fn is_own_handle(&self, handle: &Self::Handle) -> bool;
}

pub struct Service<F> {
    pub(super) fs: F,
    /// Prefix of every handle that identifies the installation; also the write verifier.
    pub(super) generation: [u8; 8],
    port: u16,
    memory: Arc<Semaphore>,
}

/// Reply to a call.
pub struct Reply {
    /// Empty if nothing is sent.
    pub bytes: Vec<u8>,
    /// Memory grant of a large reply, until it is sent.
    pub permit: Option<OwnedSemaphorePermit>,
    /// Whether the call named an export or a handle of this server.
    pub is_authorized: bool,
}

/// The record is not an RPC call; the connection is closed.
#[derive(Debug)]
pub struct NotRpc;

impl<F: ExportedFileSystem> Service<F> {
    pub fn new(fs: F, generation: u64, port: u16) -> Self {
        let memory = Arc::new(Semaphore::new(MAX_LARGE));
        Service { fs, generation: generation.to_le_bytes(), port, memory }
    }

    /// Performs one call.
    pub async fn answer(&self, record: &[u8]) -> Result<Reply, NotRpc> {
        let call = match Call::decode(record) {
            Ok(call) => call,
            Err(DecodeCallError::OtherVersion { xid }) => return Ok(encode_version_mismatch(xid).into()),
            Err(DecodeCallError::Malformed) => return Err(NotRpc),
        };
        Ok(match (call.program, call.version) {
            (nfs3::PROGRAM, nfs3::VERSION) => {
                let is_authorized = self.names_own_handle(call.args);
                Reply { is_authorized, ..self.perform(call).await }
            }
            (mount::PROGRAM, mount::VERSION) => self.mount_program(call).await,
            (portmap::PROGRAM, portmap::VERSION) => self.portmap_program(call),
            (program, _) => {
                let known = [(nfs3::PROGRAM, 3), (mount::PROGRAM, 3), (portmap::PROGRAM, 2)];
                let only = known.iter().find(|(known, _)| *known == program).map(|(_, only)| *only);
                let denial = only.map_or(CallRejection::NoProgram, |only| CallRejection::NoVersion { only });
                encode_reply(call.xid, &Err::<Void, _>(denial)).into()
            }
        })
    }

    /// Memory for one large record or reply; waits while all is in use.
    pub(super) async fn take_memory(&self) -> OwnedSemaphorePermit {
        self.memory.clone().acquire_owned().await.expect("the semaphore is never closed")
    }

    pub(super) fn handle(&self, bytes: &[u8]) -> Result<F::Handle, nfsstat3> {
        let (generation, handle) = bytes.split_at_checked(8).ok_or(nfsstat3::NFS3ERR_BADHANDLE)?;
        match generation == self.generation {
            true => F::Handle::from_bytes(handle).ok_or(nfsstat3::NFS3ERR_BADHANDLE),
            false => Err(nfsstat3::NFS3ERR_STALE),
        }
    }

    pub(super) fn encode_handle(&self, handle: &F::Handle) -> nfs_fh3 {
        nfs_fh3 { data: Opaque::owned([&self.generation, handle.as_bytes()].concat()) }
    }

    fn names_own_handle(&self, mut args: Decoder<'_>) -> bool {
        let handle = args.opaque(MAX_HANDLE).ok().and_then(|bytes| self.handle(bytes).ok());
        handle.is_some_and(|handle| self.fs.is_own_handle(&handle))
    }

    async fn mount_program(&self, call: Call<'_>) -> Reply {
        let (xid, args) = (call.xid, call.args);
        match call.procedure {
            0 => encode_reply(xid, &void_result(args)).into(),
            1 => {
                let mounted = self.mount(args).await;
                let is_authorized = matches!(&mounted, Ok(mountres3::Ok(_)));
                Reply { is_authorized, ..encode_reply(xid, &mounted).into() }
            }
            // DUMP reveals no mounts.
            2 => encode_reply(xid, &void_result(args).map(|_| List::<dirpath<'static>>::default())).into(),
            3 | 4 => encode_reply(xid, &Ok(Void)).into(),
            // EXPORT reveals no export paths, which are secret.
            5 => {
                let root = export_node { ex_dir: dirpath(Opaque::borrowed(b"/")), ex_groups: List::default() };
                encode_reply(xid, &void_result(args).map(|_| List(vec![root]))).into()
            }
            _ => encode_reply(xid, &Err::<Void, _>(CallRejection::NoProcedure)).into(),
        }
    }

    async fn mount(&self, mut args: Decoder<'_>) -> Result<mountres3<'static>, CallRejection> {
        let path = args.opaque(mount::MNTPATHLEN)?;
        args.end()?;
        let Ok(path) = std::str::from_utf8(path) else { return Ok(mountres3::Err(mountstat3::MNT3ERR_INVAL)) };
        let Some(path) = path.strip_prefix('/') else { return Ok(mountres3::Err(mountstat3::MNT3ERR_NOENT)) };
        Ok(match self.fs.lookup_by_path(path.trim_matches('/').trim()).await {
            Ok(handle) => mountres3::Ok(mountres3_ok {
                fhandle: fhandle3(self.encode_handle(&handle).data),
                // AUTH_NONE and AUTH_SYS.
                auth_flavors: vec![0, 1],
            }),
            Err(_) => mountres3::Err(mountstat3::MNT3ERR_NOENT),
        })
    }

    fn portmap_program(&self, call: Call<'_>) -> Reply {
        let mut args = call.args;
        match call.procedure {
            0 => encode_reply(call.xid, &void_result(args)).into(),
            3 => {
                let port = args.fixed::<portmap::mapping>().and(args.end()).map(|()| u32::from(self.port));
                encode_reply(call.xid, &port.map_err(CallRejection::from)).into()
            }
            _ => encode_reply(call.xid, &Err::<Void, _>(CallRejection::NoProcedure)).into(),
        }
    }
}

impl<F: ExportedFileSystem> Admission for Service<F> {
    /// Only a WRITE needs much memory, and only holders of a handle may write.
    async fn admit(&self, prefix: &[u8]) -> Option<OwnedSemaphorePermit> {
        let call = Call::decode(prefix).ok()?;
        let is_write = (call.program, call.version, call.procedure) == (nfs3::PROGRAM, nfs3::VERSION, WRITE);
        if !is_write || !self.names_own_handle(call.args) {
            return None;
        }
        Some(self.take_memory().await)
    }
}

pub(super) const WRITE: u32 = nfs3::NFS_PROGRAM::NFSPROC3_WRITE as u32;

fn void_result(args: Decoder<'_>) -> Result<Void, CallRejection> {
    args.end().map(|()| Void).map_err(|_| CallRejection::BadArguments)
}

impl From<Vec<u8>> for Reply {
    fn from(bytes: Vec<u8>) -> Self {
        Reply { bytes, permit: None, is_authorized: false }
    }
}
