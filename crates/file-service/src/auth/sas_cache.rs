//! Links whose signature was found right: one that is used again and again, as every mount and every follower of a log does, is not worked out anew
//! for each request. Entered by `access`, which still asks each time whether the link's terms hold. Every thread remembers by itself. What is proven stands for
//! these very keys: with new ones it is forgotten.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use corro_model::storage::sas::Sas;

use crate::protocol::request::{Call, Target};

/// Links that one thread remembers, of less than a kB each.
const REMEMBERED: usize = 512;

struct Proof {
    hash: u64,
    /// Kept, so that no other keys can take their place in memory.
    keys: Arc<[Vec<u8>]>,
    account: String,
    target: Target,
    query: String,
    sas: Arc<Sas>,
    signer: usize,
}

#[derive(Default)]
struct Proofs {
    /// Unknown to everybody: whoever guesses at signatures cannot learn from the time it takes how near a guess came.
    state: RandomState,
    slots: Vec<Option<Proof>>,
}

thread_local! {
    static PROOFS: RefCell<Proofs> = RefCell::default();
}

/// The link of a request and the key that it was made with, if that is known.
pub(crate) fn recall(call: &Call, keys: Option<&Arc<[Vec<u8>]>>) -> Option<(Arc<Sas>, usize)> {
    let (keys, target) = (keys?, call.target.as_ref().ok()?);
    PROOFS.with_borrow(|proofs| {
        let hash = proofs.hash_of(call, target);
        let proof = proofs.slots.get(slot_of(hash))?.as_ref().filter(|proof| proof.hash == hash)?;
        let is_it = Arc::ptr_eq(&proof.keys, keys)
            && proof.account == call.account
            && proof.query == call.raw_query
            && proof.target == *target;
        is_it.then(|| (proof.sas.clone(), proof.signer))
    })
}

/// Remembers a link that has just been found right.
pub(crate) fn keep(call: &Call, keys: Option<&Arc<[Vec<u8>]>>, sas: &Arc<Sas>, signer: usize) {
    let (Some(keys), Ok(target)) = (keys, &call.target) else { return };
    PROOFS.with_borrow_mut(|proofs| {
        let hash = proofs.hash_of(call, target);
        proofs.slots.resize_with(REMEMBERED, || None);
        proofs.slots[slot_of(hash)] = Some(Proof {
            hash,
            keys: keys.clone(),
            account: call.account.clone(),
            target: target.clone(),
            query: call.raw_query.clone(),
            sas: sas.clone(),
            signer,
        });
    });
}

impl Proofs {
    fn hash_of(&self, call: &Call, target: &Target) -> u64 {
        self.state.hash_one((&call.raw_query, target.path.as_str()))
    }
}

fn slot_of(hash: u64) -> usize {
    (hash % REMEMBERED as u64) as usize
}

/// How many links this thread remembers.
#[cfg(test)]
pub(crate) fn remembered() -> usize {
    PROOFS.with_borrow(|proofs| proofs.slots.iter().flatten().count())
}
