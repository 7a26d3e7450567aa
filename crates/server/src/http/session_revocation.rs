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
const EXPIRY_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Says which credentials are good now.
pub trait CredentialCheck: Send + Sync + 'static {
    /// Of a principal, as `app::tokens` marks it.
    fn is_principal_valid(&self, principal: &str) -> bool;
    /// Does the storage account have a key with this mark?
    fn has_key(&self, account: &str, fingerprint: u64) -> bool;
}

/// Tells keys apart in this process, and says nothing about them.
pub fn key_fingerprint(key: &[u8]) -> u64 {
    static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    STATE.hash_one(key)
}

/// Every connection there is; clones share them.
#[derive(Clone, Default)]
pub struct ConnectionRegistry(Arc<Inner>);

#[derive(Default)]
struct Inner {
    next: AtomicU64,
    entries: Mutex<HashMap<u64, Arc<ConnectionEntry>>>,
}

/// One connection.
#[derive(Default)]
pub struct ConnectionEntry {
    credential: Mutex<ConnCredential>,
    revocation: Notify,
    is_revoked: AtomicBool,
}

/// What the caller of the request in progress has shown. Empty parts ask for nothing.
#[derive(Default)]
struct ConnCredential {
    principal: String,
    account: String,
    key: u64,
    /// Unix seconds at which it ends by itself.
    until: Option<i64>,
}

/// Kept while the connection is; takes it off the list when it ends.
pub struct Registration {
    registry: ConnectionRegistry,
    number: u64,
    pub entry: Arc<ConnectionEntry>,
}

/// Put into the extensions of requests: where to say on whose behalf they are answered.
#[derive(Clone)]
pub struct RequestAuth(pub Arc<ConnectionEntry>);

#[cfg(test)]
impl ConnectionRegistry {
    /// Whether a request is in progress that was signed with a key of the account.
    pub fn has_key_of(&self, account: &str) -> bool {
        self.entries().values().any(|entry| entry.credential().account == account)
    }
}

impl RequestAuth {
    /// Of a principal, until its token ends. A stream that should go on longer must be asked for again.
    pub fn set_principal(&self, principal: &str, until: i64) {
        let mut credential = self.0.credential();
        credential.principal.push_str(principal);
        credential.until = Some(until);
    }

    /// Of somebody with the key of a storage account, or with a link signed with it and made for `principal`, if anybody. A link's
    /// own end is not kept: what it opened in time may be read to its end.
    pub fn set_key(&self, account: &str, fingerprint: u64, principal: &str) {
        let mut credential = self.0.credential();
        credential.account.push_str(account);
        credential.key = fingerprint;
        credential.principal.push_str(principal);
    }
}

impl CredentialSink for RequestAuth {
    fn set_storage_key(&self, account: &str, key: &[u8], on_behalf_of: &str) {
        self.set_key(account, key_fingerprint(key), on_behalf_of);
    }
}

impl ConnectionEntry {
    /// Before each request: nobody is known yet.
    pub fn clear(&self) {
        let mut credential = self.credential();
        credential.principal.clear();
        credential.account.clear();
        credential.until = None;
    }

    /// Returns when the connection has to end at once.
    pub async fn revoked(&self) {
        self.revocation.notified().await;
    }

    pub fn is_revoked(&self) -> bool {
        self.is_revoked.load(Ordering::Relaxed)
    }

    fn revoke(&self) {
        self.is_revoked.store(true, Ordering::Relaxed);
        self.revocation.notify_one();
    }

    fn credential(&self) -> MutexGuard<'_, ConnCredential> {
        self.credential.lock().expect("never poisoned: nothing panics while it is locked")
    }
}

impl ConnCredential {
    fn is_valid(&self, check: &dyn CredentialCheck) -> bool {
        let principal = self.principal.is_empty() || check.is_principal_valid(&self.principal);
        principal && (self.account.is_empty() || check.has_key(&self.account, self.key))
    }

    fn is_expired(&self, now: i64) -> bool {
        self.until.is_some_and(|revoke| revoke <= now)
    }
}

impl ConnectionRegistry {
    pub fn register(&self) -> Registration {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let entry = Arc::new(ConnectionEntry::default());
        self.entries().insert(number, entry.clone());
        Registration { registry: self.clone(), number, entry }
    }

    /// Cuts what is no longer good, until the server stops.
    pub async fn run(
        self,
        store: Store,
        check: Arc<dyn CredentialCheck>,
        now: fn() -> i64,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut changes = store.changes();
        let mut ticks = tokio::time::interval(EXPIRY_CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = store.snapshot();
        // A caller may have been let in just before a change and be written down just after it was looked for.
        let mut recheck = false;
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
            if changed || (is_tick && recheck) {
                self.revoke_if(|credential| !credential.is_valid(&*check));
            }
            if is_tick {
                let now = now();
                self.revoke_if(|credential| credential.is_expired(now));
            }
            recheck = changed || (recheck && !is_tick);
        }
    }

    fn revoke_if(&self, is_expired: impl Fn(&ConnCredential) -> bool) {
        let entries: Vec<Arc<ConnectionEntry>> = self.entries().values().cloned().collect();
        let over = entries.into_iter().filter(|entry| is_expired(&entry.credential()));
        over.for_each(|entry| entry.revoke());
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<u64, Arc<ConnectionEntry>>> {
        self.0.entries.lock().expect("never poisoned: nothing panics while it is locked")
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.entries().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Only(&'static str, &'static [u8]);

    impl CredentialCheck for Only {
        fn is_principal_valid(&self, principal: &str) -> bool {
            principal == self.0
        }

        fn has_key(&self, account: &str, fingerprint: u64) -> bool {
            account == "acc" && fingerprint == key_fingerprint(self.1)
        }
    }

    #[test]
    fn a_connection_is_revoked_for_the_request_in_progress_only() {
        let registry = ConnectionRegistry::default();
        let registration = registry.register();
        let auth = RequestAuth(registration.entry.clone());
        let expect = |check: Only, expected: bool| {
            assert_eq!(registration.entry.credential().is_valid(&check), expected);
        };
        expect(Only("", b""), true);
        auth.set_key("acc", key_fingerprint(b"old"), "me");
        expect(Only("me", b"old"), true);
        expect(Only("me", b"new"), false);
        expect(Only("you", b"old"), false);
        registration.entry.clear();
        auth.set_principal("you", 100);
        expect(Only("you", b"new"), true);
        let is_expired = |now| registration.entry.credential().is_expired(now);
        assert!(!is_expired(99) && is_expired(100));
        registry.revoke_if(|credential| credential.is_expired(99));
        assert!(!registration.entry.is_revoked());
        registry.revoke_if(|credential| credential.is_expired(100));
        assert!(registration.entry.is_revoked());
        drop(registration);
        assert!(registry.entries().is_empty());
    }
}
