//! Functions of NCCL, NVIDIA's library of collectives between GPUs, and a communicator of it that does not block. Found at run time: PyTorch
//! and TensorFlow bring it.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::device::cuda::library::{LibraryError, functions, open};
use crate::device::driver::{DevicePtr, DriverError, Stream};
use crate::device::error::DeviceError;
use crate::dtype::Dtype;
use crate::op::Combine;
use crate::transport::peer_table::PeerTable;

type NcclResult = c_int;
type Comm = *mut c_void;

const SUCCESS: NcclResult = 0;
const IN_PROGRESS: NcclResult = 7;

/// `ncclUniqueId`, with which the members of a communicator find each other.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId(pub [u8; 128]);

/// The first fields of `ncclConfig_t`, those of version 2.14; later versions take the size into account.
#[repr(C)]
pub struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
}

functions! {
    /// NCCL, 2.14 or later.
    Nccl of "libnccl.so.2" {
        get_version = "ncclGetVersion" (*mut c_int) -> NcclResult;
        error_string = "ncclGetErrorString" (NcclResult) -> *const c_char;
        unique_id = "ncclGetUniqueId" (*mut UniqueId) -> NcclResult;
        init = "ncclCommInitRankConfig" (*mut Comm, c_int, UniqueId, c_int, *mut Config) -> NcclResult;
        abort = "ncclCommAbort" (Comm) -> NcclResult;
        async_error = "ncclCommGetAsyncError" (Comm, *mut NcclResult) -> NcclResult;
        all_reduce = "ncclAllReduce" (*const c_void, *mut c_void, usize, c_int, c_int, Comm, *mut c_void) -> NcclResult;
        reduce = "ncclReduce" (*const c_void, *mut c_void, usize, c_int, c_int, c_int, Comm, *mut c_void) -> NcclResult;
        broadcast = "ncclBroadcast" (*const c_void, *mut c_void, usize, c_int, c_int, Comm, *mut c_void) -> NcclResult;
        send = "ncclSend" (*const c_void, usize, c_int, c_int, Comm, *mut c_void) -> NcclResult;
        recv = "ncclRecv" (*mut c_void, usize, c_int, c_int, Comm, *mut c_void) -> NcclResult;
        group_start = "ncclGroupStart" () -> NcclResult;
        group_end = "ncclGroupEnd" () -> NcclResult;
    }
}

impl Nccl {
    /// The library, opened at the first call.
    pub fn get() -> Option<&'static Nccl> {
        static NCCL: OnceLock<Result<Nccl, LibraryError>> = OnceLock::new();
        let opened = NCCL.get_or_init(|| Nccl::from_library(open("NCCL (libnccl.so.2)", &["libnccl.so.2"])?));
        opened.as_ref().ok()
    }

    /// Version as a number, 22803 for 2.28.3; 0 if there is none.
    pub fn version() -> u32 {
        let mut version = 0;
        // SAFETY: the address of a local.
        let known = Nccl::get().is_some_and(|nccl| unsafe { (nccl.get_version.call)(&raw mut version) } == SUCCESS);
        if known { version as u32 } else { 0 }
    }

    /// A new id for a communicator.
    pub fn new_id(&self) -> Result<UniqueId, DriverError> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: the address of a local.
        self.check(self.unique_id.name, unsafe { (self.unique_id.call)(&raw mut id) })?;
        Ok(id)
    }

    fn check(&self, call: &'static str, code: NcclResult) -> Result<(), DriverError> {
        if code == SUCCESS || code == IN_PROGRESS {
            return Ok(());
        }
        // SAFETY: the library returns a static string for every code.
        let text = unsafe { CStr::from_ptr((self.error_string.call)(code)) }.to_string_lossy().into_owned();
        Err(DriverError { call, code, text: format!("{text}; NCCL_DEBUG=WARN shows more") })
    }
}

/// One member's communicator. Its operations are submitted to a stream, all within groups: a call outside may be in progress when it returns.
pub struct NcclComm {
    nccl: &'static Nccl,
    comm: Comm,
    /// Checked while a call is in progress.
    peer_table: Arc<PeerTable>,
}

// SAFETY: used by one thread at a time.
unsafe impl Send for NcclComm {}

/// Pause between two looks at a call in progress.
const POLL_INTERVAL: Duration = Duration::from_micros(20);

/// Part of a vector, as an operation takes it.
#[derive(Clone, Copy)]
pub struct Span {
    pub at: DevicePtr,
    pub count: usize,
}

impl NcclComm {
    /// Connects to the other members.
    pub fn connect(
        nccl: &'static Nccl,
        id: UniqueId,
        n: usize,
        me: usize,
        peer_table: Arc<PeerTable>,
    ) -> Result<NcclComm, DeviceError> {
        let mut config = Config { size: size_of::<Config>(), magic: 0xcafe_beef, version: 21_400, blocking: 0 };
        let mut comm = std::ptr::null_mut();
        // SAFETY: addresses of locals; the library copies the configuration.
        let code = unsafe { (nccl.init.call)(&raw mut comm, n as c_int, id, me as c_int, &raw mut config) };
        nccl.check(nccl.init.name, code)?;
        let comm = NcclComm { nccl, comm, peer_table };
        comm.wait(nccl.init.name)?;
        Ok(comm)
    }

    /// Waits until the calls so far are submitted to their streams.
    fn wait(&self, call: &'static str) -> Result<(), DeviceError> {
        loop {
            let mut state = SUCCESS;
            // SAFETY: a communicator that was not aborted, and the address of a local.
            let code = unsafe { (self.nccl.async_error.call)(self.comm, &raw mut state) };
            self.nccl.check(self.nccl.async_error.name, code)?;
            self.nccl.check(call, state)?;
            if state != IN_PROGRESS {
                return Ok(());
            }
            self.peer_table.check_deaths()?;
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Submits the operations of `submit` as one. Returns when they are in their streams.
    pub fn group(&self, submit: impl FnOnce() -> Result<(), DriverError>) -> Result<(), DeviceError> {
        // SAFETY: no arguments.
        self.nccl.check(self.nccl.group_start.name, unsafe { (self.nccl.group_start.call)() })?;
        let submitted = submit();
        // SAFETY: as above; every start has its end.
        let ended = self.nccl.check(self.nccl.group_end.name, unsafe { (self.nccl.group_end.call)() });
        submitted.and(ended)?;
        self.wait(self.nccl.group_end.name)
    }

    /// Allreduce of elements.
    pub fn all_reduce(
        &self,
        from: Span,
        to: DevicePtr,
        (dtype, op): (c_int, c_int),
        stream: Stream,
    ) -> Result<(), DriverError> {
        let (from_at, to) = (address(from.at), address(to).cast_mut());
        // SAFETY: the addresses are valid until the work is complete; see the transport.
        let code =
            unsafe { (self.nccl.all_reduce.call)(from_at, to, from.count, dtype, op, self.comm, handle(stream)) };
        self.nccl.check(self.nccl.all_reduce.name, code)
    }

    /// Reduction of elements to one member.
    pub fn reduce(
        &self,
        from: Span,
        to: DevicePtr,
        (dtype, op): (c_int, c_int),
        root: usize,
        stream: Stream,
    ) -> Result<(), DriverError> {
        let (from_at, to, root) = (address(from.at), address(to).cast_mut(), root as c_int);
        // SAFETY: as in `all_reduce`; `to` is used by the root only.
        let code =
            unsafe { (self.nccl.reduce.call)(from_at, to, from.count, dtype, op, root, self.comm, handle(stream)) };
        self.nccl.check(self.nccl.reduce.name, code)
    }

    /// Copies bytes of the root to all members. `from` is used by the root only.
    pub fn broadcast(&self, from: DevicePtr, to: Span, root: usize, stream: Stream) -> Result<(), DriverError> {
        let (from, to_at) = (address(from), address(to.at).cast_mut());
        // SAFETY: as in `all_reduce`.
        let code = unsafe {
            (self.nccl.broadcast.call)(from, to_at, to.count, BYTES, root as c_int, self.comm, handle(stream))
        };
        self.nccl.check(self.nccl.broadcast.name, code)
    }

    /// Sends bytes to a member.
    pub fn send(&self, from: Span, to: usize, stream: Stream) -> Result<(), DriverError> {
        // SAFETY: as in `all_reduce`.
        let code = unsafe {
            (self.nccl.send.call)(address(from.at), from.count, BYTES, to as c_int, self.comm, handle(stream))
        };
        self.nccl.check(self.nccl.send.name, code)
    }

    /// Receives bytes from a member.
    pub fn recv(&self, to: Span, from: usize, stream: Stream) -> Result<(), DriverError> {
        let at = address(to.at).cast_mut();
        // SAFETY: as in `all_reduce`.
        let code = unsafe { (self.nccl.recv.call)(at, to.count, BYTES, from as c_int, self.comm, handle(stream)) };
        self.nccl.check(self.nccl.recv.name, code)
    }
}

impl Drop for NcclComm {
    /// Ends operations in progress and frees the communicator.
    fn drop(&mut self) {
        // SAFETY: a communicator that was not aborted before.
        unsafe { (self.nccl.abort.call)(self.comm) };
    }
}

/// `ncclUint8`.
const BYTES: c_int = 1;

/// NCCL's numbers of an element type and an operation, if it has both. Pure.
pub fn reduction(dtype: Dtype, combine: Combine) -> Option<(c_int, c_int)> {
    let dtype = match dtype {
        Dtype::I8 => 0,
        Dtype::U8 => 1,
        Dtype::I32 => 2,
        Dtype::I64 => 4,
        Dtype::F16 => 6,
        Dtype::F32 => 7,
        Dtype::F64 => 8,
        Dtype::Bf16 => 9,
        Dtype::U16 | Dtype::I16 | Dtype::Bool => return None,
    };
    let op = match combine {
        Combine::Sum => 0,
        Combine::Product => 1,
        Combine::Max => 2,
        Combine::Min => 3,
    };
    Some((dtype, op))
}

fn address(at: DevicePtr) -> *const c_void {
    std::ptr::with_exposed_provenance(at as usize)
}

fn handle(stream: Stream) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(stream.0 as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_header() {
        assert_eq!(reduction(Dtype::F32, Combine::Sum), Some((7, 0)));
        assert_eq!(reduction(Dtype::Bf16, Combine::Min), Some((9, 3)));
        assert_eq!(reduction(Dtype::Bool, Combine::Max), None);
    }

    #[test]
    fn the_configuration_has_the_size_of_its_version() {
        assert_eq!((size_of::<Config>(), std::mem::offset_of!(Config, blocking)), (24, 16));
    }
}
