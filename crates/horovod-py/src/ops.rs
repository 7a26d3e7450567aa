//! Operations on tensors: submit, poll, synchronize. Handles are numbers from one counter for the life of the process;
//! this module has the table of handles that are not synchronized yet.
//!
//! The engine gets addresses. The Python objects that own the memory are held here and released with the GIL when the
//! operation has ended. The engine's threads never touch a Python object, so a fork cannot interrupt them in it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use corro_collectives::coordinator::{Kind, Request, SHUTDOWN_MESSAGE, SetId, SubmitError};
use corro_collectives::device::context::DeviceEvent;
use corro_collectives::device::driver::{DriverError, Stream};
use corro_collectives::engine::handle::Outcome;
use corro_collectives::engine::ops::Handle;
use corro_collectives::engine::submission::{OutputBuffer, TensorBuffers};
use corro_collectives::{Dtype, Engine, EngineError, ReduceOp};
use pyo3::prelude::*;

use crate::outputs::Output;
use crate::{devices, errors, gil, running};

/// All submitted handles that are not synchronized.
static HANDLES: Mutex<Option<HandleTable>> = Mutex::new(None);

/// All ranks have joined in a TensorFlow op. Atomic instead of behind the lock, since a thread without the GIL sets it.
static GRAPH_JOIN_PENDING: AtomicBool = AtomicBool::new(false);

#[derive(Default)]
struct HandleTable {
    by_handle: HashMap<u64, HandleEntry>,
    last_handle: u64,
    /// Number of unnamed operations per process set since the engine started. Handle numbers would not do: a rank that
    /// is not in every set, or whose submission failed, would disagree with the others about names from then on.
    unnamed_counts: HashMap<u32, u64>,
    /// Operations whose wait was interrupted. They may not have ended.
    abandoned: Vec<HandleEntry>,
}

struct HandleEntry {
    handle: Handle,
    engine: Weak<Engine>,
    /// Per tensor: its dtype, if the engine allocates the result.
    engine_allocated: Vec<Option<Dtype>>,
    /// For tensors in the memory of a device: the stream of the submission.
    stream: Option<Stream>,
    /// Owner of the tensors' memory.
    #[expect(dead_code, reason = "dropped when the operation has ended")]
    keep: Option<Py<PyAny>>,
}

impl HandleEntry {
    fn is_done(&self) -> bool {
        self.handle.is_done() || self.engine.strong_count() == 0
    }

    /// True if neither the engine nor a device uses the tensors any more.
    fn is_settled(&self) -> bool {
        self.is_done() && self.handle.is_settled()
    }

    /// Makes later work in the streams of submission and of the caller wait for results in the memory of a device. An error if the engine
    /// has failed before such a result was there.
    fn wait_in_streams(&self, outcome: &Outcome, stream: Option<u64>) -> Result<(), EngineError> {
        let Some(done) = outcome.outputs.iter().find_map(|output| Some(output.device.as_ref()?.done.clone())) else {
            return Ok(());
        };
        let ended = self.engine.upgrade().and_then(|engine| engine.ended());
        let failed = |error: DriverError| EngineError::Failed(error.to_string().into());
        if let Some(text) = ended
            && !done.is_complete().map_err(failed)?
        {
            return Err(EngineError::Failed(text));
        }
        let user = stream.map(Stream).or(self.stream);
        for output in &outcome.outputs {
            if let (Some(output), Some(user)) = (&output.device, user) {
                output.memory.iter().for_each(|memory| memory.hand_over(user));
            }
        }
        // Memory of the submission's stream may be used again in its order, so that one waits, too.
        for stream in user.into_iter().chain(self.stream.filter(|submitted| Some(*submitted) != user)) {
            devices::wait_once(stream, &done).map_err(failed)?;
        }
        Ok(())
    }

    fn outcome(&self) -> Result<Outcome, EngineError> {
        if self.handle.is_done() { self.handle.outcome() } else { Err(EngineError::Failed(SHUTDOWN_MESSAGE.into())) }
    }
}

/// A tensor as passed from Python: addresses of input and output, dtype, shape.
type Tensor = (usize, usize, i64, Vec<u64>);

#[pyfunction]
#[pyo3(
    signature = (
        kind, prefix, name, tensors, op=1, prescale=1.0, postscale=1.0, root=0, splits=None, process_set=0, grouped=false,
        device=-1, keep=None, stream=None, names=None
    ),
    // For documentation tools, which would print a negative default as an ellipsis.
    text_signature = "(kind, prefix, name, tensors, op=1, prescale=1.0, postscale=1.0, root=0, splits=None, process_set=0, \
                      grouped=False, device=-1, keep=None, stream=None, names=None)"
)]
#[expect(clippy::too_many_arguments, reason = "Python gives them by keyword")]
pub fn submit(
    py: Python<'_>,
    kind: i64,
    prefix: &str,
    name: Option<&str>,
    tensors: Vec<Tensor>,
    op: i64,
    prescale: f64,
    postscale: f64,
    root: i64,
    splits: Option<Vec<i64>>,
    process_set: i64,
    grouped: bool,
    device: i32,
    keep: Option<Py<PyAny>>,
    stream: Option<u64>,
    names: Option<Vec<String>>,
) -> PyResult<u64> {
    if names.as_ref().is_some_and(|names| names.len() != tensors.len()) {
        return Err(errors::value_error("names: give one for each tensor"));
    }
    let engine = running::running().ok_or_else(|| errors::internal_error(py, errors::NOT_INITIALIZED))?;
    let kind = parse_kind(kind).ok_or_else(|| errors::value_error(format!("{kind} is not a kind of operation")))?;
    let op = u8::try_from(op).ok().and_then(ReduceOp::from_number);
    let op = op.ok_or_else(|| errors::internal_error(py, "Reduction op type not supported."))?;
    let kind = if kind == Kind::Allreduce && op == ReduceOp::Adasum { Kind::Adasum } else { kind };
    let refused = |error: SubmitError| errors::from_engine_error(py, &error.into());
    let set = u32::try_from(process_set).map_err(|_| refused(SubmitError::UnknownSet { kind }))?;
    let root = u32::try_from(root).map_err(|_| errors::value_error(invalid_root(root)))?;
    let splits =
        parse_splits(splits).map_err(|error| error.unwrap_or_else(|| refused(SubmitError::WrongNumberOfSplits)))?;
    let template = Request {
        set: SetId(set),
        kind,
        name: "".into(),
        dtype: Dtype::U8,
        shape: Vec::new(),
        root,
        device,
        prescale,
        postscale,
        op,
        splits,
    };
    let ready = stream.map(|stream| devices::record(device, Stream(stream))).transpose();
    let ready = ready.map_err(errors::value_error)?;
    let ready = ready.zip(stream.map(Stream));
    let names = Names { prefix, name, of_tensors: names.as_deref() };
    let submitted = submit_locked(&engine, names, tensors, grouped, keep, &template, ready)?;
    submitted.map_err(|error| errors::from_engine_error(py, &error))
}

/// Names of a submission, as given by Python.
#[derive(Clone, Copy)]
struct Names<'a> {
    prefix: &'a str,
    name: Option<&'a str>,
    /// Instead of the name: one for each tensor.
    of_tensors: Option<&'a [String]>,
}

/// Submits under the lock; runs no Python code. `ready`: for tensors in the memory of a device, an event after the work that computes them,
/// and the stream in which it was recorded.
fn submit_locked(
    engine: &Arc<Engine>,
    names: Names<'_>,
    tensors: Vec<Tensor>,
    grouped: bool,
    keep: Option<Py<PyAny>>,
    template: &Request,
    ready: Option<(Arc<DeviceEvent>, Stream)>,
) -> PyResult<Result<u64, EngineError>> {
    // Dropped after the lock is released.
    let mut finished = Vec::new();
    let mut table = lock();
    let table = table.get_or_insert_default();
    if GRAPH_JOIN_PENDING.swap(false, Ordering::SeqCst) {
        table.unnamed_counts.remove(&SetId::GLOBAL.0);
    }
    let number = table.last_handle + 1;
    let n_unnamed =
        table.unnamed_counts.get(&template.set.0).copied().unwrap_or_default() + u64::from(names.name.is_none());
    let wire_name = wire_name(names.prefix, names.name, n_unnamed);
    let n_tensors = tensors.len();
    let (mut requests, mut places, mut engine_allocated) = (Vec::new(), Vec::new(), Vec::new());
    for (index, tensor) in tensors.into_iter().enumerate() {
        let name = match names.of_tensors {
            Some(of_tensors) => self::wire_name(names.prefix, Some(&of_tensors[index]), 0),
            None if grouped => format!("{wire_name}_{}of{n_tensors}", index + 1),
            None => wire_name.clone(),
        };
        let (request, place) = parse_tensor(tensor, Request { name: name.into(), ..template.clone() })?;
        engine_allocated.push(matches!(place.output, OutputBuffer::Allocate).then_some(request.dtype));
        requests.push(request);
        places.push(place);
    }
    // SAFETY: the Python package passes valid addresses, and `keep` owns their memory until the operation has ended.
    let (submitted, stream) = match ready {
        None => (unsafe { engine.submit(requests, places, grouped, None) }, None),
        // SAFETY: as above, with addresses of the device; `keep` is held until the device has executed the operation, or the stream in which
        // the memory is used again waits for it.
        Some((ready, stream)) => (unsafe { engine.submit_on_device(requests, places, grouped, ready) }, Some(stream)),
    };
    let handle = match submitted {
        Ok(handle) => handle,
        Err(error) => return Ok(Err(error)),
    };
    table.last_handle = number;
    table.unnamed_counts.insert(template.set.0, n_unnamed);
    let engine = Arc::downgrade(engine);
    table.by_handle.insert(number, HandleEntry { handle, engine, engine_allocated, stream, keep });
    table.drain_finished(&mut finished);
    Ok(Ok(number))
}

#[pyfunction]
pub fn poll(handle: i64) -> PyResult<bool> {
    let table = lock();
    let entry = u64::try_from(handle).ok().and_then(|number| table.as_ref()?.by_handle.get(&number));
    let entry =
        entry.ok_or_else(|| errors::value_error(format!("Handle {handle} was not created or has been cleared.")))?;
    Ok(entry.is_settled())
}

#[pyfunction]
#[pyo3(signature = (handle, stream=None))]
pub fn synchronize(py: Python<'_>, handle: i64, stream: Option<u64>) -> PyResult<Option<Vec<Option<Output>>>> {
    let found = u64::try_from(handle).ok().and_then(|number| lock().as_mut()?.by_handle.remove(&number));
    let Some(entry) = found else { return Ok(None) };
    if !entry.is_done()
        && let Some(engine) = entry.engine.upgrade()
        && let Err(interrupted) = gil::wait_released(py, |slice| engine.wait_for(&entry.handle, slice))
    {
        lock().get_or_insert_default().abandoned.push(entry);
        return Err(interrupted);
    }
    let outcome = entry.outcome().and_then(|outcome| entry.wait_in_streams(&outcome, stream).map(|()| outcome));
    let outcome = outcome.map_err(|error| errors::from_engine_error(py, &error))?;
    let outputs = outcome.outputs.into_iter().zip(&entry.engine_allocated);
    Ok(Some(
        outputs.map(|(output, engine_allocated)| engine_allocated.map(|dtype| Output::new(output, dtype))).collect(),
    ))
}

#[pyfunction]
pub fn join(py: Python<'_>) -> PyResult<u32> {
    let engine = running::running().ok_or_else(|| errors::internal_error(py, errors::NOT_INITIALIZED))?;
    let outcome = running::wait(py, &engine, engine.begin_join()).map_err(|error| error.into_pyerr(py))?;
    reset_unnamed_count(SetId::GLOBAL);
    Ok(outcome.last_joined.unwrap_or_default())
}

#[pyfunction]
#[pyo3(signature = (process_set=0))]
pub fn barrier(py: Python<'_>, process_set: i64) -> PyResult<()> {
    let engine = running::running().ok_or_else(|| errors::internal_error(py, errors::NOT_INITIALIZED))?;
    let kind = Kind::Barrier;
    let set = u32::try_from(process_set)
        .map_err(|_| errors::from_engine_error(py, &SubmitError::UnknownSet { kind }.into()))?;
    running::wait(py, &engine, engine.begin_barrier(SetId(set))).map(drop).map_err(|error| error.into_pyerr(py))
}

/// Restarts the numbering of unnamed operations of a set. Called when all members are synchronized, since their counts
/// may differ.
pub fn reset_unnamed_count(set: SetId) {
    if let Some(table) = lock().as_mut() {
        table.unnamed_counts.remove(&set.0);
    }
}

/// As `reset_unnamed_count` for the global set, effective from the next submission. Does not need the GIL.
pub fn on_graph_join() {
    GRAPH_JOIN_PENDING.store(true, Ordering::SeqCst);
}

/// Restarts the numbering for all sets.
pub fn on_started() {
    if let Some(table) = lock().as_mut() {
        table.unnamed_counts.clear();
    }
}

/// Called in a forked child. The objects are leaked: the parent's engine may use their memory.
pub fn after_fork() {
    let mut table = lock();
    let last_handle = table.as_ref().map_or(0, |table| table.last_handle);
    std::mem::forget(table.replace(HandleTable { last_handle, ..HandleTable::default() }));
}

impl HandleTable {
    /// Moves finished entries to `finished`, which is dropped after the lock is released, since that may run Python
    /// code.
    fn drain_finished(&mut self, finished: &mut Vec<HandleEntry>) {
        if !self.abandoned.is_empty() {
            finished.extend(self.abandoned.extract_if(.., |entry| entry.is_settled()));
        }
    }
}

fn lock() -> MutexGuard<'static, Option<HandleTable>> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn parse_kind(number: i64) -> Option<Kind> {
    let kind = u8::try_from(number).ok().and_then(Kind::from_number)?;
    let known = [Kind::Allreduce, Kind::Allgather, Kind::Broadcast, Kind::Alltoall, Kind::Reducescatter];
    known.contains(&kind).then_some(kind)
}

fn wire_name(prefix: &str, name: Option<&str>, number: u64) -> String {
    match (prefix, name) {
        ("", Some(name)) => name.to_owned(),
        (prefix, Some(name)) => format!("{prefix}.{name}"),
        (prefix, None) => format!("{prefix}.noname.{number}"),
    }
}

fn invalid_root(root: i64) -> String {
    format!("broadcast received invalid root rank {root} for provided process set")
}

/// Parses the splits of an alltoall. `Err(None)` for an empty list.
fn parse_splits(splits: Option<Vec<i64>>) -> Result<Vec<u64>, Option<PyErr>> {
    let Some(splits) = splits else { return Ok(Vec::new()) };
    if splits.is_empty() {
        return Err(None);
    }
    let split = |split: &i64| {
        u64::try_from(*split)
            .map_err(|_| Some(errors::value_error(format!("splits must not be negative, but one is {split}"))))
    };
    splits.iter().map(split).collect()
}

fn parse_tensor(tensor: Tensor, template: Request) -> PyResult<(Request, TensorBuffers)> {
    let (input, output, number, shape) = tensor;
    let dtype = u8::try_from(number).ok().and_then(Dtype::from_number);
    let dtype = dtype.ok_or_else(|| errors::value_error(format!("{number} is not a dtype")))?;
    let n_bytes = shape.iter().try_fold(dtype.size() as u64, |product, dimension| product.checked_mul(*dimension));
    let n_bytes = n_bytes.and_then(|n_bytes| isize::try_from(n_bytes).ok());
    let n_bytes = n_bytes.ok_or_else(|| errors::value_error(format!("a tensor of shape {shape:?} is too large")))?;
    if input == 0 && n_bytes > 0 {
        return Err(errors::value_error("a nonempty tensor has a null address"));
    }
    // Empty tensors may have a null address.
    let input = if input == 0 { std::ptr::dangling() } else { std::ptr::with_exposed_provenance(input) };
    let output = match template.kind {
        Kind::Allreduce | Kind::Adasum | Kind::Broadcast if output != 0 => {
            OutputBuffer::SameSize(std::ptr::with_exposed_provenance_mut(output))
        }
        _ => OutputBuffer::Allocate,
    };
    let place = TensorBuffers { input, n_bytes: n_bytes as usize, output };
    Ok((Request { dtype, shape, ..template }, place))
}
