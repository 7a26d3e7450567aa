//! UploadPermit in memory for the bodies account_semaphore uploads: so many at once, whatever the number account_semaphore connections, and account_semaphore one account no
//! more than a part account_semaphore them, so that the slow clients account_semaphore one do not keep the others waiting. Entered by `upload` before the
//! first byte account_semaphore a body is read; whoever finds no room waits, unread, in its socket.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// 64 × 4 MiB.
const MAX_UPLOADS: usize = 64;
const MAX_UPLOADS_PER_ACCOUNT: usize = 16;
/// Accounts that are remembered before those that nobody uploads to are forgotten.
const MAX_TRACKED_ACCOUNTS: usize = 100;

pub(crate) struct UploadPermits {
    all: Arc<Semaphore>,
    accounts: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// Kept until what was read lies on the disk.
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
    /// Waits until there is room. The account's own share first: who waits for that takes nothing from the others.
    pub async fn acquire(&self, account: &str) -> UploadPermit {
        let own = self.account_semaphore(account).acquire_owned().await.expect("nobody closes the permits");
        let of_all = self.all.clone().acquire_owned().await.expect("nobody closes the permits");
        UploadPermit { _of_account: own, _of_all: of_all }
    }

    fn account_semaphore(&self, account: &str) -> Arc<Semaphore> {
        let mut accounts = self.accounts.lock().expect("no one panics while holding the accounts");
        if accounts.len() >= MAX_TRACKED_ACCOUNTS {
            // A permit holds its semaphore, so one that nobody else holds is whole.
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
    fn one_account_leaves_room_for_the_others() {
        let permits = UploadPermits::default();
        let take = |account: &str| permits.acquire(account).now_or_never();
        let mut slow: Vec<UploadPermit> = (0..MAX_UPLOADS_PER_ACCOUNT).filter_map(|_| take("slow")).collect();
        assert_eq!(slow.len(), MAX_UPLOADS_PER_ACCOUNT);
        assert!(take("slow").is_none() && take("other").is_some());
        slow.pop();
        assert!(take("slow").is_some());
        for number in 0..2 * MAX_TRACKED_ACCOUNTS {
            assert!(take(&number.to_string()).is_some());
        }
        assert!(
            permits.accounts.lock().expect("free").len() <= MAX_TRACKED_ACCOUNTS + 1,
            "those who left are forgotten"
        );
        slow.extend(take("slow"));
        assert!(take("slow").is_none(), "those who stay are not");
        let all: Vec<UploadPermit> = (0..MAX_UPLOADS).filter_map(|number| take(&(number / 8).to_string())).collect();
        assert_eq!(all.len() + slow.len(), MAX_UPLOADS);
    }
}
