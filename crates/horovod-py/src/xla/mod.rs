//! Operations in functions that XLA compiles, for JAX: handlers of XLA's foreign function interface, which get addresses and, on a GPU, the
//! stream. `python/horovod/_keras/backends/jax_ffi.py` registers them. `ffi` has the structs of the interface.
//!
//! A call submits all its requests and returns when they are executed, on a GPU when their work is submitted: the stream waits for the
//! results, no thread does. Blocks a thread of XLA's until the other ranks have submitted the same requests. Takes no GIL.

mod ffi;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use corro_collectives::coordinator::{Kind, Request, SetId};
use corro_collectives::device::context::DeviceEvent;
use corro_collectives::device::cuda;
use corro_collectives::device::driver::Stream;
use corro_collectives::engine::ops::Handle;
use corro_collectives::engine::submission::{OutputBuffer, TensorBuffers};
use corro_collectives::{Dtype, Engine, EngineError, ReduceOp};
use pyo3::prelude::*;

use self::ffi::{Buffer, CallFrame, Code, RawError};
use crate::{devices, errors, tensorflow};

/// Longest wait between two checks of a request.
const WAIT_SLICE: Duration = Duration::from_millis(100);

/// Version of the interface: major in the upper half, minor in the lower.
static VERSION: AtomicU64 = AtomicU64::new(0);

/// Addresses of the handlers for the CPU and for CUDA, as functions of this version of the interface.
#[pyfunction]
pub fn xla_handlers(major: u32, minor: u32) -> PyResult<(usize, usize)> {
    if major != 0 || minor == 0 {
        return Err(errors::value_error(format!("version {major}.{minor} of XLA's interface is not supported")));
    }
    VERSION.store(u64::from(major) << 32 | u64::from(minor), Ordering::Relaxed);
    let handler = |handler: unsafe extern "C" fn(*mut CallFrame) -> *mut RawError| handler as *const () as usize;
    Ok((handler(on_cpu), handler(on_gpu)))
}

unsafe extern "C" fn on_cpu(frame: *mut CallFrame) -> *mut RawError {
    // SAFETY: XLA passes a frame that is valid during the call.
    unsafe { handle(&*frame, false) }
}

unsafe extern "C" fn on_gpu(frame: *mut CallFrame) -> *mut RawError {
    // SAFETY: as in `on_cpu`.
    unsafe { handle(&*frame, true) }
}

/// Error of a call.
struct Failure {
    code: Code,
    text: String,
}

impl Failure {
    fn argument(text: impl Into<String>) -> Failure {
        Failure { code: Code::InvalidArgument, text: text.into() }
    }

    /// Elastic training looks for the exception's name in the text.
    fn internal(error: &impl ToString) -> Failure {
        Failure { code: Code::Internal, text: format!("HorovodInternalError: {}", error.to_string()) }
    }

    fn from_engine_error(error: &EngineError) -> Failure {
        if error.is_invalid_argument() { Failure::argument(error.to_string()) } else { Failure::internal(error) }
    }
}

/// Answers a call of XLA; null without an error.
///
/// # Safety
/// Only XLA may call it, with the frame of a call whose buffers are valid until it returns, on a GPU in the order of the call's stream.
unsafe fn handle(frame: &CallFrame, on_gpu: bool) -> *mut RawError {
    // SAFETY: the frame of a call in progress.
    unsafe {
        if let Some(mut metadata) = frame.metadata() {
            let metadata = metadata.as_mut();
            let version = VERSION.load(Ordering::Relaxed);
            (metadata.version.major, metadata.version.minor) = ((version >> 32) as i32, version as i32);
            metadata.traits = 0;
            return std::ptr::null_mut();
        }
        if frame.stage != ffi::EXECUTE {
            return std::ptr::null_mut();
        }
        let stream = match on_gpu.then(|| frame.stream()).transpose() {
            Ok(stream) => stream.map(Stream),
            Err(error) => return error,
        };
        match execute(frame, stream) {
            Ok(()) => std::ptr::null_mut(),
            Err(Failure { code, text }) => frame.error(code, &text),
        }
    }
}

/// Executes the requests of a call.
///
/// # Safety
/// As [`handle`].
unsafe fn execute(frame: &CallFrame, stream: Option<Stream>) -> Result<(), Failure> {
    // SAFETY: the frame of a call in progress.
    let (inputs, outputs, text) =
        unsafe { (frame.arguments.buffers(), frame.results.buffers(), frame.attributes.string("requests")) };
    let (Some(inputs), Some(outputs)) = (inputs, outputs) else { return Err(Failure::argument("expected buffers")) };
    let call = text.and_then(Call::parse).ok_or_else(|| Failure::argument("invalid requests"))?;
    let n_tensors: usize = call.requests.iter().map(|(n_tensors, _)| n_tensors).sum();
    if inputs.len() != n_tensors || outputs.len() != n_tensors {
        return Err(Failure::argument(format!("the requests have {n_tensors} tensors, and the call {}", inputs.len())));
    }
    let engine = tensorflow::current_engine()
        .ok_or_else(|| Failure { code: Code::FailedPrecondition, text: errors::NOT_INITIALIZED.to_owned() })?;
    let gpu = match stream {
        None => None,
        Some(stream) => Some((ordinal_of(&inputs)?, stream)),
    };
    let (mut handles, mut first, mut result) = (Vec::new(), 0, Ok(()));
    for (n_tensors, name) in &call.requests {
        let range = first..first + n_tensors;
        first += n_tensors;
        // SAFETY: the buffers are valid until the call returns, which waits for all requests.
        match unsafe { call.submit(&engine, name, &inputs[range.clone()], &outputs[range], gpu) } {
            Ok(handle) => handles.push(handle),
            Err(failure) => {
                result = Err(failure);
                break;
            }
        }
    }
    for handle in handles {
        while !engine.wait_for(&handle, WAIT_SLICE) {}
        result = result.and(finish(&engine, &handle, stream));
    }
    result
}

/// The result of a request that is done; makes the stream wait for it.
fn finish(engine: &Engine, handle: &Handle, stream: Option<Stream>) -> Result<(), Failure> {
    let outcome = handle.outcome().map_err(|error| Failure::from_engine_error(&error))?;
    let Some(stream) = stream else { return Ok(()) };
    for device in outcome.outputs.iter().filter_map(|output| output.device.as_ref()) {
        if let Some(text) = engine.ended()
            && !device.done.is_complete().map_err(|error| Failure::internal(&error))?
        {
            return Err(Failure::internal(&text));
        }
        devices::wait_once(stream, &device.done).map_err(|error| Failure::internal(&error))?;
    }
    Ok(())
}

fn ordinal_of(inputs: &[&Buffer]) -> Result<i32, Failure> {
    let first = inputs.iter().find(|input| !input.data.is_null());
    first.map_or(Ok(0), |input| {
        cuda::device_of(input.data.expose_provenance() as u64).map_err(|error| Failure::internal(&error))
    })
}

/// The attribute of a call: a line `kind op prescale postscale root set` with the bits of the factors, then a line for each request: number
/// of tensors, a blank, the name.
#[derive(Debug, PartialEq)]
struct Call {
    kind: Kind,
    op: ReduceOp,
    prescale: f64,
    postscale: f64,
    root: u32,
    set: SetId,
    requests: Vec<(usize, String)>,
}

impl Call {
    fn parse(text: &str) -> Option<Call> {
        let mut lines = text.lines();
        let numbers: Option<Vec<u64>> = lines.next()?.split(' ').map(|number| number.parse().ok()).collect();
        let [kind, op, prescale, postscale, root, set] = numbers?.try_into().ok()?;
        let kind = Kind::from_number(u8::try_from(kind).ok()?)?;
        let op = ReduceOp::from_number(u8::try_from(op).ok()?)?;
        let kind = if kind == Kind::Allreduce && op == ReduceOp::Adasum { Kind::Adasum } else { kind };
        let request = |line: &str| {
            let (n_tensors, name) = line.split_once(' ')?;
            Some((n_tensors.parse().ok()?, name.to_owned()))
        };
        matches!(kind, Kind::Allreduce | Kind::Adasum | Kind::Broadcast).then_some(())?;
        Some(Call {
            kind,
            op,
            prescale: f64::from_bits(prescale),
            postscale: f64::from_bits(postscale),
            root: u32::try_from(root).ok()?,
            set: SetId(u32::try_from(set).ok()?),
            requests: lines.map(request).collect::<Option<_>>()?,
        })
    }

    /// Submits a request; several tensors are a group.
    ///
    /// # Safety
    /// The buffers must be valid until the request is done, on a GPU in the order of its stream.
    unsafe fn submit(
        &self,
        engine: &Arc<Engine>,
        name: &str,
        inputs: &[&Buffer],
        outputs: &[&Buffer],
        gpu: Option<(i32, Stream)>,
    ) -> Result<Handle, Failure> {
        let (mut requests, mut places, n_tensors) = (Vec::new(), Vec::new(), inputs.len());
        for (index, (input, output)) in inputs.iter().zip(outputs).enumerate() {
            let dtype = dtype_from_number(input.dtype)
                .ok_or_else(|| Failure::argument(format!("{name}: tensors of this type are not supported")))?;
            let shape = input.shape();
            if output.dtype != input.dtype || output.shape() != shape {
                return Err(Failure::argument(format!("{name}: the result is not like the tensor")));
            }
            let n_bytes = shape.iter().product::<u64>() as usize * dtype.size();
            let address =
                |buffer: &Buffer| if n_bytes == 0 { std::ptr::dangling_mut() } else { buffer.data.cast::<u8>() };
            places.push(TensorBuffers {
                input: address(input),
                n_bytes,
                output: OutputBuffer::SameSize(address(output)),
            });
            let name = if n_tensors > 1 { format!("{name}_{}of{n_tensors}", index + 1) } else { name.to_owned() };
            requests.push(Request {
                set: self.set,
                kind: self.kind,
                name: name.into(),
                dtype,
                shape,
                root: self.root,
                device: gpu.map_or(-1, |(ordinal, _)| ordinal),
                prescale: self.prescale,
                postscale: self.postscale,
                op: self.op,
                splits: Vec::new(),
            });
        }
        let grouped = n_tensors > 1;
        let handle = match gpu {
            // SAFETY: by the function's contract. XLA gives a result memory of its own, or that of the argument.
            None => unsafe { engine.submit(requests, places, grouped, None) },
            Some((ordinal, stream)) => {
                let ready: Arc<DeviceEvent> =
                    devices::record(ordinal, stream).map_err(|error| Failure::internal(&error))?;
                // SAFETY: as above.
                unsafe { engine.submit_on_device(requests, places, grouped, ready) }
            }
        };
        handle.map_err(|error| Failure::from_engine_error(&error))
    }
}

/// `XLA_FFI_DataType`.
fn dtype_from_number(number: i32) -> Option<Dtype> {
    Some(match number {
        1 => Dtype::Bool,
        2 => Dtype::I8,
        3 => Dtype::I16,
        4 => Dtype::I32,
        5 => Dtype::I64,
        6 => Dtype::U8,
        7 => Dtype::U16,
        10 => Dtype::F16,
        11 => Dtype::F32,
        12 => Dtype::F64,
        16 => Dtype::Bf16,
        _ => return None,
    })
}
