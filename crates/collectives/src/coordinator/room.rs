//! What a rank knows of one process set: names that it waits for and agreements that it remembers. The member enters.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::ReduceOp;

use super::message::{Agreed, Area, CacheId, Kind, Request, SetId, Terms, Token};
use super::text::SubmitError;

#[derive(Debug)]
pub struct Room {
    pub id: SetId,
    pub area: Area,
    pub ranks: Arc<[u32]>,
    /// Of this rank in the set; `None` when it is not a member.
    pub place: Option<u32>,
    pub names: Vec<Name>,
    free: Vec<usize>,
    by_name: HashMap<Arc<str>, usize>,
    pub barrier: Option<(Token, Duration)>,
    pub join: Option<(Token, Duration)>,
}

#[derive(Debug)]
pub struct Name {
    pub name: Arc<str>,
    pub known: Option<(CacheId, Arc<Known>)>,
    pub pending: Option<Pending>,
}

/// An agreement, and what this rank sends in it (alltoall: rows for each member).
#[derive(Debug)]
pub struct Known {
    pub agreed: Arc<Agreed>,
    pub splits: Arc<[u64]>,
}

#[derive(Debug)]
pub struct Pending {
    pub token: Token,
    /// The number of the submission it was sent with.
    pub submission: u64,
    pub grouped: bool,
    pub request: Request,
    pub since: Duration,
}

impl Room {
    pub fn new(id: SetId, area: Area, ranks: Arc<[u32]>, rank: u32) -> Room {
        let place = ranks.binary_search(&rank).ok().map(|place| place as u32);
        Room {
            id,
            area,
            ranks,
            place,
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

    pub fn find_or_make(&mut self, name: &Arc<str>) -> usize {
        if let Some(at) = self.by_name.get(name) {
            return *at;
        }
        let made = Name { name: name.clone(), known: None, pending: None };
        let at = match self.free.pop() {
            Some(free) => {
                self.names[free] = made;
                free
            }
            None => {
                self.names.push(made);
                self.names.len() - 1
            }
        };
        self.by_name.insert(name.clone(), at);
        at
    }

    pub fn free_if_unused(&mut self, at: usize) {
        if self.names[at].known.is_none() && self.names[at].pending.is_none() {
            self.by_name.remove(&self.names[at].name);
            self.free.push(at);
        }
    }

    #[cfg(test)]
    pub fn n_names(&self) -> usize {
        self.by_name.len()
    }

    /// Whether this rank asks for just what is remembered.
    pub fn is_as_known(&self, known: &Known, request: &Request) -> bool {
        let Agreed { terms, shape, rows, .. } = &*known.agreed;
        if Terms::of(self.area, request) != *terms {
            return false;
        }
        match terms.kind {
            Kind::Allgather => {
                let place = self.place.expect("only members ask") as usize;
                request.shape.first() == rows.get(place) && request.shape.get(1..) == shape.get(1..)
            }
            Kind::Alltoall => *request.splits == *known.splits && request.shape.get(1..) == shape.get(1..),
            _ => request.shape == *shape,
        }
    }
}

/// What a member of a set can be told without the others. Fills in the equal parts of an alltoall without splits.
pub fn check_request(ranks: &[u32], request: &mut Request) -> Result<(), SubmitError> {
    match request.kind {
        Kind::Join | Kind::Barrier => Err(SubmitError::NotATensor { kind: request.kind }),
        Kind::Broadcast if ranks.binary_search(&request.root).is_err() => {
            Err(SubmitError::InvalidRoot { root: request.root })
        }
        Kind::Reducescatter if !matches!(request.op, ReduceOp::Average | ReduceOp::Sum) => {
            Err(SubmitError::ReducescatterOp)
        }
        Kind::Alltoall => check_splits(ranks.len(), request),
        _ => Ok(()),
    }
}

fn check_splits(n_members: usize, request: &mut Request) -> Result<(), SubmitError> {
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
