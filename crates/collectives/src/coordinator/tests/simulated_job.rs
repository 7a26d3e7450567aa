//! Simulated job: workers, a coordinator and the byte streams between them, without an engine. Checks that every request completes exactly
//! once.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::coordinator::*;
use crate::{Dtype, ReduceOp};

pub struct SimulatedJob {
    pub workers: Vec<Worker>,
    pub coordinator: Coordinator,
    up: Vec<VecDeque<Vec<u8>>>,
    down: Vec<VecDeque<Vec<u8>>>,
    pub now: Duration,
    /// Per rank, all actions in order.
    pub done: Vec<Vec<Action>>,
    /// Per rank, the result of each request.
    pub ends: Vec<BTreeMap<RequestId, End>>,
    pub bytes_up: usize,
    pub bytes_down: usize,
}

/// Result of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    Executed,
    Failed(String),
    Joined(u32),
    SetsAdded(Vec<ProcessSet>),
    SetRemoved,
    SetRefused(String),
}

pub fn config(size: u32) -> Config {
    Config {
        hosts: (0..size).map(|rank| format!("host-{rank}")).collect(),
        fusion_threshold: 1 << 20,
        local_size: size,
        homogeneous: true,
        disable_group_fusion: false,
        cache_capacity: 1024,
        stall: Some(StallLimits { warn_after: Duration::from_secs(10), shut_down_after: None }),
    }
}

/// Allreduce of four floats.
pub fn request(name: &str) -> Request {
    Request {
        set: SetId::GLOBAL,
        kind: Kind::Allreduce,
        name: name.into(),
        dtype: Dtype::F32,
        shape: vec![4],
        root: 0,
        device: -1,
        prescale: 1.0,
        postscale: 1.0,
        op: ReduceOp::Sum,
        splits: Vec::new(),
    }
}

pub fn of_kind(kind: Kind, name: &str) -> Request {
    Request { kind, ..request(name) }
}

impl SimulatedJob {
    pub fn new(size: u32) -> SimulatedJob {
        SimulatedJob::with(config(size))
    }

    pub fn with(config: Config) -> SimulatedJob {
        let size = config.hosts.len() as u32;
        let worker = |rank| Worker::new(WorkerConfig { rank, size, dynamic_sets: true });
        SimulatedJob {
            workers: (0..size).map(worker).collect(),
            coordinator: Coordinator::new(config),
            up: vec![VecDeque::new(); size as usize],
            down: vec![VecDeque::new(); size as usize],
            now: Duration::ZERO,
            done: vec![Vec::new(); size as usize],
            ends: vec![BTreeMap::new(); size as usize],
            bytes_up: 0,
            bytes_down: 0,
        }
    }

    pub fn size(&self) -> usize {
        self.workers.len()
    }

    pub fn submit(&mut self, rank: usize, request: Request) -> RequestId {
        self.workers[rank].submit_one(request, self.now).expect("a valid request")
    }

    pub fn submit_on<const N: usize>(&mut self, ranks: [usize; N], request: Request) -> [RequestId; N] {
        ranks.map(|rank| self.submit(rank, request.clone()))
    }

    pub fn submit_group(&mut self, rank: usize, requests: Vec<Request>) -> Vec<RequestId> {
        self.workers[rank].submit(requests, true, self.now).expect("a valid group")
    }

    /// Appends the worker's outgoing messages to its stream, as one frame.
    pub fn flush(&mut self, rank: usize) {
        let mut frame = Vec::new();
        self.workers[rank].drain_outgoing().for_each(|message| encode_to_coordinator(&message, &mut frame));
        if !frame.is_empty() {
            self.bytes_up += frame.len();
            self.up[rank].push_back(frame);
        }
    }

    /// Delivers one frame from a rank to the coordinator. False if there is none.
    pub fn deliver_up(&mut self, rank: usize) -> bool {
        let Some(frame) = self.up[rank].pop_front() else { return false };
        let each = |message| self.coordinator.on_message(rank as u32, message, self.now);
        decode_to_coordinator(&frame, each).expect("an encoded message decodes");
        true
    }

    /// Appends the coordinator's responses to the ranks' streams.
    pub fn drain(&mut self) {
        let (down, bytes) = (&mut self.down, &mut self.bytes_down);
        self.coordinator.drain(|rank, messages| {
            let mut frame = Vec::new();
            messages.iter().for_each(|message| encode_to_worker(message, &mut frame));
            *bytes += frame.len();
            down[rank as usize].push_back(frame);
        });
    }

    /// Delivers one frame from the coordinator to a rank. False if there is none.
    pub fn deliver_down(&mut self, rank: usize) -> bool {
        let Some(frame) = self.down[rank].pop_front() else { return false };
        let mut actions = Vec::new();
        let worker = &mut self.workers[rank];
        let each = |message| worker.on_message(message, &mut actions).expect("a correct coordinator");
        decode_to_worker(&frame, each).expect("an encoded message decodes");
        actions.iter().for_each(|action| self.record_ends(rank, action));
        self.done[rank].extend(actions);
        true
    }

    /// Delivers all frames, rank by rank, until none is in flight.
    pub fn run(&mut self) {
        loop {
            let mut moved = false;
            for rank in 0..self.size() {
                self.flush(rank);
                while self.deliver_up(rank) {
                    moved = true;
                }
            }
            self.drain();
            for rank in 0..self.size() {
                while self.deliver_down(rank) {
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
    }

    pub fn end(&self, rank: usize, request_id: RequestId) -> Option<&End> {
        self.ends[rank].get(&request_id)
    }

    /// Tensor names of each operation that a rank has executed since the last call, in order.
    pub fn take_executed(&mut self, rank: usize) -> Vec<Vec<String>> {
        let executed = std::mem::take(&mut self.done[rank]).into_iter().filter_map(|action| match action {
            Action::Execute { tensors, .. } => {
                Some(tensors.iter().map(|tensor| tensor.response.name.to_string()).collect())
            }
            _ => None,
        });
        executed.collect()
    }

    fn record_ends(&mut self, rank: usize, action: &Action) {
        let failed = |text: &str| End::Failed(text.to_owned());
        let ended: Vec<(RequestId, End)> = match action {
            Action::Execute { tensors, .. } => {
                tensors.iter().filter_map(|tensor| Some((tensor.request_id?, End::Executed))).collect()
            }
            Action::Fail { request_ids, text } | Action::ShutDown { request_ids, text, .. } => {
                request_ids.iter().map(|request_id| (*request_id, failed(text))).collect()
            }
            Action::Barrier { request_id } => vec![(*request_id, End::Executed)],
            Action::Joined { request_id, last } => vec![(*request_id, End::Joined(*last))],
            Action::SetsAdded { request_id, sets } => vec![(*request_id, End::SetsAdded(sets.to_vec()))],
            Action::SetRemoved { request_id, .. } => vec![(*request_id, End::SetRemoved)],
            Action::SetRefused { request_id, error } => vec![(*request_id, End::SetRefused(error.to_string()))],
            Action::Tune(_) => Vec::new(),
        };
        for (request_id, end) in ended {
            let before = self.ends[rank].insert(request_id, end);
            assert_eq!(before, None, "request {request_id} of rank {rank} ends twice");
        }
    }
}
