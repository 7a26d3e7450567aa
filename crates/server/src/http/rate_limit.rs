//! Rate limits: a token bucket per principal (reads and writes apart), per storage account, and per client address for requests
//! without login. Time is an argument.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use corro_file_service::RateLimiter;

/// Requests per second. A bucket holds `BURST_SECONDS` worth of them.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Per principal, reads and writes each; also per storage account, for all holders of its keys and SAS URLs together.
    pub per_principal: u32,
    /// Per client address, for requests without login.
    pub per_address: u32,
}

impl Rates {
    /// Enough for thousands of submits per second from one principal; a client without login needs one token only.
    pub const DEFAULT: Rates = Rates { per_principal: 20_000, per_address: 500 };
}

/// Capacity of a bucket in seconds' worth of requests.
const BURST_SECONDS: u32 = 10;
/// Maximum number of buckets. A full bucket was not used lately, so it may be dropped.
const MAX_BUCKETS: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RateKey {
    Reads(String),
    Writes(String),
    /// Requests signed for this storage account.
    Account(String),
    /// Requests without login from this address.
    Address(String),
}

/// Result of a rate check: allowed with the requests left, or the time to wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    Allowed { remaining: u32 },
    RetryAfter(Duration),
}

pub struct RateLimits {
    rates: Rates,
    buckets: Mutex<HashMap<RateKey, Bucket>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl RateLimits {
    pub fn new(rates: Rates) -> RateLimits {
        RateLimits { rates, buckets: Mutex::new(HashMap::new()) }
    }

    /// Takes one request from the bucket of `key`.
    pub fn acquire(&self, key: RateKey, now: Instant) -> Decision {
        let rate = match key {
            RateKey::Reads(_) | RateKey::Writes(_) | RateKey::Account(_) => self.rates.per_principal,
            RateKey::Address(_) => self.rates.per_address,
        };
        let rate = f64::from(rate.max(1));
        let full = rate * f64::from(BURST_SECONDS);
        let mut buckets = self.buckets.lock().expect("never poisoned: nothing panics while it is locked");
        if buckets.len() >= MAX_BUCKETS && !buckets.contains_key(&key) {
            let refill_time = Duration::from_secs(u64::from(BURST_SECONDS));
            buckets.retain(|_, bucket| now.saturating_duration_since(bucket.at) < refill_time);
            if buckets.len() >= MAX_BUCKETS {
                // So many callers at once are an attack; those that came first are served.
                return Decision::RetryAfter(Duration::from_secs(1));
            }
        }
        let bucket = buckets.entry(key).or_insert(Bucket { tokens: full, at: now });
        let elapsed_s = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.tokens = (bucket.tokens + elapsed_s * rate).min(full);
        bucket.at = now;
        if bucket.tokens < 1.0 {
            return Decision::RetryAfter(Duration::from_secs_f64((1.0 - bucket.tokens) / rate));
        }
        bucket.tokens -= 1.0;
        Decision::Allowed { remaining: bucket.tokens as u32 }
    }
}

impl RateLimiter for RateLimits {
    fn admit_account(&self, account: &str) -> Result<(), Duration> {
        self.acquire(RateKey::Account(account.to_owned()), Instant::now()).into_result()
    }

    fn admit_unauthenticated(&self, address: &str) -> Result<(), Duration> {
        self.acquire(RateKey::Address(address.to_owned()), Instant::now()).into_result()
    }
}

impl Decision {
    fn into_result(self) -> Result<(), Duration> {
        match self {
            Decision::Allowed { .. } => Ok(()),
            Decision::RetryAfter(wait) => Err(wait),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_drain_refill_and_are_per_key() {
        let limits = RateLimits::new(Rates { per_principal: 2, per_address: 1 });
        let start = Instant::now();
        let after = |ms: u64| start + Duration::from_millis(ms);
        let alice = || RateKey::Writes("alice".into());
        for left in (0..20).rev() {
            assert_eq!(limits.acquire(alice(), start), Decision::Allowed { remaining: left });
        }
        assert_eq!(limits.acquire(alice(), start), Decision::RetryAfter(Duration::from_millis(500)));
        assert_eq!(limits.acquire(RateKey::Reads("alice".into()), start), Decision::Allowed { remaining: 19 });
        assert_eq!(limits.acquire(RateKey::Writes("bob".into()), start), Decision::Allowed { remaining: 19 });
        assert_eq!(limits.acquire(RateKey::Account("alice".into()), start), Decision::Allowed { remaining: 19 });
        assert_eq!(limits.acquire(RateKey::Account("other".into()), start), Decision::Allowed { remaining: 19 });
        assert_eq!(limits.acquire(RateKey::Address("10.0.0.1".into()), start), Decision::Allowed { remaining: 9 });
        assert_eq!(limits.acquire(alice(), after(500)), Decision::Allowed { remaining: 0 });
        assert!(matches!(limits.acquire(alice(), after(501)), Decision::RetryAfter(_)));
        // A long pause fills the bucket to its capacity only.
        assert_eq!(limits.acquire(alice(), after(3_600_000)), Decision::Allowed { remaining: 19 });
    }

    #[test]
    fn the_number_of_buckets_is_bounded() {
        let limits = RateLimits::new(Rates::DEFAULT);
        let start = Instant::now();
        for number in 0..MAX_BUCKETS {
            assert!(matches!(limits.acquire(RateKey::Address(number.to_string()), start), Decision::Allowed { .. }));
        }
        assert!(matches!(limits.acquire(RateKey::Address("late".into()), start), Decision::RetryAfter(_)));
        // Known callers continue, and a little later there is space again.
        assert!(matches!(limits.acquire(RateKey::Address("0".into()), start), Decision::Allowed { .. }));
        let later = start + Duration::from_secs(u64::from(BURST_SECONDS) + 1);
        assert!(matches!(limits.acquire(RateKey::Address("late".into()), later), Decision::Allowed { .. }));
        assert!(limits.buckets.lock().expect("free").len() <= MAX_BUCKETS);
    }
}
