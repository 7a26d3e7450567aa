//! Bounds the memory of upload bodies: a number of uploads at once over all connections, and fewer for one account, so
//! that busy clients of one account do not block the others. A permit is acquired before the first byte of a body is
//! read; a waiting upload stays in its socket.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// 64 bodies of at most 4 MiB.
const MAX_UPLOADS: usize = 64;
const MAX_UPLOADS_PER_ACCOUNT: usize = 16;
/// Accounts tracked before idle ones are dropped.
const MAX_TRACKED_ACCOUNTS: usize = 100;

pub(crate) struct UploadPermits {
    all: Arc<Semaphore>,
    accounts: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// Held until the body is written to disk.
pub(crate) struct UploadPermit {
    _of_account: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Default for UploadPermits {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(MAX_UPLOADS)), accounts: Mutex::default() }
    }
}

impl UploadPermits {
    /// Waits for a permit. The account's own limit comes first: a request waiting for it takes nothing from other
    /// accounts.
    pub async fn acquire(&self, account: &str) -> UploadPermit {
        let own = self.account_semaphore(account).acquire_owned().await.expect("the semaphores are never closed");
        let of_all = self.all.clone().acquire_owned().await.expect("the semaphores are never closed");
        UploadPermit { _of_account: own, _of_all: of_all }
    }

    fn account_semaphore(&self, account: &str) -> Arc<Semaphore> {
        let mut accounts = self.accounts.lock().expect("no one panics while holding the accounts");
        if accounts.len() >= MAX_TRACKED_ACCOUNTS {
            // A permit holds an `Arc` of its semaphore, so a semaphore with no other owner has all its permits.
            accounts.retain(|_, permits| Arc::strong_count(permits) > 1);
        }
        accounts.entry(account.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(MAX_UPLOADS_PER_ACCOUNT))).clone()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn one_account_cannot_take_all_permits() {
        let permits = UploadPermits::default();
        let take = |account: &str| permits.acquire(account).now_or_never();
        let mut busy: Vec<UploadPermit> = (0..MAX_UPLOADS_PER_ACCOUNT).filter_map(|_| take("busy")).collect();
        assert_eq!(busy.len(), MAX_UPLOADS_PER_ACCOUNT);
        assert!(take("busy").is_none() && take("other").is_some());
        busy.pop();
        assert!(take("busy").is_some());
        for number in 0..2 * MAX_TRACKED_ACCOUNTS {
            assert!(take(&number.to_string()).is_some());
        }
        assert!(permits.accounts.lock().expect("free").len() <= MAX_TRACKED_ACCOUNTS + 1, "idle accounts are dropped");
        busy.extend(take("busy"));
        assert!(take("busy").is_none(), "busy accounts stay");
        let all: Vec<UploadPermit> = (0..MAX_UPLOADS).filter_map(|number| take(&(number / 8).to_string())).collect();
        assert_eq!(all.len() + busy.len(), MAX_UPLOADS);
    }
}
