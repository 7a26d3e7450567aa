//! What a rank knows of one process set: names that it waits for and agreements that it remembers. The member enters.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::ReduceOp;

use crate::coordinator::error_messages::SubmitError;
use crate::coordinator::message::{FusionKey, Response};
use crate::coordinator::request::{CacheId, Kind, Request, RequestId, SetGeneration, SetId};

#[derive(Debug)]
pub struct ProcessSetState {
    pub id: SetId,
    pub generation: SetGeneration,
    pub ranks: Arc<[u32]>,
    /// Of this rank in the set; `None` when it is not a member.
    pub set_rank: Option<u32>,
    pub names: Vec<TensorState>,
    free: Vec<usize>,
    by_name: HashMap<Arc<str>, usize>,
    pub barrier: Option<(RequestId, Duration)>,
    pub join: Option<(RequestId, Duration)>,
}

#[derive(Debug)]
pub struct TensorState {
    pub name: Arc<str>,
    pub cached: Option<(CacheId, Arc<CachedResponse>)>,
    pub pending: Option<PendingRequest>,
}

/// An agreement, and what this rank sends in it (alltoall: rows for each member).
#[derive(Debug)]
pub struct CachedResponse {
    pub response: Arc<Response>,
    pub splits: Arc<[u64]>,
}

#[derive(Debug)]
pub struct PendingRequest {
    pub request_id: RequestId,
    /// The number of the submission it was sent with.
    pub submission: u64,
    pub grouped: bool,
    pub request: Request,
    pub since: Duration,
}

impl ProcessSetState {
    pub fn new(id: SetId, generation: SetGeneration, ranks: Arc<[u32]>, rank: u32) -> ProcessSetState {
        let set_rank = ranks.binary_search(&rank).ok().map(|set_rank| set_rank as u32);
        ProcessSetState {
            id,
            generation,
            ranks,
            set_rank,
            names: Vec::new(),
            free: Vec::new(),
            by_name: HashMap::new(),
            barrier: None,
            join: None,
        }
    }

    pub fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub fn find_or_insert(&mut self, name: &Arc<str>) -> usize {
        if let Some(at) = self.by_name.get(name) {
            return *at;
        }
        let state = TensorState { name: name.clone(), cached: None, pending: None };
        let at = match self.free.pop() {
            Some(free) => {
                self.names[free] = state;
                free
            }
            None => {
                self.names.push(state);
                self.names.len() - 1
            }
        };
        self.by_name.insert(name.clone(), at);
        at
    }

    pub fn free_if_unused(&mut self, at: usize) {
        if self.names[at].cached.is_none() && self.names[at].pending.is_none() {
            self.by_name.remove(&self.names[at].name);
            self.free.push(at);
        }
    }

    #[cfg(test)]
    pub fn n_names(&self) -> usize {
        self.by_name.len()
    }

    /// Whether this rank asks for just what is remembered.
    pub fn matches_cached(&self, cached: &CachedResponse, request: &Request) -> bool {
        let Response { key, shape, rows, .. } = &*cached.response;
        if FusionKey::new(self.generation, request) != *key {
            return false;
        }
        match key.kind {
            Kind::Allgather => {
                let set_rank = self.set_rank.expect("only members ask") as usize;
                request.shape.first() == rows.get(set_rank) && request.shape.get(1..) == shape.get(1..)
            }
            Kind::Alltoall => *request.splits == *cached.splits && request.shape.get(1..) == shape.get(1..),
            _ => request.shape == *shape,
        }
    }
}

/// What a member of a set can be told without the others. Fills in the equal parts of an alltoall without splits.
pub fn validate_request(ranks: &[u32], request: &mut Request) -> Result<(), SubmitError> {
    match request.kind {
        Kind::Join | Kind::Barrier => Err(SubmitError::NotATensorOp { kind: request.kind }),
        Kind::Broadcast if ranks.binary_search(&request.root).is_err() => {
            Err(SubmitError::InvalidRoot { root: request.root })
        }
        Kind::Reducescatter if !matches!(request.op, ReduceOp::Average | ReduceOp::Sum) => {
            Err(SubmitError::ReducescatterOp)
        }
        Kind::Alltoall => validate_splits(ranks.len(), request),
        _ => Ok(()),
    }
}

fn validate_splits(n_members: usize, request: &mut Request) -> Result<(), SubmitError> {
    // Scalars are refused by agreement, so that all ranks hear of it.
    let Some(rows) = request.shape.first().copied() else { return Ok(()) };
    if request.splits.is_empty() {
        if rows % n_members as u64 != 0 {
            return Err(SubmitError::UnevenSplits);
        }
        request.splits = vec![rows / n_members as u64; n_members];
    }
    if request.splits.len() != n_members {
        return Err(SubmitError::WrongNumberOfSplits);
    }
    let sum = request.splits.iter().try_fold(0u64, |sum, split| sum.checked_add(*split));
    if sum.is_none_or(|sum| sum > rows) { Err(SubmitError::SplitsTooLarge) } else { Ok(()) }
}
