//! How much one caller may ask for: a bucket of requests for each principal, for each storage account and, for those who
//! have not shown who they are, for each address. Pure but for its lock: time is an argument. Entered by `http` for every
//! request.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use corro_file_service::RateLimiter;

/// Requests a second. A bucket holds so many seconds' worth, for bursts.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Of one principal, reads and writes each; of all who hold a key or a link of one storage account, together.
    pub per_principal: u32,
    /// Of everybody at one address who has not logged in.
    pub per_address: u32,
}

impl Rates {
    /// Enough for thousands of submits a second from one principal; strangers need one token each.
    pub const USUAL: Rates = Rates { per_principal: 20_000, per_address: 500 };
}

/// Seconds' worth of requests that a bucket holds.
const BURST: u32 = 10;
/// Callers that are remembered. A full bucket is one that nobody has asked from lately, so it may be forgotten.
const MAX_BUCKETS: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Asker {
    Reads(String),
    Writes(String),
    /// Whoever signed for this storage account.
    Account(String),
    /// Nobody knows who, but from where.
    Stranger(String),
}

/// What is left after a request was let through, or how long to wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    Granted { remaining: u32 },
    Wait(Duration),
}

pub struct Limits {
    rates: Rates,
    buckets: Mutex<HashMap<Asker, Bucket>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Limits {
    pub fn new(rates: Rates) -> Limits {
        Limits { rates, buckets: Mutex::new(HashMap::new()) }
    }

    /// Takes one request out of the asker's bucket.
    pub fn take(&self, asker: Asker, now: Instant) -> Verdict {
        let rate = match asker {
            Asker::Reads(_) | Asker::Writes(_) | Asker::Account(_) => self.rates.per_principal,
            Asker::Stranger(_) => self.rates.per_address,
        };
        let rate = f64::from(rate.max(1));
        let full = rate * f64::from(BURST);
        let mut buckets = self.buckets.lock().expect("no one panics while holding the buckets");
        if buckets.len() >= MAX_BUCKETS && !buckets.contains_key(&asker) {
            let patience = Duration::from_secs(u64::from(BURST));
            buckets.retain(|_, bucket| now.saturating_duration_since(bucket.at) < patience);
            if buckets.len() >= MAX_BUCKETS {
                // So many at once are an attack; those who come first are served first.
                return Verdict::Wait(Duration::from_secs(1));
            }
        }
        let bucket = buckets.entry(asker).or_insert(Bucket { tokens: full, at: now });
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.tokens = (bucket.tokens + passed * rate).min(full);
        bucket.at = now;
        if bucket.tokens < 1.0 {
            return Verdict::Wait(Duration::from_secs_f64((1.0 - bucket.tokens) / rate));
        }
        bucket.tokens -= 1.0;
        Verdict::Granted { remaining: bucket.tokens as u32 }
    }
}

impl RateLimiter for Limits {
    fn admit_account(&self, account: &str) -> Result<(), Duration> {
        self.take(Asker::Account(account.to_owned()), Instant::now()).into_result()
    }

    fn admit_unauthenticated(&self, address: &str) -> Result<(), Duration> {
        self.take(Asker::Stranger(address.to_owned()), Instant::now()).into_result()
    }
}

impl Verdict {
    fn into_result(self) -> Result<(), Duration> {
        match self {
            Verdict::Granted { .. } => Ok(()),
            Verdict::Wait(wait) => Err(wait),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_empties_fills_again_and_is_the_askers_own() {
        let limits = Limits::new(Rates { per_principal: 2, per_address: 1 });
        let start = Instant::now();
        let after = |ms: u64| start + Duration::from_millis(ms);
        let alice = || Asker::Writes("alice".into());
        for left in (0..20).rev() {
            assert_eq!(limits.take(alice(), start), Verdict::Granted { remaining: left });
        }
        assert_eq!(limits.take(alice(), start), Verdict::Wait(Duration::from_millis(500)));
        assert_eq!(limits.take(Asker::Reads("alice".into()), start), Verdict::Granted { remaining: 19 });
        assert_eq!(limits.take(Asker::Writes("bob".into()), start), Verdict::Granted { remaining: 19 });
        assert_eq!(limits.take(Asker::Account("alice".into()), start), Verdict::Granted { remaining: 19 });
        assert_eq!(limits.take(Asker::Account("other".into()), start), Verdict::Granted { remaining: 19 });
        assert_eq!(limits.take(Asker::Stranger("10.0.0.1".into()), start), Verdict::Granted { remaining: 9 });
        assert_eq!(limits.take(alice(), after(500)), Verdict::Granted { remaining: 0 });
        assert!(matches!(limits.take(alice(), after(501)), Verdict::Wait(_)));
        // Long silence fills it, and no more than that.
        assert_eq!(limits.take(alice(), after(3_600_000)), Verdict::Granted { remaining: 19 });
    }

    #[test]
    fn strangers_from_everywhere_do_not_fill_the_memory() {
        let limits = Limits::new(Rates::USUAL);
        let start = Instant::now();
        for number in 0..MAX_BUCKETS {
            assert!(matches!(limits.take(Asker::Stranger(number.to_string()), start), Verdict::Granted { .. }));
        }
        assert!(matches!(limits.take(Asker::Stranger("late".into()), start), Verdict::Wait(_)));
        // Those who were there go on, and a little later there is room.
        assert!(matches!(limits.take(Asker::Stranger("0".into()), start), Verdict::Granted { .. }));
        let later = start + Duration::from_secs(u64::from(BURST) + 1);
        assert!(matches!(limits.take(Asker::Stranger("late".into()), later), Verdict::Granted { .. }));
        assert!(limits.buckets.lock().expect("free").len() <= MAX_BUCKETS);
    }
}
