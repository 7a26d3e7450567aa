//! On whose behalf every connection is used. When what its caller showed is no longer good - revoked, replaced, deleted,
//! expired - the connection is cut, whatever happens on it: a poll that is held, an upload, a download whose client has
//! stopped reading, a stream of events. Entered by the listener for each connection, by the doors once they know who asks,
//! and by one task that looks whenever the store has changed. Costs a request one lock and no allocation.
//!
//! HTTP/1.1 has one request at a time on a connection, so there is one place to remember the caller in.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::Duration;

use corro_file_service::CredentialSink;
use corro_store::Store;
use tokio::sync::{Notify, watch};
use tokio::time::MissedTickBehavior;

/// How soon what ends by itself is noticed. What is revoked is noticed with the change.
const TICK: Duration = Duration::from_secs(1);

/// Says which credentials are good now.
pub trait Judge: Send + Sync + 'static {
    /// Of a principal, as `app::tokens` marks it.
    fn stands(&self, by: &str) -> bool;
    /// Does the storage account have a key with this mark?
    fn has_key(&self, account: &str, mark: u64) -> bool;
}

/// Tells keys apart in this process, and says nothing about them.
pub fn key_mark(key: &[u8]) -> u64 {
    static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    STATE.hash_one(key)
}

/// Every connection there is; clones share them.
#[derive(Clone, Default)]
pub struct Standing(Arc<Inner>);

#[derive(Default)]
struct Inner {
    next: AtomicU64,
    seats: Mutex<HashMap<u64, Arc<Seat>>>,
}

/// One connection.
#[derive(Default)]
pub struct Seat {
    shown: Mutex<Shown>,
    cut: Notify,
    is_cut: AtomicBool,
}

/// What the caller of the request in progress has shown. Empty parts ask for nothing.
#[derive(Default)]
struct Shown {
    by: String,
    account: String,
    key: u64,
    /// Unix seconds at which it ends by itself.
    until: Option<i64>,
}

/// Kept while the connection is; takes it off the list when it ends.
pub struct Seated {
    standing: Standing,
    number: u64,
    pub seat: Arc<Seat>,
}

/// Put into the extensions of requests: where to say on whose behalf they are answered.
#[derive(Clone)]
pub struct Behalf(pub Arc<Seat>);

#[cfg(test)]
impl Standing {
    /// Whether a request is in progress that was signed with a key of the account.
    pub fn has_key_of(&self, account: &str) -> bool {
        self.seats().values().any(|seat| seat.shown().account == account)
    }
}

impl Behalf {
    /// Of a principal, until its token ends. A stream that should go on longer must be asked for again.
    pub fn of_principal(&self, by: &str, until: i64) {
        let mut shown = self.0.shown();
        shown.by.push_str(by);
        shown.until = Some(until);
    }

    /// Of somebody with the key of a storage account, or with a link signed with it and made for `by`, if anybody. A link's
    /// own end is not kept: what it opened in time may be read to its end.
    pub fn of_key(&self, account: &str, mark: u64, by: &str) {
        let mut shown = self.0.shown();
        shown.account.push_str(account);
        shown.key = mark;
        shown.by.push_str(by);
    }
}

impl CredentialSink for Behalf {
    fn set_storage_key(&self, account: &str, key: &[u8], on_behalf_of: &str) {
        self.of_key(account, key_mark(key), on_behalf_of);
    }
}

impl Seat {
    /// Before each request: nobody is known yet.
    pub fn clear(&self) {
        let mut shown = self.shown();
        shown.by.clear();
        shown.account.clear();
        shown.until = None;
    }

    /// Returns when the connection has to end at once.
    pub async fn cut(&self) {
        self.cut.notified().await;
    }

    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    fn end(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
        self.cut.notify_one();
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().expect("no one panics while holding what was shown")
    }
}

impl Shown {
    fn holds(&self, judge: &dyn Judge) -> bool {
        let principal = self.by.is_empty() || judge.stands(&self.by);
        principal && (self.account.is_empty() || judge.has_key(&self.account, self.key))
    }

    fn is_over(&self, now: i64) -> bool {
        self.until.is_some_and(|end| end <= now)
    }
}

impl Standing {
    pub fn seat(&self) -> Seated {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let seat = Arc::new(Seat::default());
        self.seats().insert(number, seat.clone());
        Seated { standing: self.clone(), number, seat }
    }

    /// Cuts what is no longer good, until the server stops.
    pub async fn watch(self, store: Store, judge: Arc<dyn Judge>, now: fn() -> i64, mut stop: watch::Receiver<bool>) {
        let mut changes = store.changes();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = store.snapshot();
        // A caller may have been let in just before a change and be written down just after it was looked for.
        let mut look_again = false;
        loop {
            let is_tick = tokio::select! {
                changed = changes.changed() => match changed {
                    Ok(()) => false,
                    Err(_) => return,
                },
                _ = ticks.tick() => true,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            let state = store.snapshot();
            // Tables share what did not change, so this looks at two addresses.
            let changed = !state.principals.ptr_eq(&seen.principals) || !state.accounts.ptr_eq(&seen.accounts);
            seen = state;
            if changed || (is_tick && look_again) {
                self.cut_if(|shown| !shown.holds(&*judge));
            }
            if is_tick {
                let now = now();
                self.cut_if(|shown| shown.is_over(now));
            }
            look_again = changed || (look_again && !is_tick);
        }
    }

    fn cut_if(&self, is_over: impl Fn(&Shown) -> bool) {
        let seats: Vec<Arc<Seat>> = self.seats().values().cloned().collect();
        let over = seats.into_iter().filter(|seat| is_over(&seat.shown()));
        over.for_each(|seat| seat.end());
    }

    fn seats(&self) -> MutexGuard<'_, HashMap<u64, Arc<Seat>>> {
        self.0.seats.lock().expect("no one panics while holding the connections")
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.standing.seats().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Only(&'static str, &'static [u8]);

    impl Judge for Only {
        fn stands(&self, by: &str) -> bool {
            by == self.0
        }

        fn has_key(&self, account: &str, mark: u64) -> bool {
            account == "acc" && mark == key_mark(self.1)
        }
    }

    #[test]
    fn a_connection_is_cut_for_the_request_in_progress_only() {
        let standing = Standing::default();
        let seated = standing.seat();
        let behalf = Behalf(seated.seat.clone());
        let check = |judge: Only, expected: bool| {
            assert_eq!(seated.seat.shown().holds(&judge), expected);
        };
        check(Only("", b""), true);
        behalf.of_key("acc", key_mark(b"old"), "me");
        check(Only("me", b"old"), true);
        check(Only("me", b"new"), false);
        check(Only("you", b"old"), false);
        seated.seat.clear();
        behalf.of_principal("you", 100);
        check(Only("you", b"new"), true);
        let is_over = |now| seated.seat.shown().is_over(now);
        assert!(!is_over(99) && is_over(100));
        standing.cut_if(|shown| shown.is_over(99));
        assert!(!seated.seat.is_cut());
        standing.cut_if(|shown| shown.is_over(100));
        assert!(seated.seat.is_cut());
        drop(seated);
        assert!(standing.seats().is_empty());
    }
}
