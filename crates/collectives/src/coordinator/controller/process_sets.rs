//! Adding and removing process sets. Both are collective over all ranks, members or not: the requests of each rank queue up, and when
//! every rank has one, the first of each queue are compared and applied.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::Coordinator;
use crate::coordinator::error_messages::ProcessSetError;
use crate::coordinator::message::{ProcessSet, ToWorker};
use crate::coordinator::request::{GLOBAL_GENERATION, SetGeneration, SetId};

/// Pending requests about process sets, and the ids of sets.
#[derive(Debug)]
pub struct SetRequests {
    /// Per rank, with the time of each request.
    queues: Vec<VecDeque<(SetRequest, Duration)>>,
    next_generation: SetGeneration,
    next_id: u32,
    /// Ids of removed sets, reused first in, first out.
    free_ids: VecDeque<SetId>,
}

/// Request of one rank to change the process sets.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SetRequest {
    /// The sets given at init.
    Register(Vec<Vec<u32>>),
    Add(Vec<u32>),
    Remove(SetGeneration),
}

impl SetRequests {
    pub fn new(size: u32) -> SetRequests {
        let queues = (0..size).map(|_| VecDeque::new()).collect();
        SetRequests { queues, next_generation: 1, next_id: 1, free_ids: VecDeque::new() }
    }

    /// Oldest request that some ranks have made and others have not: its time, its name, and the missing ranks.
    pub fn oldest_incomplete(&self) -> Option<(Duration, String, Vec<u32>)> {
        let (set_request, _) = self.queues.iter().find_map(|queue| queue.front())?;
        let since = self.queues.iter().filter_map(|queue| queue.front()).map(|(_, since)| *since).min()?;
        let name = match set_request {
            SetRequest::Register(_) => "process sets of init".to_owned(),
            SetRequest::Add(ranks) => format!("add_process_set {ranks:?}"),
            SetRequest::Remove(_) => "remove_process_set".to_owned(),
        };
        let missing = (0..self.queues.len() as u32).filter(|rank| self.queues[*rank as usize].is_empty());
        Some((since, name, missing.collect()))
    }
}

impl Coordinator {
    pub(super) fn on_register(&mut self, from: u32, sets: Vec<Vec<u32>>, now: Duration) {
        let sets = sets.into_iter().map(sorted).collect();
        self.on_set_request(from, SetRequest::Register(sets), now);
    }

    pub(super) fn on_add_set(&mut self, from: u32, ranks: Vec<u32>, now: Duration) {
        self.on_set_request(from, SetRequest::Add(sorted(ranks)), now);
    }

    pub(super) fn on_remove_set(&mut self, from: u32, generation: SetGeneration, now: Duration) {
        self.on_set_request(from, SetRequest::Remove(generation), now);
    }

    fn on_set_request(&mut self, from: u32, set_request: SetRequest, now: Duration) {
        self.set_requests.queues[from as usize].push_back((set_request, now));
        if self.set_requests.queues.iter().any(VecDeque::is_empty) {
            return;
        }
        let set_requests =
            self.set_requests.queues.iter_mut().filter_map(VecDeque::pop_front).map(|(set_request, _)| set_request);
        let set_requests: Vec<SetRequest> = set_requests.collect();
        match self.apply_agreed(&set_requests) {
            Ok(message) => self.queue.send_all(message),
            Err(error) => self.queue.send_all(ToWorker::SetRefused(error)),
        }
    }

    /// Applies the request if all ranks made the same one.
    fn apply_agreed(&mut self, set_requests: &[SetRequest]) -> Result<ToWorker, ProcessSetError> {
        let (first, others) = set_requests.split_first().expect("there is at least one rank");
        if let Some(other) = others.iter().find(|other| *other != first) {
            return Err(mismatch(first, other));
        }
        match first {
            SetRequest::Register(sets) => self.create_sets(sets),
            SetRequest::Add(ranks) => self.create_sets(std::slice::from_ref(ranks)),
            SetRequest::Remove(generation) => {
                let id = if *generation == GLOBAL_GENERATION { None } else { self.close_set(*generation) };
                let id = id.ok_or(ProcessSetError::Unknown)?;
                self.set_requests.free_ids.push_back(id);
                Ok(ToWorker::SetRemoved(*generation))
            }
        }
    }

    /// Creates all sets or none.
    fn create_sets(&mut self, sets: &[Vec<u32>]) -> Result<ToWorker, ProcessSetError> {
        for (set_idx, ranks) in sets.iter().enumerate() {
            if ranks.is_empty() {
                return Err(ProcessSetError::Empty);
            }
            if let Some(twice) = ranks.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(ProcessSetError::DuplicateRank(twice[0]));
            }
            if let Some(rank) = ranks.iter().find(|rank| **rank >= self.size()) {
                return Err(ProcessSetError::InvalidRank(*rank));
            }
            let exists = self.tables.iter().flatten().any(|table| *table.members == **ranks);
            if exists || sets[..set_idx].contains(ranks) {
                return Err(ProcessSetError::Exists(ranks.clone()));
            }
        }
        let created: Arc<[ProcessSet]> = sets.iter().map(|ranks| self.create_set(ranks)).collect();
        Ok(ToWorker::SetsAdded(created))
    }

    fn create_set(&mut self, ranks: &[u32]) -> ProcessSet {
        let set_requests = &mut self.set_requests;
        let id = set_requests.free_ids.pop_front().unwrap_or_else(|| {
            set_requests.next_id += 1;
            SetId(set_requests.next_id - 1)
        });
        let generation = set_requests.next_generation;
        set_requests.next_generation += 1;
        self.open_set(id, generation, ranks.into());
        ProcessSet { id, generation, ranks: ranks.to_vec() }
    }
}

/// Error for two different requests.
fn mismatch(one: &SetRequest, another: &SetRequest) -> ProcessSetError {
    let ranks_mismatch = |one: &[u32], another: &[u32]| {
        if one.len() == another.len() { ProcessSetError::MismatchedValues } else { ProcessSetError::MismatchedSize }
    };
    match (one, another) {
        (SetRequest::Register(one), SetRequest::Register(another)) if one.len() != another.len() => {
            ProcessSetError::MismatchedNumber
        }
        (SetRequest::Register(one), SetRequest::Register(another)) => {
            let differing = one.iter().zip(another).find(|(one, another)| one != another);
            differing.map_or(ProcessSetError::MismatchedValues, |(one, another)| ranks_mismatch(one, another))
        }
        (SetRequest::Add(one), SetRequest::Add(another)) => ranks_mismatch(one, another),
        (SetRequest::Remove(_), SetRequest::Remove(_)) => ProcessSetError::MismatchedRemoval,
        _ => ProcessSetError::MismatchedAction,
    }
}

fn sorted(mut ranks: Vec<u32>) -> Vec<u32> {
    ranks.sort_unstable();
    ranks
}
