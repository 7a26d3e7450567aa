//! Cache of decrypted account keys, with which the file service verifies every signature. Keys are decrypted once per
//! record, because that takes longer than verifying a signature. An entry is valid only for the record it was made
//! from, so a new key or a deletion takes effect at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use corro_file_service::AccountKeys;
use corro_model::names::{FILE_SERVERS, JOB_SHARED};
use corro_store::AccountRecord;

use crate::app::App;
use crate::app::resources::warnings::share_in_use_warning;
use crate::http::connection::session_revocation::{CredentialCheck, key_fingerprint};

/// Capacity; a full cache is cleared.
const MAX_CACHED_ACCOUNTS: usize = 1000;

pub struct AccountKeyCache {
    app: App,
    opened: Mutex<HashMap<String, CachedKeys>>,
}

struct CachedKeys {
    record: Arc<AccountRecord>,
    keys: Arc<[Vec<u8>]>,
}

impl AccountKeyCache {
    pub fn new(app: App) -> Self {
        Self { app, opened: Mutex::default() }
    }
}

impl AccountKeys for AccountKeyCache {
    fn keys(&self, account: &str) -> Option<Arc<[Vec<u8>]>> {
        if let FILE_SERVERS | JOB_SHARED = account {
            return Some(Arc::from([self.app.internal_account_key(account)]));
        }
        let snapshot = self.app.snapshot();
        let record = snapshot.accounts.get(account)?;
        let mut opened = self.opened.lock().expect("no one panics while holding the keys");
        if let Some(known) = opened.get(account).filter(|known| Arc::ptr_eq(&known.record, record)) {
            return Some(known.keys.clone());
        }
        let keys: Arc<[_]> = self.app.decode_account_keys(account, record)?.into();
        if opened.len() >= MAX_CACHED_ACCOUNTS {
            opened.clear();
        }
        opened.insert(account.to_owned(), CachedKeys { record: record.clone(), keys: keys.clone() });
        Some(keys)
    }

    fn is_login_valid(&self, by: &str) -> bool {
        self.app.is_credential_valid(by)
    }

    fn share_users(&self, account: &str, share: &str) -> Option<String> {
        share_in_use_warning(&self.app.snapshot(), account, share)
    }
}

impl CredentialCheck for AccountKeyCache {
    fn is_principal_valid(&self, by: &str) -> bool {
        self.app.is_credential_valid(by)
    }

    fn has_key(&self, account: &str, mark: u64) -> bool {
        self.keys(account).is_some_and(|keys| keys.iter().any(|key| key_fingerprint(key) == mark))
    }
}
