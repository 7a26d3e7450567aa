//! Worker side of the negotiation, on every rank: validates submissions, encodes them as cache hits where possible, and turns the
//! coordinator's responses into actions, in order. Executes nothing itself.

mod action;
mod process_set_state;
mod responses;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::coordinator::error_messages::SubmitError;
use crate::coordinator::id_map::IdMap;
use crate::coordinator::message::{ProcessSet, RequestItem, ToCoordinator};
use crate::coordinator::request::{BARRIER_NAME, JOIN_NAME};
use crate::coordinator::request::{CacheId, GLOBAL_GENERATION, Kind, Request, RequestId, SetGeneration, SetId};
use process_set_state::{CachedResponse, PendingRequest, ProcessSetState};

pub use action::{Action, NegotiatedTensor, ProtocolError};
pub use process_set_state::validate_request;

/// Configuration of a worker.
#[derive(Clone, Copy, Debug)]
pub struct WorkerConfig {
    pub rank: u32,
    pub size: u32,
    /// `HOROVOD_DYNAMIC_PROCESS_SETS`: process sets can be added and removed after init.
    pub dynamic_sets: bool,
}

/// Negotiation state of one rank.
#[derive(Debug)]
pub struct Worker {
    config: WorkerConfig,
    by_set: IdMap<SetId, usize>,
    by_generation: IdMap<SetGeneration, usize>,
    set_states: Vec<Option<ProcessSetState>>,
    /// Set index, tensor index and response of each cache id.
    by_id: IdMap<CacheId, (usize, usize, Arc<CachedResponse>)>,
    /// Pending requests about process sets, in order; the coordinator answers them in this order.
    set_requests: VecDeque<(RequestId, Duration)>,
    outgoing: Vec<ToCoordinator>,
    next_request_id: RequestId,
    n_submissions: u64,
    n_pending: usize,
    /// Error of all further submissions, after a shutdown.
    ended: Option<Arc<str>>,
}

impl Worker {
    pub fn new(config: WorkerConfig) -> Worker {
        let mut worker = Worker {
            config,
            by_set: IdMap::default(),
            by_generation: IdMap::default(),
            set_states: Vec::new(),
            by_id: IdMap::default(),
            set_requests: VecDeque::new(),
            outgoing: Vec::new(),
            next_request_id: 1,
            n_submissions: 0,
            n_pending: 0,
            ended: None,
        };
        let ranks = (0..config.size).collect();
        worker.open(&ProcessSet { id: SetId::GLOBAL, generation: GLOBAL_GENERATION, ranks });
        worker
    }

    /// Submits all requests or none. A group is executed when all its tensors are ready on all ranks.
    pub fn submit(
        &mut self,
        mut requests: Vec<Request>,
        grouped: bool,
        now: Duration,
    ) -> Result<Vec<RequestId>, SubmitError> {
        self.validate_all(&mut requests, grouped)?;
        let submission = self.count_submission();
        let first = self.next_request_id;
        let n_requests = requests.len() as u64;
        let items =
            requests.into_iter().map(|request| self.register_request(request, submission, grouped, now)).collect();
        self.outgoing.push(ToCoordinator::Submit { grouped, items });
        Ok((first..first + n_requests).collect())
    }

    /// [`Worker::submit`] for one request, without its allocations.
    pub fn submit_one(&mut self, mut request: Request, now: Duration) -> Result<RequestId, SubmitError> {
        self.validate_all(std::slice::from_mut(&mut request), false)?;
        let submission = self.count_submission();
        let request_id = self.next_request_id;
        let message = match self.register_request(request, submission, false, now) {
            RequestItem::Cached(id) => ToCoordinator::CacheHit(id),
            full => ToCoordinator::Submit { grouped: false, items: vec![full] },
        };
        self.outgoing.push(message);
        Ok(request_id)
    }

    /// Submits a barrier. At most one can be pending in a set.
    pub fn barrier(&mut self, set: SetId, now: Duration) -> Result<RequestId, SubmitError> {
        let set_idx = self.set_idx_for(set, Kind::Barrier)?;
        let set_state = self.set_states[set_idx].as_mut().expect("looked up just now");
        if set_state.barrier.is_some() {
            return Err(SubmitError::DuplicateName);
        }
        let request_id = self.next_request_id;
        set_state.barrier = Some((request_id, now));
        self.outgoing.push(ToCoordinator::Barrier(set_state.generation));
        self.count_request();
        Ok(request_id)
    }

    /// Submits a join: this rank contributes zeros until all members have joined.
    pub fn join(&mut self, set: SetId, now: Duration) -> Result<RequestId, SubmitError> {
        let set_idx = self.set_idx_for(set, Kind::Join)?;
        let set_state = self.set_states[set_idx].as_mut().expect("looked up just now");
        if set_state.join.is_some() {
            return Err(SubmitError::DuplicateName);
        }
        let request_id = self.next_request_id;
        set_state.join = Some((request_id, now));
        self.outgoing.push(ToCoordinator::Join(set_state.generation));
        self.count_request();
        Ok(request_id)
    }

    /// Registers the process sets given at init. Collective over all ranks.
    pub fn register_sets(&mut self, sets: Vec<Vec<u32>>, now: Duration) -> Result<RequestId, SubmitError> {
        self.submit_set_request(ToCoordinator::RegisterSets(sets), now)
    }

    /// Adds a process set. Collective over all ranks.
    pub fn add_set(&mut self, ranks: Vec<u32>, now: Duration) -> Result<RequestId, SubmitError> {
        if !self.config.dynamic_sets {
            return Err(SubmitError::DynamicSetsDisabled);
        }
        self.submit_set_request(ToCoordinator::AddSet(ranks), now)
    }

    /// Removes a process set. Collective over all ranks.
    pub fn remove_set(&mut self, set: SetId, now: Duration) -> Result<RequestId, SubmitError> {
        if !self.config.dynamic_sets {
            return Err(SubmitError::DynamicSetsDisabled);
        }
        let set_state = self
            .by_set
            .get(&set)
            .and_then(|set_idx| self.set_states[*set_idx].as_ref())
            .filter(|_| set != SetId::GLOBAL);
        let generation = set_state.ok_or(SubmitError::NotRemovable { set })?.generation;
        self.submit_set_request(ToCoordinator::RemoveSet(generation), now)
    }

    /// Requests the shutdown of all ranks. Pending operations fail when the coordinator's shutdown message arrives.
    pub fn shut_down(&mut self) {
        if self.ended.is_none() {
            self.outgoing.push(ToCoordinator::Shutdown);
        }
    }

    /// Shuts this rank down at once, for example after the death of a peer. Returns the pending operations, which the caller fails with
    /// `text`. Later submissions fail with the same text.
    pub fn abort(&mut self, text: &str) -> Vec<RequestId> {
        if self.ended.is_none() {
            self.ended = Some(text.into());
        }
        self.outgoing.clear();
        self.take_all_pending()
    }

    /// Removes and returns the messages for the coordinator, in order.
    pub fn drain_outgoing(&mut self) -> std::vec::Drain<'_, ToCoordinator> {
        self.outgoing.drain(..)
    }

    /// Number of pending operations.
    pub fn n_pending(&self) -> usize {
        self.n_pending
    }

    /// Pending tensors, barriers and joins: process set, name and time of submission.
    pub fn pending(&self) -> impl Iterator<Item = (SetId, &str, Duration)> {
        self.set_states.iter().flatten().flat_map(|set_state| {
            let tensors = set_state.tensors.iter().filter_map(|name| Some((&*name.name, name.pending.as_ref()?.since)));
            let barrier = set_state.barrier.map(|(_, since)| (BARRIER_NAME, since));
            let join = set_state.join.map(|(_, since)| (JOIN_NAME, since));
            tensors.chain(barrier).chain(join).map(|(name, since)| (set_state.id, name, since))
        })
    }

    /// Members of a registered process set, ascending.
    pub fn ranks_of(&self, set: SetId) -> Option<&Arc<[u32]>> {
        self.by_set.get(&set).and_then(|set_idx| self.set_states[*set_idx].as_ref()).map(|set_state| &set_state.ranks)
    }

    /// Checks that need no other rank: membership, arguments, duplicate names, uniform groups.
    fn validate_all(&mut self, requests: &mut [Request], grouped: bool) -> Result<(), SubmitError> {
        let first = requests.first().map(|first| (first.set, first.device));
        let mut names = HashSet::new();
        let n_requests = requests.len();
        for request in requests {
            let set_idx = self.set_idx_for(request.set, request.kind)?;
            let set_state = self.set_states[set_idx].as_ref().expect("looked up just now");
            validate_request(&set_state.ranks, request)?;
            let in_flight =
                set_state.find(&request.name).is_some_and(|tensor_idx| set_state.tensors[tensor_idx].pending.is_some());
            if in_flight || (n_requests > 1 && !names.insert((request.set, &*request.name))) {
                return Err(SubmitError::DuplicateName);
            }
            if grouped && first.is_some_and(|(set, _)| set != request.set) {
                return Err(SubmitError::MixedSets);
            }
            if grouped && first.is_some_and(|(_, device)| device != request.device) {
                return Err(SubmitError::MixedDevices);
            }
        }
        Ok(())
    }

    /// Records a validated request as pending and returns its wire form.
    fn register_request(&mut self, request: Request, submission: u64, grouped: bool, now: Duration) -> RequestItem {
        let set_idx = self.by_set[&request.set];
        let set_state = self.set_states[set_idx].as_mut().expect("the set of a validated request is open");
        let name = set_state.find_or_insert(&request.name);
        let cache_hit = match &set_state.tensors[name].cached {
            Some((id, cached)) if set_state.matches_cached(cached, &request) => Some(*id),
            _ => None,
        };
        let item = match cache_hit {
            Some(id) => RequestItem::Cached(id),
            None => RequestItem::Full(set_state.generation, Box::new(request.clone())),
        };
        let request_id = self.next_request_id;
        set_state.tensors[name].pending = Some(PendingRequest { request_id, submission, grouped, request, since: now });
        self.count_request();
        item
    }

    fn submit_set_request(&mut self, message: ToCoordinator, now: Duration) -> Result<RequestId, SubmitError> {
        self.check_running()?;
        let request_id = self.next_request_id;
        self.set_requests.push_back((request_id, now));
        self.outgoing.push(message);
        self.count_request();
        Ok(request_id)
    }

    /// Index of a set in which this rank can submit an operation of this kind.
    fn set_idx_for(&self, set: SetId, kind: Kind) -> Result<usize, SubmitError> {
        self.check_running()?;
        let set_idx = *self.by_set.get(&set).ok_or(SubmitError::UnknownSet { kind })?;
        let set_state = self.set_states[set_idx].as_ref().expect("a set that has an id is open");
        set_state.set_rank.map(|_| set_idx).ok_or(SubmitError::NotMember { kind, rank: self.config.rank })
    }

    fn check_running(&self) -> Result<(), SubmitError> {
        self.ended.clone().map_or(Ok(()), |text| Err(SubmitError::Ended(text)))
    }

    /// Uses up the next request id.
    fn count_request(&mut self) {
        self.next_request_id += 1;
        self.n_pending += 1;
    }

    fn count_submission(&mut self) -> u64 {
        self.n_submissions += 1;
        self.n_submissions - 1
    }

    fn open(&mut self, set: &ProcessSet) {
        let free = self.set_states.iter().position(Option::is_none);
        let set_idx = free.unwrap_or_else(|| {
            self.set_states.push(None);
            self.set_states.len() - 1
        });
        self.set_states[set_idx] =
            Some(ProcessSetState::new(set.id, set.generation, set.ranks.as_slice().into(), self.config.rank));
        self.by_set.insert(set.id, set_idx);
        self.by_generation.insert(set.generation, set_idx);
    }
}

#[cfg(test)]
impl Worker {
    /// Sizes of internal tables, for tests that check for leaks.
    pub fn footprint(&self) -> crate::coordinator::controller::Footprint {
        let set_states = || self.set_states.iter().flatten();
        crate::coordinator::controller::Footprint {
            n_ids: self.by_id.len(),
            n_names: set_states().map(ProcessSetState::n_names).sum(),
            n_slots: set_states().map(|set_state| set_state.tensors.len()).sum(),
        }
    }
}
