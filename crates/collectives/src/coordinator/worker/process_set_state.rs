//! State of one process set on one rank: pending requests and cached responses by tensor name.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::ReduceOp;

use crate::coordinator::error_messages::SubmitError;
use crate::coordinator::message::{FusionKey, Response};
use crate::coordinator::request::{CacheId, Kind, Request, RequestId, SetGeneration, SetId};

/// Pending requests and cached responses of one process set.
#[derive(Debug)]
pub struct ProcessSetState {
    pub id: SetId,
    pub generation: SetGeneration,
    pub ranks: Arc<[u32]>,
    /// Index of this rank in the set; `None` if it is not a member.
    pub set_rank: Option<u32>,
    pub tensors: Vec<TensorState>,
    /// Unused indices of `tensors`.
    free: Vec<usize>,
    by_name: HashMap<Arc<str>, usize>,
    /// Pending barrier and the time of its submission.
    pub barrier: Option<(RequestId, Duration)>,
    /// Pending join and the time of its submission.
    pub join: Option<(RequestId, Duration)>,
}

/// State of one tensor name.
#[derive(Debug)]
pub struct TensorState {
    pub name: Arc<str>,
    pub cached: Option<(CacheId, Arc<CachedResponse>)>,
    pub pending: Option<PendingRequest>,
}

/// Cached response. `splits` are the rows that this rank sends to each member in an alltoall, otherwise empty.
#[derive(Debug)]
pub struct CachedResponse {
    pub response: Arc<Response>,
    pub splits: Arc<[u64]>,
}

/// Submitted request without a response.
#[derive(Debug)]
pub struct PendingRequest {
    pub request_id: RequestId,
    /// Number of the submission that contained it.
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
            tensors: Vec::new(),
            free: Vec::new(),
            by_name: HashMap::new(),
            barrier: None,
            join: None,
        }
    }

    /// Index of a tensor name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Index of a tensor name; adds a new one.
    pub fn find_or_insert(&mut self, name: &Arc<str>) -> usize {
        if let Some(idx) = self.by_name.get(name) {
            return *idx;
        }
        let state = TensorState { name: name.clone(), cached: None, pending: None };
        let idx = match self.free.pop() {
            Some(free) => {
                self.tensors[free] = state;
                free
            }
            None => {
                self.tensors.push(state);
                self.tensors.len() - 1
            }
        };
        self.by_name.insert(name.clone(), idx);
        idx
    }

    /// Frees a name without pending request and cached response.
    pub fn free_if_unused(&mut self, idx: usize) {
        if self.tensors[idx].cached.is_none() && self.tensors[idx].pending.is_none() {
            self.by_name.remove(&self.tensors[idx].name);
            self.free.push(idx);
        }
    }

    #[cfg(test)]
    pub fn n_names(&self) -> usize {
        self.by_name.len()
    }

    /// True if a request is the one that the cached response was negotiated for, so that its cache id can be sent instead.
    pub fn matches_cached(&self, cached: &CachedResponse, request: &Request) -> bool {
        let Response { key, shape, rows, .. } = &*cached.response;
        if FusionKey::new(self.generation, request) != *key {
            return false;
        }
        match key.kind {
            Kind::Allgather => {
                let set_rank = self.set_rank.expect("only members submit requests") as usize;
                request.shape.first() == rows.get(set_rank) && request.shape.get(1..) == shape.get(1..)
            }
            Kind::Alltoall => *request.splits == *cached.splits && request.shape.get(1..) == shape.get(1..),
            _ => request.shape == *shape,
        }
    }
}

/// Argument checks of a request that need no other rank. Fills in equal splits for an alltoall without splits.
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
    // The coordinator rejects scalars, so that all ranks get the error.
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
