//! Pending operations and the thread that waits for them in place of TensorFlow's threads. It drives the engine until
//! an operation has ended, sets the outputs and runs the done callback.
//!
//! TensorFlow's executor has as many threads as the machine has cores. If kernels blocked them, ranks whose threads
//! wait for different operations would deadlock.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use corro_collectives::coordinator::Kind;
use corro_collectives::engine::handle::{CompletionEvent, Outcome};
use corro_collectives::engine::ops::Handle;
use corro_collectives::{Dtype, Engine};

use super::api::Code;
use super::context::{Failure, OpContext, TensorRef};
use super::done_callback::DoneCallback;
use super::gpu;
use crate::ops;

/// Longest wait between two checks of the operations.
const WAIT_SLICE: Duration = Duration::from_millis(100);
/// The same while operations of an engine that was shut down are pending beside those of its successor.
const SHARED_WAIT_SLICE: Duration = Duration::from_millis(1);
/// Time given to an engine that has panicked to fail an operation.
const FAIL_SLICE: Duration = Duration::from_millis(1);

static PENDING: Mutex<Vec<PendingOp>> = Mutex::new(Vec::new());

/// One execution of an op, from submission to its done callback.
pub struct PendingOp {
    kind: Kind,
    pub engine: Arc<Engine>,
    pub context: OpContext,
    done: DoneCallback,
    /// References to tensors whose memory the engine reads and writes.
    pub inputs: Vec<TensorRef>,
    pub outputs: Vec<TensorRef>,
    pub submitted: Vec<SubmittedRequest>,
    /// Error that fails the op regardless of the requests' results.
    pub failure: Option<Failure>,
}

/// A request of an op: its handle, and the index of its first tensor.
pub struct SubmittedRequest {
    pub handle: Handle,
    pub first: usize,
    pub dtypes: Vec<Dtype>,
}

impl PendingOp {
    pub fn new(kind: Kind, engine: Arc<Engine>, context: OpContext, done: DoneCallback) -> PendingOp {
        let (inputs, outputs, submitted) = (Vec::new(), Vec::new(), Vec::new());
        PendingOp { kind, engine, context, done, inputs, outputs, submitted, failure: None }
    }

    fn is_done(&self) -> bool {
        self.submitted.iter().all(|request| request.handle.is_done())
    }

    fn finish(self) {
        let PendingOp { kind, engine, context, done, inputs, outputs, submitted, failure } = self;
        let mut result = failure.map_or(Ok(()), Err);
        for SubmittedRequest { handle, first, dtypes } in submitted {
            let outcome = handle.outcome().map_err(|error| Failure::from_engine_error(&error));
            let set = outcome.and_then(|outcome| {
                gpu::wait_in_streams(&outcome, &engine)?;
                set_outputs(&context, kind, first, &dtypes, &outcome)
            });
            result = result.and(set);
        }
        if let Err(failure) = result {
            context.fail(&failure);
        }
        // Released before the callback, which may start ops that reuse the memory.
        drop((inputs, outputs, engine));
        done.run();
    }
}

/// Signalled at every completion. One for the process; the thread serves all engines.
pub fn event() -> &'static Arc<CompletionEvent> {
    static EVENT: OnceLock<Arc<CompletionEvent>> = OnceLock::new();
    EVENT.get_or_init(Arc::default)
}

/// Starts the thread on first use.
pub fn ensure_thread() -> Result<(), Failure> {
    static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
    let start = || {
        let thread = std::thread::Builder::new().name("corro-tf-done".into()).spawn(run);
        thread.map(drop).map_err(|error| format!("cannot start a thread: {error}"))
    };
    STARTED.get_or_init(start).clone().map_err(|text| Failure { code: Code::Unknown, text })
}

/// Hands an operation to the thread. One that has already ended, or was never submitted, is finished at once.
pub fn enqueue(pending: PendingOp) {
    if pending.is_done() {
        return pending.finish();
    }
    let mut queue = lock();
    let was_idle = queue.is_empty();
    queue.push(pending);
    // A completion from here on changes the event's count. One just before it was not seen by the thread, hence the
    // notification.
    if was_idle || queue.last().is_some_and(PendingOp::is_done) {
        event().notify();
    }
}

fn run() {
    loop {
        let seen = event().count();
        let ended: Vec<PendingOp> = lock().extract_if(.., |pending| pending.is_done()).collect();
        if !ended.is_empty() {
            ended.into_iter().for_each(PendingOp::finish);
            continue;
        }
        let engines = pending_engines();
        let slice = if engines.len() > 1 { SHARED_WAIT_SLICE } else { WAIT_SLICE };
        if engines.is_empty() {
            event().sleep(seen, WAIT_SLICE);
        }
        for engine in engines {
            if !engine.wait_event(event(), seen, slice) {
                let queue = lock();
                let requests = queue.iter().filter(|pending| Arc::ptr_eq(&pending.engine, &engine));
                requests.flat_map(|pending| &pending.submitted).for_each(|request| {
                    engine.wait_for(&request.handle, FAIL_SLICE);
                });
            }
        }
    }
}

/// The engines with pending operations: one, unless it was shut down and started again.
fn pending_engines() -> Vec<Arc<Engine>> {
    let mut engines: Vec<Arc<Engine>> = Vec::new();
    for pending in lock().iter() {
        if !engines.iter().any(|engine| Arc::ptr_eq(engine, &pending.engine)) {
            engines.push(pending.engine.clone());
        }
    }
    engines
}

/// Sets the outputs that the engine has not written in place.
fn set_outputs(
    context: &OpContext,
    kind: Kind,
    first: usize,
    dtypes: &[Dtype],
    outcome: &Outcome,
) -> Result<(), Failure> {
    if is_in_place(kind) {
        return Ok(());
    }
    if kind == Kind::Join {
        let last = outcome.last_joined.unwrap_or_default() as i32;
        ops::on_graph_join();
        return context.set_output(first, Dtype::I32, &[], &last.to_ne_bytes());
    }
    for (index, (output, dtype)) in outcome.outputs.iter().zip(dtypes).enumerate() {
        match &output.device {
            Some(device) => gpu::set_output(context, first + index, *dtype, output, device)?,
            None => context.set_output(first + index, *dtype, &output.shape, &output.bytes)?,
        }
    }
    match (kind, outcome.outputs.first()) {
        (Kind::Alltoall, Some(output)) => context.set_received(first + dtypes.len(), output),
        _ => Ok(()),
    }
}

/// Whether the engine writes results to memory that the kernel allocates in advance, since their shapes are those of
/// the inputs.
pub fn is_in_place(kind: Kind) -> bool {
    matches!(kind, Kind::Allreduce | Kind::Adasum | Kind::Broadcast)
}

fn lock() -> std::sync::MutexGuard<'static, Vec<PendingOp>> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}
