//! What TensorFlow calls: a kernel is made for a node of a graph, computes any number of times, and is deleted. Computing asks the engine for
//! all requests of the node, and waits for them.

use std::ffi::{CStr, c_int, c_void};

use corro_collectives::coordinator::{Kind, Request, SetId};
use corro_collectives::engine::calls::Handle;
use corro_collectives::engine::entry::{Place, Target};
use corro_collectives::engine::handle::{Outcome, Output};
use corro_collectives::{Dtype, Engine, EngineError, ReduceOp};

use super::api::{Code, Construction, Context, RawStatus, ShapeContext, Status, Tensor};
use super::{api, current};
use crate::errors::NOT_INITIALIZED;

/// One node of a graph.
struct Kernel {
    kind: Kind,
    grouped: bool,
    /// Of each: how many tensors, and the name.
    requests: Vec<(usize, String)>,
    op: ReduceOp,
    prescale: f64,
    postscale: f64,
    root: u32,
    set: SetId,
}

/// What a failure is to TensorFlow.
struct Failure {
    code: Code,
    text: String,
}

impl Failure {
    fn argument(text: impl Into<String>) -> Failure {
        Failure { code: Code::InvalidArgument, text: text.into() }
    }

    fn of_engine(error: &EngineError) -> Failure {
        let text = error.to_string();
        let code = if error.is_argument() {
            Code::InvalidArgument
        } else if is_disagreement(&text) {
            Code::FailedPrecondition
        } else {
            Code::Unknown
        };
        Failure { code, text }
    }
}

/// Found while the ranks agreed: the operation never began, and the engine goes on. As in `errors.py`.
fn is_disagreement(text: &str) -> bool {
    let beginnings = [
        "Mismatched ",
        "Process-set rank zero tried to ",
        "Horovod has not been initialized",
        "Reduction op type not supported",
        "No Adasum operation enabled",
        "Reducescatter currently only supports",
    ];
    beginnings.iter().any(|beginning| text.starts_with(beginning)) || text.contains(" is not supported with Join")
}

/// A tensor of TensorFlow's that is held.
struct Held(*mut Tensor);

impl Held {
    fn shape(&self) -> Vec<u64> {
        // SAFETY: the tensor is held; dimensions are asked for by numbers it has.
        unsafe { (0..(api().n_dimensions)(self.0)).map(|axis| (api().dimension)(self.0, axis) as u64).collect() }
    }

    fn dtype(&self) -> Option<Dtype> {
        // SAFETY: the tensor is held.
        dtype_of(unsafe { (api().tensor_type)(self.0) })
    }

    fn n_bytes(&self) -> usize {
        // SAFETY: the tensor is held.
        unsafe { (api().n_bytes)(self.0) }
    }

    /// Never null: an empty tensor may have no memory.
    fn bytes(&self) -> *mut u8 {
        // SAFETY: the tensor is held.
        let bytes: *mut u8 = unsafe { (api().bytes)(self.0) }.cast();
        if bytes.is_null() { std::ptr::dangling_mut() } else { bytes }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: it was handed over to us, and is let go here only.
        unsafe { (api().delete_tensor)(self.0) }
    }
}

/// One computation that TensorFlow waits for.
struct Call(*mut Context);

impl Call {
    /// An output that the engine made room for.
    fn give(&self, index: usize, dtype: Dtype, shape: &[u64], bytes: &[u8]) -> Result<(), Failure> {
        let output = self.allocate(index, dtype, shape, bytes.len())?;
        // SAFETY: TensorFlow made room for as many bytes as the shape has, which are those of the engine's result.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), output.bytes(), bytes.len().min(output.n_bytes())) };
        Ok(())
    }

    fn give_received(&self, index: usize, output: &Output) -> Result<(), Failure> {
        let bytes: Vec<u8> = output.received.iter().flat_map(|rows| (*rows as i32).to_ne_bytes()).collect();
        self.give(index, Dtype::I32, &[output.received.len() as u64], &bytes)
    }

    fn allocate(&self, index: usize, dtype: Dtype, shape: &[u64], n_bytes: usize) -> Result<Held, Failure> {
        let (status, shape) = (Status::new(api()), shape.iter().map(|length| *length as i64).collect::<Vec<_>>());
        let (index, dtype, n_dimensions) = (index as c_int, number_of(dtype), shape.len() as c_int);
        // SAFETY: the context is good while the kernel computes, and the shape has as many numbers as we say.
        let tensor = unsafe {
            (api().allocate_output)(self.0, index, dtype, shape.as_ptr(), n_dimensions, n_bytes, status.raw())
        };
        status.check().map_err(|text| Failure { code: Code::Unknown, text })?;
        Ok(Held(tensor))
    }

    fn inputs(&self) -> Result<Vec<Held>, Failure> {
        let status = Status::new(api());
        let input = |index| {
            let mut tensor = std::ptr::null_mut();
            // SAFETY: the context is good while the kernel computes; the tensor is handed over to us.
            unsafe { (api().input)(self.0, index, &mut tensor, status.raw()) };
            status.check().map(|()| Held(tensor)).map_err(Failure::argument)
        };
        // SAFETY: the context is good while the kernel computes.
        (0..unsafe { (api().n_inputs)(self.0) }).map(input).collect()
    }

    fn fail(&self, failure: &Failure) {
        let status = Status::new(api());
        status.set(failure.code, &failure.text);
        // SAFETY: the context is good while the kernel computes.
        unsafe { (api().fail)(self.0, status.raw()) };
    }
}

pub unsafe extern "C" fn create(construction: *mut Construction) -> *mut c_void {
    match read(construction) {
        Ok(kernel) => Box::into_raw(Box::new(kernel)).cast(),
        Err(text) => {
            let status = Status::new(api());
            status.set(Code::InvalidArgument, &text);
            // SAFETY: the construction is TensorFlow's, good during this call.
            unsafe { (api().fail_construction)(construction, status.raw()) };
            std::ptr::null_mut()
        }
    }
}

pub unsafe extern "C" fn delete(kernel: *mut c_void) {
    if !kernel.is_null() {
        // SAFETY: made by `create`, and TensorFlow deletes it once.
        drop(unsafe { Box::from_raw(kernel.cast::<Kernel>()) });
    }
}

pub unsafe extern "C" fn compute(kernel: *mut c_void, context: *mut Context) {
    // SAFETY: made by `create`; TensorFlow deletes it after all computations have ended.
    let kernel = unsafe { &*kernel.cast::<Kernel>() };
    let call = Call(context);
    if let Err(failure) = kernel.perform(&call) {
        call.fail(&failure);
    }
}

pub unsafe extern "C" fn same_shapes(context: *mut ShapeContext, status: *mut RawStatus) {
    // SAFETY: context and status are TensorFlow's, good during this call; the handle is freed at the end.
    unsafe {
        let shape = (api().new_shape)();
        for index in 0..(api().n_shapes)(context) as c_int {
            (api().input_shape)(context, index, shape, status);
            (api().set_output_shape)(context, index, shape, status);
        }
        (api().delete_shape)(shape);
    }
}

pub unsafe extern "C" fn unknown_shapes(context: *mut ShapeContext, status: *mut RawStatus) {
    // SAFETY: context and status are TensorFlow's, good during this call.
    unsafe { (api().set_unknown_shapes)(context, status) }
}

/// Tensors of one request: their types, and what they are to the engine.
struct Asked {
    handle: Handle,
    first: usize,
    dtypes: Vec<Dtype>,
}

impl Kernel {
    /// Asks for all, then waits for all. What has been asked for is waited for even when something fails: its memory is in use.
    fn perform(&self, call: &Call) -> Result<(), Failure> {
        let not_initialized = || Failure { code: Code::FailedPrecondition, text: NOT_INITIALIZED.into() };
        let engine = current().ok_or_else(not_initialized)?;
        let mut inputs = call.inputs()?;
        let splits = if self.kind == Kind::Alltoall { splits(inputs.pop())? } else { Vec::new() };
        let (mut outputs, mut asked, mut result) = (Vec::new(), Vec::new(), Ok(()));
        let mut first = 0;
        for (n_tensors, name) in &self.requests {
            match self.submit(&engine, call, name, first, &inputs[first..first + n_tensors], &splits, &mut outputs) {
                Ok(submitted) => asked.push(submitted),
                Err(failure) => {
                    result = Err(failure);
                    break;
                }
            }
            first += n_tensors;
        }
        for Asked { handle, first, dtypes } in asked {
            let outcome = engine.synchronize(&handle).map_err(|error| Failure::of_engine(&error));
            let given = outcome.and_then(|outcome| self.give(call, first, &dtypes, &outcome));
            result = result.and(given);
        }
        result
    }

    #[expect(clippy::too_many_arguments, reason = "one place calls it, with its own variables")]
    fn submit(
        &self,
        engine: &Engine,
        call: &Call,
        name: &str,
        first: usize,
        inputs: &[Held],
        splits: &[u64],
        outputs: &mut Vec<Held>,
    ) -> Result<Asked, Failure> {
        let (mut requests, mut places, mut dtypes) = (Vec::new(), Vec::new(), Vec::new());
        for (index, input) in inputs.iter().enumerate() {
            let dtype = input.dtype().ok_or_else(|| Failure::argument("Tensors of this type are not supported."))?;
            let name = if self.grouped { format!("{name}_{}of{}", index + 1, inputs.len()) } else { name.to_owned() };
            let shape = input.shape();
            let output = if is_in_place(self.kind) {
                let output = call.allocate(first + index, dtype, &shape, input.n_bytes())?;
                let target = Target::At(output.bytes());
                outputs.push(output);
                target
            } else {
                Target::Fresh
            };
            places.push(Place { input: input.bytes(), n_bytes: input.n_bytes(), output });
            requests.push(Request {
                set: self.set,
                kind: self.kind,
                name: name.into(),
                dtype,
                shape,
                root: self.root,
                device: -1,
                prescale: self.prescale,
                postscale: self.postscale,
                op: self.op,
                splits: splits.to_vec(),
            });
            dtypes.push(dtype);
        }
        // SAFETY: `perform` holds inputs and outputs until the handle is done, and TensorFlow lets nobody write to inputs or read outputs
        // while the kernel computes.
        let handle = unsafe { engine.submit(requests, places, self.grouped, None) };
        Ok(Asked { handle: handle.map_err(|error| Failure::of_engine(&error))?, first, dtypes })
    }

    /// What is not in its place already.
    fn give(&self, call: &Call, first: usize, dtypes: &[Dtype], outcome: &Outcome) -> Result<(), Failure> {
        if is_in_place(self.kind) {
            return Ok(());
        }
        for (index, (output, dtype)) in outcome.outputs.iter().zip(dtypes).enumerate() {
            call.give(first + index, *dtype, &output.shape, &output.bytes)?;
        }
        match (self.kind, outcome.outputs.first()) {
            (Kind::Alltoall, Some(output)) => call.give_received(first + dtypes.len(), output),
            _ => Ok(()),
        }
    }
}

/// Of an alltoall. Those that were not given are an empty table, with two dimensions.
fn splits(tensor: Option<Held>) -> Result<Vec<u64>, Failure> {
    let tensor = tensor.ok_or_else(|| Failure::argument("alltoall expects a 1D splits tensor"))?;
    match tensor.shape()[..] {
        [0, 0] => return Ok(Vec::new()),
        [0] => return Err(Failure::argument("Number of entries in splits does not equal number of workers.")),
        [_] => {}
        _ => return Err(Failure::argument("alltoall expects a 1D splits tensor")),
    }
    // SAFETY: the op's definition says int32, and the tensor is held.
    let numbers = unsafe { std::slice::from_raw_parts(tensor.bytes().cast::<i32>(), tensor.n_bytes() / 4) };
    let split = |split: &i32| {
        u64::try_from(*split).map_err(|_| Failure::argument(format!("splits must not be negative, but one is {split}")))
    };
    numbers.iter().map(split).collect()
}

fn read(construction: *mut Construction) -> Result<Kernel, String> {
    let kind = u8::try_from(int(construction, c"kind")?).ok().and_then(Kind::from_number).ok_or("no such kind")?;
    let op = u8::try_from(int(construction, c"reduce_op")?).ok().and_then(ReduceOp::from_number);
    let op = op.ok_or("Reduction op type not supported.")?;
    let root = int(construction, c"root_rank")?;
    let set = int(construction, c"process_set_id")?;
    Ok(Kernel {
        kind: if kind == Kind::Allreduce && op == ReduceOp::Adasum { Kind::Adasum } else { kind },
        grouped: boolean(construction, c"grouped")?,
        requests: requests(&string(construction, c"requests")?).ok_or("no such requests")?,
        op,
        prescale: f64::from_bits(int(construction, c"prescale_bits")? as u64),
        postscale: f64::from_bits(int(construction, c"postscale_bits")? as u64),
        root: u32::try_from(root)
            .map_err(|_| format!("broadcast received invalid root rank {root} for provided process set"))?,
        set: SetId(u32::try_from(set).map_err(|_| format!("{set} is no process set"))?),
    })
}

fn requests(lines: &str) -> Option<Vec<(usize, String)>> {
    let request = |line: &str| {
        let (n_tensors, name) = line.split_once(' ')?;
        Some((n_tensors.parse().ok()?, name.to_owned()))
    };
    lines.lines().map(request).collect()
}

fn int(construction: *mut Construction, name: &CStr) -> Result<i64, String> {
    let (status, mut value) = (Status::new(api()), 0);
    // SAFETY: the construction is good during `create`; the value is written before the call returns.
    unsafe { (api().attribute_int)(construction, name.as_ptr(), &mut value, status.raw()) };
    status.check().map(|()| value)
}

fn boolean(construction: *mut Construction, name: &CStr) -> Result<bool, String> {
    let (status, mut value) = (Status::new(api()), 0);
    // SAFETY: as for `int`.
    unsafe { (api().attribute_bool)(construction, name.as_ptr(), &mut value, status.raw()) };
    status.check().map(|()| value != 0)
}

fn string(construction: *mut Construction, name: &CStr) -> Result<String, String> {
    let (status, mut n_items, mut n_bytes) = (Status::new(api()), 0, 0);
    // SAFETY: as for `int`; TensorFlow writes no more bytes than we say there is room for.
    unsafe {
        (api().attribute_size)(construction, name.as_ptr(), &mut n_items, &mut n_bytes, status.raw());
        status.check()?;
        let mut bytes = vec![0u8; n_bytes.max(0) as usize];
        (api().attribute_string)(construction, name.as_ptr(), bytes.as_mut_ptr().cast(), bytes.len(), status.raw());
        status.check()?;
        String::from_utf8(bytes).map_err(|error| error.to_string())
    }
}

fn is_in_place(kind: Kind) -> bool {
    matches!(kind, Kind::Allreduce | Kind::Adasum | Kind::Broadcast)
}

/// TensorFlow's numbers, as in its `tf_datatype.h`.
const NUMBERS: [(Dtype, c_int); 11] = [
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

fn number_of(dtype: Dtype) -> c_int {
    NUMBERS.iter().find(|(ours, _)| *ours == dtype).expect("every dtype has a number").1
}

fn dtype_of(number: c_int) -> Option<Dtype> {
    NUMBERS.iter().find(|(_, theirs)| *theirs == number).map(|(dtype, _)| *dtype)
}
