//! Progress engine: each poll accepts submissions, exchanges messages with the coordinator and executes negotiated operations. One thread at
//! a time polls: the engine's own, or one that waits for a result. Only the operations themselves block.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::communicator::Communicator;
use crate::coordinator::{
    Action, Coordinator, GLOBAL_GENERATION, Request, RequestId, SHUTDOWN_MESSAGE, SetId, ShutdownReason, ToWorker,
    Worker,
};
use crate::device::context::DeviceEvent;
use crate::device_transport::DeviceTransport;
use crate::engine::devices::Devices;
use crate::engine::handle::{Completion, EngineError};
use crate::engine::in_flight::SubmissionTable;
use crate::engine::instrumentation::Instrumentation;
use crate::engine::submission::{BufferOwner, Submission, TensorBuffers, TensorTableEntry};
use crate::observe::shm_step_stats::ShmStepStats;
use crate::observe::status::EngineStatus;
use crate::settings::LogLevel;
use crate::transport::control::channel::ControlChannel;
use crate::world::World;
use corro_base::error_chain;

/// Interval between stall checks on rank 0.
const STALL_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How long devices may execute operations after an orderly shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// State of the engine that only the polling thread uses.
pub struct ProgressEngine {
    pub(super) world: World,
    pub(super) worker: Worker,
    in_flight: Arc<SubmissionTable>,
    /// On global rank 0 only.
    pub(super) coordinator: Option<Coordinator>,
    pub(super) control_channel: ControlChannel,
    /// Communicator of each process set; `None` if this rank is not a member.
    pub(super) sets: HashMap<SetId, Option<Communicator>>,
    pub(super) tensor_table: HashMap<RequestId, TensorTableEntry>,
    pub(super) devices: Devices,
    /// Pending calls without tensors: barriers, joins, process sets.
    calls: HashMap<RequestId, Arc<Completion>>,
    pub(super) instrumentation: Instrumentation,
    pub(super) status: EngineStatus,
    pub(super) shm_steps: Arc<ShmStepStats>,
    pub(super) fusion_buffer: Vec<u8>,
    /// Zero of the times passed to coordinator, worker and status.
    pub(super) began: Instant,
    /// Outgoing frame. This and the next three are kept for their allocations.
    pub(super) frame: Vec<u8>,
    pub(super) received: Vec<(usize, Vec<u8>)>,
    pub(super) actions: Vec<Action>,
    pub(super) to_self: Vec<ToWorker>,
    /// Reason of the shutdown, once the engine has shut down.
    pub(super) ended: Option<Arc<str>>,
    ended_at: Option<Instant>,
    last_stall_check: Duration,
    /// Timeout of operations that all ranks have started. `HOROVOD_GLOO_TIMEOUT_SECONDS`.
    silence_limit: Duration,
}

impl ProgressEngine {
    #[expect(clippy::too_many_arguments, reason = "called once, when the engine starts")]
    pub fn new(
        world: World,
        worker: Worker,
        in_flight: Arc<SubmissionTable>,
        coordinator: Option<Coordinator>,
        control_channel: ControlChannel,
        global: Communicator,
        instrumentation: Instrumentation,
        silence_limit: Duration,
        device_transport: Option<DeviceTransport>,
    ) -> ProgressEngine {
        let began = Instant::now();
        let shm_steps = Arc::new(ShmStepStats::new(began));
        ProgressEngine {
            status: EngineStatus::new(world.rank(), world.size(), shm_steps.clone()),
            shm_steps,
            world,
            worker,
            in_flight,
            coordinator,
            control_channel,
            sets: HashMap::from([(SetId::GLOBAL, Some(global))]),
            tensor_table: HashMap::new(),
            devices: Devices::new(device_transport),
            calls: HashMap::new(),
            instrumentation,
            fusion_buffer: Vec::new(),
            began,
            frame: Vec::new(),
            received: Vec::new(),
            actions: Vec::new(),
            to_self: Vec::new(),
            ended: None,
            ended_at: None,
            last_stall_check: Duration::ZERO,
            silence_limit,
        }
    }

    /// One poll. True if it made progress; there may be more to do then.
    pub fn poll_once(&mut self, submissions: &mut Vec<Submission>) -> bool {
        let mut busy = !submissions.is_empty();
        for submission in submissions.drain(..) {
            self.on_submission(submission);
        }
        if self.ended.is_some() {
            return busy;
        }
        let now = self.began.elapsed();
        self.status.set_pending(self.worker.n_pending(), now);
        if let Some(coordinator) = &mut self.coordinator {
            self.instrumentation.enable_negotiation_events(coordinator);
        }
        busy |= self.send_requests(now);
        busy |= self.receive(now);
        self.send_responses();
        busy |= !self.actions.is_empty();
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            self.on_action(action);
        }
        self.actions = actions;
        busy
    }

    /// Periodic work when idle: detects dead peers, checks for stalls, publishes the status.
    pub fn housekeeping(&mut self) {
        if self.ended.is_some() {
            // Operations that devices still execute may wait for a rank that has died since, or that has failed.
            let is_overdue = self.ended_at.is_some_and(|ended_at| ended_at.elapsed() > DRAIN_TIMEOUT);
            if is_overdue || self.world.shared.peer_table.death().is_some() {
                self.devices.abort();
            }
            return;
        }
        if let Some(error) = self.world.shared.peer_table.death() {
            self.shut_down_with(&error.to_string());
            return;
        }
        // Without the coordinator nothing can be negotiated. It sends a shutdown before it exits, unless it had no time.
        if self.world.rank() != 0 && self.world.shared.peer_table.is_gone(0) && !self.control_channel.is_pending() {
            self.shut_down_with(SHUTDOWN_MESSAGE);
            return;
        }
        self.world.shared.peer_table.set_agreeing(self.worker.n_pending() > 0);
        let now = self.began.elapsed();
        self.status.set_pending(self.worker.n_pending(), now);
        self.publish_if_due(now);
        if now < self.last_stall_check + STALL_CHECK_INTERVAL {
            return;
        }
        self.last_stall_check = now;
        if let Some(report) = self.coordinator.as_mut().and_then(|coordinator| coordinator.check_stalls(now)) {
            self.instrumentation.log_stall(&report);
            self.send_responses();
            let mut actions = std::mem::take(&mut self.actions);
            actions.drain(..).for_each(|action| self.on_action(action));
        }
    }

    /// True if a rank has died or been lost, and the engine has not shut down because of it yet.
    pub fn has_failed_peer(&self) -> bool {
        self.ended.is_none() && self.world.shared.peer_table.first_failure().is_some()
    }

    /// True if this rank has pending operations.
    pub fn has_pending(&self) -> bool {
        self.worker.n_pending() > 0
    }

    /// True if other ranks may need this rank's coordinator even if it has no pending operations: for process sets it is not a member of.
    pub fn coordinates_other_sets(&self) -> bool {
        self.coordinator.is_some() && self.sets.len() > 1
    }

    /// True if messages have arrived and are not processed.
    pub fn has_incoming(&self) -> bool {
        self.control_channel.is_pending()
    }

    /// Waits until all outgoing messages are sent, at most one second. After the end of a rank nobody needs them, and it reads none.
    pub fn flush_outgoing(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(1);
        let peer_table = self.world.shared.peer_table.clone();
        while peer_table.first_failure().is_none() && !self.control_channel.is_sent() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Shuts the engines of all ranks down, because this rank cannot go on; pending operations of this rank fail with the text.
    pub(super) fn shut_down_all_with(&mut self, text: &str) {
        if self.ended.is_some() {
            return;
        }
        self.worker.shut_down();
        self.send_requests(self.began.elapsed());
        self.send_responses();
        self.shut_down_with(text);
        self.flush_outgoing();
    }

    /// Shuts this rank's engine down: pending and later operations fail with the text.
    pub fn shut_down_with(&mut self, text: &str) {
        if self.ended.is_some() {
            return;
        }
        self.worker.abort(text);
        self.fail_all(text.into(), false);
    }

    /// Fails all pending operations, including negotiated ones that are not executed yet; the worker no longer knows these. Unless the
    /// shutdown is orderly, devices do not complete the operations that they execute.
    fn fail_all(&mut self, text: Arc<str>, is_orderly: bool) {
        let error = EngineError::Failed(text.clone());
        // First, so that a caller that sees its operation fail and submits again gets this error at once.
        self.in_flight.shut_down(&text);
        if !is_orderly {
            self.devices.abort();
        }
        self.ended = Some(text);
        self.ended_at = Some(Instant::now());
        let tensors = self.tensor_table.drain().map(|(_, entry)| entry.completion);
        let waiting: Vec<Arc<Completion>> =
            tensors.chain(self.calls.drain().map(|(_, completion)| completion)).collect();
        for completion in waiting {
            completion.complete_one(Err(error.clone()), |_| {});
        }
        let text = self.ended.as_deref().unwrap_or_default();
        self.instrumentation.log(LogLevel::Debug, &format!("the engine has shut down: {text}"));
        self.instrumentation.stop();
        self.status.close();
    }

    fn on_submission(&mut self, submission: Submission) {
        let now = self.began.elapsed();
        let (completion, request_id) = match submission {
            Submission::Tensors { requests, buffers, grouped, completion, owner, ready } => {
                if let Some(ready) = &ready {
                    self.devices.on_used(ready.context());
                }
                return self.on_tensors(requests, buffers, grouped, &completion, &(owner, ready));
            }
            Submission::ShutDown => {
                self.worker.shut_down();
                return;
            }
            Submission::Barrier { set, completion } => (completion, self.worker.barrier(set, now)),
            Submission::Join { set, completion } => (completion, self.worker.join(set, now)),
            Submission::RegisterSets { sets, completion } => (completion, self.worker.register_sets(sets, now)),
            Submission::AddSet { ranks, completion } => (completion, self.worker.add_set(ranks, now)),
            Submission::RemoveSet { set, completion } => (completion, self.worker.remove_set(set, now)),
        };
        match request_id {
            Ok(request_id) => drop(self.calls.insert(request_id, completion)),
            Err(error) => completion.fail(EngineError::from_submit(error)),
        }
    }

    fn on_tensors(
        &mut self,
        mut requests: Vec<Request>,
        buffers: Vec<TensorBuffers>,
        grouped: bool,
        completion: &Arc<Completion>,
        kept: &(BufferOwner, Option<Arc<DeviceEvent>>),
    ) {
        let now = self.began.elapsed();
        self.instrumentation.on_request(&requests);
        if requests.len() == 1 {
            let request = requests.remove(0);
            match self.worker.submit_one(request, now) {
                Err(error) => completion.fail(EngineError::from_submit(error)),
                Ok(request_id) => self.add_entry(request_id, buffers[0], completion, 0, kept),
            }
            return;
        }
        match self.worker.submit(requests, grouped, now) {
            Err(error) => completion.fail(EngineError::from_submit(error)),
            Ok(request_ids) => {
                for (index, (request_id, buffers)) in request_ids.into_iter().zip(buffers).enumerate() {
                    self.add_entry(request_id, buffers, completion, index, kept);
                }
            }
        }
    }

    fn add_entry(
        &mut self,
        request_id: RequestId,
        buffers: TensorBuffers,
        completion: &Arc<Completion>,
        index: usize,
        (owner, ready): &(BufferOwner, Option<Arc<DeviceEvent>>),
    ) {
        let (completion, owner, ready) = (completion.clone(), owner.clone(), ready.clone());
        self.tensor_table.insert(request_id, TensorTableEntry { buffers, completion, index, owner, ready });
    }

    fn on_action(&mut self, action: Action) {
        if self.ended.is_some() {
            return;
        }
        match action {
            Action::Execute { set, key, tensors } => self.execute(set, key, &tensors),
            Action::Fail { request_ids, text } => self.fail(&request_ids, &text),
            Action::Barrier { request_id } => self.complete_call(request_id, |_| {}),
            Action::Joined { request_id, last } => {
                self.complete_call(request_id, |outcome| outcome.last_joined = Some(last))
            }
            Action::SetsAdded { request_id, sets } => {
                for set in sets.iter() {
                    let ranks: Vec<usize> = set.ranks.iter().map(|rank| *rank as usize).collect();
                    match self.world.subset(&ranks) {
                        Ok(mut communicator) => {
                            if let Some(communicator) = &mut communicator {
                                communicator.limit_silence(Some(self.silence_limit));
                            }
                            self.sets.insert(set.id, communicator);
                            self.in_flight.add_set(set.id, &set.ranks);
                        }
                        Err(error) => return self.shut_down_with(&error_chain::join(&error)),
                    }
                }
                self.complete_call(request_id, |outcome| outcome.sets = sets.to_vec());
            }
            Action::SetRemoved { request_id, set, generation } => {
                debug_assert_ne!(generation, GLOBAL_GENERATION);
                self.sets.remove(&set);
                self.devices.remove_set(set);
                self.in_flight.remove_set(set);
                self.complete_call(request_id, |_| {});
            }
            Action::SetRefused { request_id, error } => {
                if let Some(completion) = self.calls.remove(&request_id) {
                    completion.complete_one(Err(error.into()), |_| {});
                }
            }
            Action::Tune(tuning) => self.instrumentation.on_tuning(tuning),
            Action::ShutDown { reason, text, .. } => {
                if let ShutdownReason::Lost { .. } | ShutdownReason::Stalled = reason {
                    self.instrumentation.log_error(&text);
                }
                self.fail_all(text, matches!(reason, ShutdownReason::Requested { .. }));
            }
        }
    }

    /// Completes a call without tensors.
    fn complete_call(&mut self, request_id: RequestId, change: impl FnOnce(&mut crate::engine::handle::Outcome)) {
        if let Some(completion) = self.calls.remove(&request_id) {
            completion.complete_one(Ok(()), change);
        }
    }

    /// Fails pending operations.
    pub(super) fn fail(&mut self, request_ids: &[RequestId], text: &str) {
        let error = EngineError::Failed(text.into());
        for request_id in request_ids {
            if let Some(entry) = self.tensor_table.remove(request_id) {
                entry.completion.complete_one(Err(error.clone()), |_| {});
            } else if let Some(completion) = self.calls.remove(request_id) {
                completion.complete_one(Err(error.clone()), |_| {});
            }
        }
    }
}
