//! Room in memory for the bodies of uploads: so many at once, whatever the number of connections, and of one account no
//! more than a part of them, so that the slow clients of one do not keep the others waiting. Entered by `upload` before the
//! first byte of a body is read; whoever finds no room waits, unread, in its socket.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// 64 × 4 MiB.
const ALL: usize = 64;
const OF_ONE_ACCOUNT: usize = 16;
/// Accounts that are remembered before those that nobody uploads to are forgotten.
const REMEMBERED: usize = 100;

pub(crate) struct Rooms {
    all: Arc<Semaphore>,
    accounts: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// Kept until what was read lies on the disk.
pub(crate) struct Room {
    _own: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Default for Rooms {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(ALL)), accounts: Mutex::default() }
    }
}

impl Rooms {
    /// Waits until there is room. The account's own share first: who waits for that takes nothing from the others.
    pub async fn take(&self, account: &str) -> Room {
        let own = self.of(account).acquire_owned().await.expect("nobody closes the rooms");
        let of_all = self.all.clone().acquire_owned().await.expect("nobody closes the rooms");
        Room { _own: own, _of_all: of_all }
    }

    fn of(&self, account: &str) -> Arc<Semaphore> {
        let mut accounts = self.accounts.lock().expect("no one panics while holding the accounts");
        if accounts.len() >= REMEMBERED {
            // A permit holds its semaphore, so one that nobody else holds is whole.
            accounts.retain(|_, rooms| Arc::strong_count(rooms) > 1);
        }
        accounts.entry(account.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(OF_ONE_ACCOUNT))).clone()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn one_account_leaves_room_for_the_others() {
        let rooms = Rooms::default();
        let take = |account: &str| rooms.take(account).now_or_never();
        let mut slow: Vec<Room> = (0..OF_ONE_ACCOUNT).filter_map(|_| take("slow")).collect();
        assert_eq!(slow.len(), OF_ONE_ACCOUNT);
        assert!(take("slow").is_none() && take("other").is_some());
        slow.pop();
        assert!(take("slow").is_some());
        for number in 0..2 * REMEMBERED {
            assert!(take(&number.to_string()).is_some());
        }
        assert!(rooms.accounts.lock().expect("free").len() <= REMEMBERED + 1, "those who left are forgotten");
        slow.extend(take("slow"));
        assert!(take("slow").is_none(), "those who stay are not");
        let all: Vec<Room> = (0..ALL).filter_map(|number| take(&(number / 8).to_string())).collect();
        assert_eq!(all.len() + slow.len(), ALL);
    }
}
