//! Asynchronous kernels. TensorFlow creates one for each node of a graph, executes it any number of times, and deletes
//! it. An execution submits all requests of the node to the engine; `completion` does the rest. Never blocks.

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;

use corro_collectives::coordinator::{Kind, Request, SetId};
use corro_collectives::engine::submission::{OutputBuffer, TensorBuffers};
use corro_collectives::{Dtype, ReduceOp};

use super::api::{Code, Construction, Context, Done, RawStatus, ShapeContext, Status};
use super::completion::{self, PendingOp, SubmittedRequest};
use super::context::{Failure, OpContext, TensorRef};
use super::done_callback::DoneCallback;
use super::{api, current_engine, gpu};
use crate::errors::NOT_INITIALIZED;

/// Attributes of one graph node.
struct Kernel {
    /// Tensors are in the memory of a GPU; splits and received splits are not.
    on_gpu: bool,
    kind: Kind,
    grouped: bool,
    /// Number of tensors and name of each request.
    requests: Vec<(usize, String)>,
    op: ReduceOp,
    prescale: f64,
    postscale: f64,
    root: u32,
    set: SetId,
}

/// Creates the kernel of a node on the CPU from its attributes; null after reporting an error to TensorFlow.
///
/// # Safety
/// Only TensorFlow may call it, with a valid construction context.
pub unsafe extern "C" fn create(construction: *mut Construction) -> *mut c_void {
    create_on(construction, false)
}

/// As `create`, for a node on a GPU.
///
/// # Safety
/// As `create`.
pub unsafe extern "C" fn create_on_gpu(construction: *mut Construction) -> *mut c_void {
    create_on(construction, true)
}

fn create_on(construction: *mut Construction, on_gpu: bool) -> *mut c_void {
    match parse_attributes(construction, on_gpu) {
        Ok(kernel) => Box::into_raw(Box::new(kernel)).cast(),
        Err(text) => {
            let status = Status::new(api());
            status.set(Code::InvalidArgument, &text);
            // SAFETY: TensorFlow keeps the construction context valid during this call.
            unsafe { (api().fail_construction)(construction, status.raw()) };
            std::ptr::null_mut()
        }
    }
}

/// Deletes a kernel.
///
/// # Safety
/// Only TensorFlow may call it, once, with the result of `create` or `create_join`.
pub unsafe extern "C" fn delete(kernel: *mut c_void) {
    if !kernel.is_null() {
        // SAFETY: the pointer comes from `create`, and TensorFlow deletes it once.
        drop(unsafe { Box::from_raw(kernel.cast::<Kernel>()) });
    }
}

/// Submits and returns without blocking TensorFlow's thread. `completion` runs the callback.
///
/// # Safety
/// Only TensorFlow may call it, with the result of `create`, a valid context and its done callback.
pub unsafe extern "C" fn compute_async(kernel: *mut c_void, context: *mut Context, done: *mut Done) {
    // SAFETY: the pointer comes from `create`; TensorFlow deletes it after all executions have ended.
    let kernel = unsafe { &*kernel.cast::<Kernel>() };
    // SAFETY: `done` is the argument of this call, and the context is valid until the callback has run.
    let (done, context) = unsafe { (DoneCallback::take(done), OpContext::new(context)) };
    submit_and_enqueue(kernel.kind, context, done, |pending| kernel.submit_all(pending));
}

/// A join has no attributes, so its kernel has no state.
///
/// # Safety
/// Only TensorFlow may call it.
pub unsafe extern "C" fn create_join(_construction: *mut Construction) -> *mut c_void {
    std::ptr::null_mut()
}

/// As `compute_async`, for a join.
///
/// # Safety
/// Only TensorFlow may call it, with a valid context and its done callback.
pub unsafe extern "C" fn compute_join_async(_kernel: *mut c_void, context: *mut Context, done: *mut Done) {
    // SAFETY: as in `compute_async`: `done` is the argument of this call, and the context is valid until it has run.
    let (done, context) = unsafe { (DoneCallback::take(done), OpContext::new(context)) };
    submit_and_enqueue(Kind::Join, context, done, |pending| {
        let handle = pending.engine.begin_join_with_event(completion::event().clone());
        pending.submitted.push(SubmittedRequest { handle, first: 0, dtypes: vec![Dtype::I32] });
        Ok(())
    });
}

/// Submits the requests of one execution and hands it to `completion`.
fn submit_and_enqueue(
    kind: Kind,
    context: OpContext,
    done: DoneCallback,
    submit: impl FnOnce(&mut PendingOp) -> Result<(), Failure>,
) {
    let Some(engine) = current_engine() else {
        context.fail(&Failure { code: Code::FailedPrecondition, text: NOT_INITIALIZED.into() });
        return done.run();
    };
    let mut pending = PendingOp::new(kind, engine, context, done);
    pending.failure = completion::ensure_thread().and_then(|()| submit(&mut pending)).err();
    completion::enqueue(pending);
}

/// Shape function of ops whose outputs have the shapes of their inputs.
///
/// # Safety
/// Only TensorFlow may call it, with a valid context and status.
pub unsafe extern "C" fn same_shapes(context: *mut ShapeContext, status: *mut RawStatus) {
    // SAFETY: TensorFlow keeps context and status valid during this call; the shape handle is freed at the end.
    unsafe {
        let shape = (api().new_shape)();
        for index in 0..(api().n_shapes)(context) as c_int {
            (api().input_shape)(context, index, shape, status);
            (api().set_output_shape)(context, index, shape, status);
        }
        (api().delete_shape)(shape);
    }
}

/// Shape function of ops whose output shapes are only known at run time.
///
/// # Safety
/// Only TensorFlow may call it, with a valid context and status.
pub unsafe extern "C" fn unknown_shapes(context: *mut ShapeContext, status: *mut RawStatus) {
    // SAFETY: TensorFlow keeps context and status valid during this call.
    unsafe { (api().set_unknown_shapes)(context, status) }
}

impl Kernel {
    /// Submits all requests of the node. If one is rejected, the op fails only after the earlier ones have ended, since
    /// the engine uses their memory.
    fn submit_all(&self, pending: &mut PendingOp) -> Result<(), Failure> {
        let mut inputs = pending.context.inputs()?;
        let splits = if self.kind == Kind::Alltoall { parse_splits(inputs.pop())? } else { Vec::new() };
        pending.inputs = inputs;
        let gpu = if self.on_gpu { Some(gpu::ordinal_of(&pending.inputs)?) } else { None };
        let mut first = 0;
        for (n_tensors, name) in &self.requests {
            let submitted = self.submit(pending, name, first..first + n_tensors, &splits, gpu)?;
            pending.submitted.push(submitted);
            first += n_tensors;
        }
        Ok(())
    }

    fn submit(
        &self,
        pending: &mut PendingOp,
        name: &str,
        range: Range<usize>,
        splits: &[u64],
        gpu: Option<i32>,
    ) -> Result<SubmittedRequest, Failure> {
        let (first, n_tensors) = (range.start, range.len());
        let (mut requests, mut places, mut dtypes) = (Vec::new(), Vec::new(), Vec::new());
        for (index, input) in pending.inputs[range].iter().enumerate() {
            let dtype = input.dtype().ok_or_else(|| Failure::argument("Tensors of this type are not supported."))?;
            let name = if self.grouped { format!("{name}_{}of{n_tensors}", index + 1) } else { name.to_owned() };
            let shape = input.shape();
            let output = if completion::is_in_place(self.kind) {
                let output = pending.context.allocate(first + index, dtype, &shape, input.n_bytes())?;
                let target = OutputBuffer::SameSize(output.bytes());
                pending.outputs.push(output);
                target
            } else {
                OutputBuffer::Allocate
            };
            places.push(TensorBuffers { input: input.bytes(), n_bytes: input.n_bytes(), output });
            requests.push(Request {
                set: self.set,
                kind: self.kind,
                name: name.into(),
                dtype,
                shape,
                root: self.root,
                device: gpu.unwrap_or(-1),
                prescale: self.prescale,
                postscale: self.postscale,
                op: self.op,
                splits: splits.to_vec(),
            });
            dtypes.push(dtype);
        }
        let event = Some(completion::event().clone());
        // SAFETY: `pending` holds inputs and outputs until the handle is done. TensorFlow neither writes inputs nor
        // reads outputs before the done callback has run.
        let handle = match gpu {
            None => unsafe { pending.engine.submit_with_event(requests, places, self.grouped, None, event) },
            Some(ordinal) => {
                let ready = gpu::ready(ordinal)?;
                // SAFETY: as above, with addresses of the GPU. TensorFlow uses their memory again in the order of its stream, which waits
                // for the result before the done callback runs.
                unsafe { pending.engine.submit_on_device_with_event(requests, places, self.grouped, ready, event) }
            }
        };
        Ok(SubmittedRequest { handle: handle.map_err(|error| Failure::from_engine_error(&error))?, first, dtypes })
    }
}

/// Parses the splits of an alltoall. An empty tensor of two dimensions means that none were given.
fn parse_splits(tensor: Option<TensorRef>) -> Result<Vec<u64>, Failure> {
    let tensor = tensor.ok_or_else(|| Failure::argument("alltoall expects a 1D splits tensor"))?;
    match tensor.shape()[..] {
        [0, 0] => return Ok(Vec::new()),
        [0] => return Err(Failure::argument("Number of entries in splits does not equal number of workers.")),
        [_] => {}
        _ => return Err(Failure::argument("alltoall expects a 1D splits tensor")),
    }
    // SAFETY: the op definition declares int32, and the reference keeps the buffer alive.
    let numbers = unsafe { std::slice::from_raw_parts(tensor.bytes().cast::<i32>(), tensor.n_bytes() / 4) };
    let split = |split: &i32| {
        u64::try_from(*split).map_err(|_| Failure::argument(format!("splits must not be negative, but one is {split}")))
    };
    numbers.iter().map(split).collect()
}

fn parse_attributes(construction: *mut Construction, on_gpu: bool) -> Result<Kernel, String> {
    let kind = u8::try_from(int(construction, c"kind")?).ok().and_then(Kind::from_number).ok_or("invalid kind")?;
    let op = u8::try_from(int(construction, c"reduce_op")?).ok().and_then(ReduceOp::from_number);
    let op = op.ok_or("Reduction op type not supported.")?;
    let root = int(construction, c"root_rank")?;
    let set = int(construction, c"process_set_id")?;
    Ok(Kernel {
        on_gpu,
        kind: if kind == Kind::Allreduce && op == ReduceOp::Adasum { Kind::Adasum } else { kind },
        grouped: boolean(construction, c"grouped")?,
        requests: parse_requests(&string(construction, c"requests")?).ok_or("invalid requests")?,
        op,
        prescale: f64::from_bits(int(construction, c"prescale_bits")? as u64),
        postscale: f64::from_bits(int(construction, c"postscale_bits")? as u64),
        root: u32::try_from(root)
            .map_err(|_| format!("broadcast received invalid root rank {root} for provided process set"))?,
        set: SetId(u32::try_from(set).map_err(|_| format!("{set} is not a process set"))?),
    })
}

fn parse_requests(lines: &str) -> Option<Vec<(usize, String)>> {
    let request = |line: &str| {
        let (n_tensors, name) = line.split_once(' ')?;
        Some((n_tensors.parse().ok()?, name.to_owned()))
    };
    lines.lines().map(request).collect()
}

fn int(construction: *mut Construction, name: &CStr) -> Result<i64, String> {
    let (status, mut value) = (Status::new(api()), 0);
    // SAFETY: the construction context is valid during `create`; TensorFlow writes the value before the call returns.
    unsafe { (api().attribute_int)(construction, name.as_ptr(), &mut value, status.raw()) };
    status.check().map(|()| value)
}

fn boolean(construction: *mut Construction, name: &CStr) -> Result<bool, String> {
    let (status, mut value) = (Status::new(api()), 0);
    // SAFETY: as in `int`.
    unsafe { (api().attribute_bool)(construction, name.as_ptr(), &mut value, status.raw()) };
    status.check().map(|()| value != 0)
}

fn string(construction: *mut Construction, name: &CStr) -> Result<String, String> {
    let (status, mut n_items, mut n_bytes) = (Status::new(api()), 0, 0);
    // SAFETY: as in `int`; TensorFlow writes at most `bytes.len()` bytes.
    unsafe {
        (api().attribute_size)(construction, name.as_ptr(), &mut n_items, &mut n_bytes, status.raw());
        status.check()?;
        let mut bytes = vec![0u8; n_bytes.max(0) as usize];
        (api().attribute_string)(construction, name.as_ptr(), bytes.as_mut_ptr().cast(), bytes.len(), status.raw());
        status.check()?;
        String::from_utf8(bytes).map_err(|error| error.to_string())
    }
}
