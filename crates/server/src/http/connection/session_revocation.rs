//! Revocation of open connections: when the credential of the request in progress is revoked, replaced, deleted or expires, the
//! connection is aborted, whatever happens on it: a held poll, an upload, a download whose client has stopped reading, an event
//! stream. One task checks all connections whenever the store changes. Costs a request one lock and no allocation.
//!
//! HTTP/1.1 has one request at a time per connection, so each connection stores one credential.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::Duration;

use corro_file_service::CredentialSink;
use corro_store::Store;
use tokio::sync::{Notify, watch};
use tokio::time::MissedTickBehavior;

/// Interval at which expiry is checked. Revocations take effect with the commit.
const EXPIRY_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Validity of credentials now.
pub trait CredentialCheck: Send + Sync + 'static {
    /// Whether a principal's login, identified as in access tokens, is valid.
    fn is_principal_valid(&self, principal: &str) -> bool;
    /// Whether the storage account has a key with this fingerprint.
    fn has_key(&self, account: &str, fingerprint: u64) -> bool;
}

/// Fingerprint of a key: a keyed hash that is valid in this process only and reveals nothing about the key.
pub fn key_fingerprint(key: &[u8]) -> u64 {
    static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    STATE.hash_one(key)
}

/// All open connections. Clones share them.
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

/// Credential of the request in progress. Empty parts are not checked.
#[derive(Default)]
struct ConnCredential {
    principal: String,
    account: String,
    key: u64,
    /// Expiry in Unix seconds.
    until: Option<i64>,
}

/// Removes the connection from the registry when dropped.
pub struct Registration {
    registry: ConnectionRegistry,
    number: u64,
    pub entry: Arc<ConnectionEntry>,
}

/// Request extension by which handlers set the credential of the request.
#[derive(Clone)]
pub struct RequestAuth(pub Arc<ConnectionEntry>);

#[cfg(test)]
impl ConnectionRegistry {
    /// Whether a request is in progress that is signed with a key of the account.
    pub fn has_key_of(&self, account: &str) -> bool {
        self.entries().values().any(|entry| entry.credential().account == account)
    }
}

impl RequestAuth {
    /// Sets a principal's token with its expiry. Streams end with it; clients reconnect with a new token.
    pub fn set_principal(&self, principal: &str, until: i64) {
        let mut credential = self.0.credential();
        credential.principal.push_str(principal);
        credential.until = Some(until);
    }

    /// Sets a storage key, or a SAS URL signed with it and issued to `principal`, if to one. The expiry of a SAS URL is not stored:
    /// a download that started in time may finish.
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
    /// Clears the credential before each request.
    pub fn clear(&self) {
        let mut credential = self.credential();
        credential.principal.clear();
        credential.account.clear();
        credential.until = None;
    }

    /// Completes when the connection must be aborted.
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

    /// Aborts connections with invalid credentials until the server stops.
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
        // A request may be authenticated just before a change and registered just after the check, so the next tick checks again.
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
            // Unchanged tables share their memory, so this compares two pointers.
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
