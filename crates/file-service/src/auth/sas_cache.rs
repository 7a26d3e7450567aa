//! Per-thread cache of SAS URLs with a verified signature, so that mounts and log followers do not cost an HMAC per
//! request. The terms (time, address, protocol) are still checked on each request. An entry is valid for the account
//! keys it was verified with, so it misses after a key rotation.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use corro_model::storage::sas::Sas;

use crate::protocol::request::{StorageRequest, Target};

/// Entries per thread, less than 1 kB each.
const CACHE_SLOTS: usize = 512;

struct VerifiedSas {
    hash: u64,
    /// Owned, so that a new allocation with other keys cannot have the same address.
    keys: Arc<[Vec<u8>]>,
    account: String,
    target: Target,
    query: String,
    sas: Arc<Sas>,
    signer: usize,
}

#[derive(Default)]
struct SasCache {
    /// Randomly seeded: the timing of a lookup must not reveal how close a guessed signature is.
    hasher: RandomState,
    slots: Vec<Option<VerifiedSas>>,
}

thread_local! {
    static CACHE: RefCell<SasCache> = RefCell::default();
}

/// The verified SAS of a request, and the index of the key that signed it.
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

/// Inserts a SAS whose signature was just verified.
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

/// Number of entries of this thread.
#[cfg(test)]
pub(crate) fn cached_count() -> usize {
    CACHE.with_borrow(|cache| cache.slots.iter().flatten().count())
}
