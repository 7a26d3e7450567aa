//! One execution of an op as passed to a kernel: inputs, outputs and status.
//!
//! The context belongs to TensorFlow and is valid on any thread until the done callback has run.

use std::ffi::c_int;

use corro_collectives::engine::handle::Output;
use corro_collectives::{Dtype, EngineError};

use super::api;
use super::api::{Code, Context, Status, Tensor};

/// Status with which an op fails.
pub struct Failure {
    pub code: Code,
    pub text: String,
}

impl Failure {
    pub fn argument(text: impl Into<String>) -> Failure {
        Failure { code: Code::InvalidArgument, text: text.into() }
    }

    pub fn from_engine_error(error: &EngineError) -> Failure {
        let text = error.to_string();
        let code = if error.is_invalid_argument() {
            Code::InvalidArgument
        } else if is_negotiation_error(&text) {
            Code::FailedPrecondition
        } else {
            Code::Unknown
        };
        Failure { code, text }
    }
}

/// Whether the error was found during negotiation: the operation never started, and the engine continues. Same list as
/// in `errors.py`.
fn is_negotiation_error(text: &str) -> bool {
    let prefixes = [
        "Mismatched ",
        "Process-set rank zero tried to ",
        "Horovod has not been initialized",
        "Reduction op type not supported",
        "No Adasum operation enabled",
        "Reducescatter currently only supports",
    ];
    prefixes.iter().any(|prefix| text.starts_with(prefix)) || text.contains(" is not supported with Join")
}

/// A counted reference to a TensorFlow tensor, which keeps its buffer alive.
pub struct TensorRef(*mut Tensor);

// SAFETY: a TF_Tensor is a counted reference to a buffer and not bound to a thread.
unsafe impl Send for TensorRef {}

impl TensorRef {
    pub fn shape(&self) -> Vec<u64> {
        // SAFETY: the reference is valid until drop; `axis` is below the number of dimensions.
        unsafe { (0..(api().n_dimensions)(self.0)).map(|axis| (api().dimension)(self.0, axis) as u64).collect() }
    }

    pub fn dtype(&self) -> Option<Dtype> {
        // SAFETY: the reference is valid until drop.
        dtype_from_number(unsafe { (api().tensor_type)(self.0) })
    }

    pub fn n_bytes(&self) -> usize {
        // SAFETY: the reference is valid until drop.
        unsafe { (api().n_bytes)(self.0) }
    }

    /// Address of the tensor's memory, on its device. Null for an empty tensor without memory.
    pub fn address(&self) -> u64 {
        // SAFETY: the reference is valid until drop.
        unsafe { (api().bytes)(self.0) }.expose_provenance() as u64
    }

    /// Never null; an empty tensor may have no memory.
    pub fn bytes(&self) -> *mut u8 {
        // SAFETY: the reference is valid until drop.
        let bytes: *mut u8 = unsafe { (api().bytes)(self.0) }.cast();
        if bytes.is_null() { std::ptr::dangling_mut() } else { bytes }
    }
}

impl Drop for TensorRef {
    fn drop(&mut self) {
        // SAFETY: this value owns the reference and releases it only here.
        unsafe { (api().delete_tensor)(self.0) }
    }
}

/// One execution of an op.
pub struct OpContext(*mut Context);

// SAFETY: TensorFlow keeps the context of an asynchronous kernel until its done callback has run, and allows any thread
// to use it.
unsafe impl Send for OpContext {}

impl OpContext {
    /// Wraps a context.
    ///
    /// # Safety
    ///
    /// The context must come from TensorFlow, and its done callback must not run before the last use of this value.
    pub unsafe fn new(context: *mut Context) -> OpContext {
        OpContext(context)
    }

    /// Sets an output to a copy of `bytes`.
    pub fn set_output(&self, index: usize, dtype: Dtype, shape: &[u64], bytes: &[u8]) -> Result<(), Failure> {
        let output = self.allocate(index, dtype, shape, bytes.len())?;
        // SAFETY: TensorFlow allocated `n_bytes` for the output; the length is limited to it, and the buffers do not
        // overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), output.bytes(), bytes.len().min(output.n_bytes())) };
        Ok(())
    }

    /// Sets an int32 output to the number of rows received from each member.
    pub fn set_received(&self, index: usize, output: &Output) -> Result<(), Failure> {
        let bytes: Vec<u8> = output.received.iter().flat_map(|rows| (*rows as i32).to_ne_bytes()).collect();
        self.set_output(index, Dtype::I32, &[output.received.len() as u64], &bytes)
    }

    pub fn allocate(&self, index: usize, dtype: Dtype, shape: &[u64], n_bytes: usize) -> Result<TensorRef, Failure> {
        let (status, shape) = (Status::new(api()), shape.iter().map(|length| *length as i64).collect::<Vec<_>>());
        let (index, dtype, n_dimensions) = (index as c_int, dtype_number(dtype), shape.len() as c_int);
        // SAFETY: the context is valid until the done callback runs; `shape` has `n_dimensions` values.
        let tensor = unsafe {
            (api().allocate_output)(self.0, index, dtype, shape.as_ptr(), n_dimensions, n_bytes, status.raw())
        };
        status.check().map_err(|text| Failure { code: Code::Unknown, text })?;
        Ok(TensorRef(tensor))
    }

    pub fn inputs(&self) -> Result<Vec<TensorRef>, Failure> {
        let status = Status::new(api());
        let input = |index| {
            let mut tensor = std::ptr::null_mut();
            // SAFETY: the context is valid until the done callback runs; TensorFlow passes the reference to us.
            unsafe { (api().input)(self.0, index, &mut tensor, status.raw()) };
            status.check().map(|()| TensorRef(tensor)).map_err(Failure::argument)
        };
        // SAFETY: the context is valid until the done callback runs.
        (0..unsafe { (api().n_inputs)(self.0) }).map(input).collect()
    }

    pub fn fail(&self, failure: &Failure) {
        let status = Status::new(api());
        status.set(failure.code, &failure.text);
        // SAFETY: the context is valid until the done callback runs.
        unsafe { (api().fail)(self.0, status.raw()) };
    }
}

/// Dtype numbers from TensorFlow's `tf_datatype.h`.
const DTYPE_NUMBERS: [(Dtype, c_int); 11] = [
    (Dtype::F32, 1),
    (Dtype::F64, 2),
    (Dtype::I32, 3),
    (Dtype::U8, 4),
    (Dtype::I16, 5),
    (Dtype::I8, 6),
    (Dtype::I64, 9),
    (Dtype::Bool, 10),
    (Dtype::Bf16, 14),
    (Dtype::U16, 17),
    (Dtype::F16, 19),
];

fn dtype_number(dtype: Dtype) -> c_int {
    DTYPE_NUMBERS.iter().find(|(ours, _)| *ours == dtype).expect("every dtype has a number").1
}

fn dtype_from_number(number: c_int) -> Option<Dtype> {
    DTYPE_NUMBERS.iter().find(|(_, theirs)| *theirs == number).map(|(dtype, _)| *dtype)
}
