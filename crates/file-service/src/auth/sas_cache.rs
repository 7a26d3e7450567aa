//! LinkView whose signature was found right: one that is used again and again, as every mount and every follower of a log does, is not worked out anew
//! for each request. Entered by `access`, which still asks each time whether the link's terms hold. Every thread remembers by itself. What is proven stands for
//! these very keys: with new ones it is forgotten.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use corro_model::storage::sas::Sas;

use crate::protocol::request::{StorageRequest, Target};

/// LinkView that one thread remembers, of less than a kB each.
const CACHE_SLOTS: usize = 512;

struct VerifiedSas {
    hash: u64,
    /// Kept, so that no other keys can take their location in memory.
    keys: Arc<[Vec<u8>]>,
    account: String,
    target: Target,
    query: String,
    sas: Arc<Sas>,
    signer: usize,
}

#[derive(Default)]
struct SasCache {
    /// Unknown to everybody: whoever guesses at signatures cannot learn from the time it takes how near a guess came.
    hasher: RandomState,
    slots: Vec<Option<VerifiedSas>>,
}

thread_local! {
    static CACHE: RefCell<SasCache> = RefCell::default();
}

/// The link of a request and the key that it was made with, if that is known.
pub(crate) fn get(request: &StorageRequest, keys: Option<&Arc<[Vec<u8>]>>) -> Option<(Arc<Sas>, usize)> {
    let (keys, target) = (keys?, request.target.as_ref().ok()?);
    CACHE.with_borrow(|cache| {
        let hash = cache.hash_of(request, target);
        let entry = cache.slots.get(slot_of(hash))?.as_ref().filter(|entry| entry.hash == hash)?;
        let is_same = Arc::ptr_eq(&entry.keys, keys)
            && entry.account == request.account
            && entry.query == request.raw_query
            && entry.target == *target;
        is_same.then(|| (entry.sas.clone(), entry.signer))
    })
}

/// Remembers a link that has just been found right.
pub(crate) fn insert(request: &StorageRequest, keys: Option<&Arc<[Vec<u8>]>>, sas: &Arc<Sas>, signer: usize) {
    let (Some(keys), Ok(target)) = (keys, &request.target) else { return };
    CACHE.with_borrow_mut(|cache| {
        let hash = cache.hash_of(request, target);
        cache.slots.resize_with(CACHE_SLOTS, || None);
        cache.slots[slot_of(hash)] = Some(VerifiedSas {
            hash,
            keys: keys.clone(),
            account: request.account.clone(),
            target: target.clone(),
            query: request.raw_query.clone(),
            sas: sas.clone(),
            signer,
        });
    });
}

impl SasCache {
    fn hash_of(&self, request: &StorageRequest, target: &Target) -> u64 {
        self.hasher.hash_one((&request.raw_query, target.path.as_str()))
    }
}

fn slot_of(hash: u64) -> usize {
    (hash % CACHE_SLOTS as u64) as usize
}

/// How many links this thread remembers.
#[cfg(test)]
pub(crate) fn cached_count() -> usize {
    CACHE.with_borrow(|cache| cache.slots.iter().flatten().count())
}
