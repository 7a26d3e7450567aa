//! Chooses the environments to remove from a full cache: the least recently used, never one in use. Pure.

use std::time::SystemTime;

/// Bounds of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    pub max_environments: usize,
    pub max_bytes: u64,
}

/// An environment as far as its removal depends on it.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    pub last_used: SystemTime,
    pub bytes: u64,
    /// Used by a job, or being made.
    pub is_in_use: bool,
}

/// Indices of the environments to remove, until the rest is within the limits or in use.
pub fn choose_evictions(candidates: &[Candidate], limits: CacheLimits) -> Vec<usize> {
    let mut n_left = candidates.len();
    let mut bytes_left: u64 = candidates.iter().map(|candidate| candidate.bytes).sum();
    let mut unused: Vec<usize> = (0..candidates.len()).filter(|idx| !candidates[*idx].is_in_use).collect();
    unused.sort_by_key(|idx| candidates[*idx].last_used);
    let is_needed = |idx: &usize| {
        let is_over = n_left > limits.max_environments || bytes_left > limits.max_bytes;
        if is_over {
            n_left -= 1;
            bytes_left -= candidates[*idx].bytes;
        }
        is_over
    };
    unused.into_iter().take_while(is_needed).collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    /// Each as `(last used, bytes, in use)`.
    fn check(candidates: &[(u64, u64, bool)], (max_environments, max_bytes): (usize, u64), expected: &[usize]) {
        let candidate = |&(seconds, bytes, is_in_use): &(u64, u64, bool)| Candidate {
            last_used: UNIX_EPOCH + Duration::from_secs(seconds),
            bytes,
            is_in_use,
        };
        let given: Vec<Candidate> = candidates.iter().map(candidate).collect();
        assert_eq!(choose_evictions(&given, CacheLimits { max_environments, max_bytes }), expected, "{candidates:?}");
    }

    #[test]
    fn the_least_recently_used_are_removed_first() {
        let three = [(30, 5, false), (10, 5, false), (20, 5, false)];
        check(&three, (3, 15), &[]);
        check(&three, (2, 100), &[1]);
        check(&three, (1, 100), &[1, 2]);
        check(&three, (3, 14), &[1]);
        check(&three, (3, 4), &[1, 2, 0]);
        check(&[], (1, 0), &[]);
    }

    #[test]
    fn environments_in_use_stay_and_count() {
        check(&[(1, 50, true), (2, 5, false), (3, 5, false)], (3, 55), &[1]);
        check(&[(1, 50, true), (2, 5, true)], (1, 10), &[]);
    }
}
