//! Files that a program makes and writes at once: the server is told of both in one request, when the file is closed or the first piece of it is full. One
//! that stays open is made soon anyway, and before anybody lists, removes or syncs the directory it is in.
//!
//! Only where nobody can tell the difference but by looking from another machine in that moment: the name was just found not to be there, what others
//! might put there meanwhile would be cut off too, and a file could be made in that directory before.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::{How, Volume, lock};
use crate::cache::BELIEVED;
use crate::open_file::OpenFile;
use crate::remote::Remote;

/// How long a file stays a secret of this machine.
const SOON: Duration = Duration::from_millis(100);
/// How long it is believed that files may be made in a directory.
const PROVEN: Duration = Duration::from_secs(60);
/// Of what was found not to be there.
const MOST_ABSENT: usize = 1_000;

#[derive(Debug)]
pub(super) struct Later<R> {
    /// Names that were looked for, and when.
    absent: HashMap<(u64, String), Instant>,
    /// Directories in which something was made, and when.
    proven: HashMap<u64, Instant>,
    /// Since when they have waited, the oldest first. While there are any, somebody looks after them.
    unmade: Vec<(Instant, Weak<OpenFile<R>>)>,
}

impl<R> Default for Later<R> {
    fn default() -> Later<R> {
        Later { absent: HashMap::new(), proven: HashMap::new(), unmade: Vec::new() }
    }
}

impl<R> Later<R> {
    pub(super) fn on_absent(&mut self, parent: u64, name: &str) {
        if self.absent.len() >= MOST_ABSENT {
            self.absent.retain(|_, at| at.elapsed() < BELIEVED);
            if self.absent.len() >= MOST_ABSENT {
                self.absent.clear();
            }
        }
        self.absent.insert((parent, name.to_owned()), Instant::now());
    }

    pub(super) fn on_made(&mut self, parent: u64) {
        if self.proven.len() >= MOST_ABSENT {
            self.proven.clear();
        }
        self.proven.insert(parent, Instant::now());
    }
}

impl<R: Remote> Volume<R> {
    /// Whether a file may be made later.
    pub(super) fn may_wait(&self, parent: u64, name: &str, how: How) -> bool {
        let is_known = self.shared.inodes().find(parent, name).is_some();
        let is_whole = self.is_known_whole(parent);
        let mut later = lock(&self.later);
        let absent = later.absent.remove(&(parent, name.to_owned()));
        if is_known || !how.truncates || how.exclusive || how.appends {
            return false;
        }
        let is_absent = is_whole || absent.is_some_and(|at| at.elapsed() < BELIEVED);
        let is_proven = later.proven.get(&parent).is_some_and(|at| at.elapsed() < PROVEN);
        is_absent && is_proven
    }

    /// It is made soon, if it has not been by then.
    pub(super) fn make_soon(&self, file: &Arc<OpenFile<R>>) {
        let mut later = lock(&self.later);
        let is_first = later.unmade.is_empty();
        later.unmade.push((Instant::now(), Arc::downgrade(file)));
        drop(later);
        if is_first {
            let later = self.later.clone();
            self.shared.spawn(async move {
                loop {
                    tokio::time::sleep(SOON).await;
                    let due: Vec<Weak<OpenFile<R>>> = {
                        let mut later = lock(&later);
                        let n_due = later.unmade.iter().take_while(|(since, _)| since.elapsed() >= SOON).count();
                        later.unmade.drain(..n_due).map(|(_, file)| file).collect()
                    };
                    for file in due.iter().filter_map(Weak::upgrade) {
                        file.make().await;
                    }
                    if lock(&later).unmade.is_empty() {
                        return;
                    }
                }
            });
        }
    }

    /// The server knows of all that is in a directory.
    pub(super) async fn make_within(&self, directory: u64) {
        for file in self.open_within(directory).iter().filter(|file| !file.is_made()) {
            file.make().await;
        }
    }
}
