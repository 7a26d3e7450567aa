//! Files that a program makes and writes at once: the server is told of both in one request, when the file is closed or the first piece of it is full. One
//! that stays open is made soon anyway, and before anybody lists, removes or syncs the directory it is in.
//!
//! Only where nobody can tell the difference but by looking from another machine in that moment: the name was just found not to be there, what others
//! might put there meanwhile would be cut off too, and a file could be made in that directory before.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::{OpenOptions, Volume, lock};
use crate::attr_cache::ATTR_TTL;
use crate::open_file::OpenFile;
use crate::remote::Remote;

/// How long a file stays a secret of this machine.
const CREATE_DELAY: Duration = Duration::from_millis(100);
/// How long it is believed that files may be made in a directory.
const WRITABLE_TTL: Duration = Duration::from_secs(60);
/// Of what was found not to be there.
const MAX_ABSENT_NAMES: usize = 1_000;

#[derive(Debug)]
pub(super) struct DeferredCreates<R> {
    /// Names that were looked for, and when.
    absent: HashMap<(u64, String), Instant>,
    /// Directories in which something was made, and when.
    writable_dirs: HashMap<u64, Instant>,
    /// Since when they have waited, the oldest first. While there are any, somebody looks after them.
    pending: Vec<(Instant, Weak<OpenFile<R>>)>,
}

impl<R> Default for DeferredCreates<R> {
    fn default() -> DeferredCreates<R> {
        DeferredCreates { absent: HashMap::new(), writable_dirs: HashMap::new(), pending: Vec::new() }
    }
}

impl<R> DeferredCreates<R> {
    pub(super) fn on_absent(&mut self, parent: u64, name: &str) {
        if self.absent.len() >= MAX_ABSENT_NAMES {
            self.absent.retain(|_, at| at.elapsed() < ATTR_TTL);
            if self.absent.len() >= MAX_ABSENT_NAMES {
                self.absent.clear();
            }
        }
        self.absent.insert((parent, name.to_owned()), Instant::now());
    }

    pub(super) fn on_created(&mut self, parent: u64) {
        if self.writable_dirs.len() >= MAX_ABSENT_NAMES {
            self.writable_dirs.clear();
        }
        self.writable_dirs.insert(parent, Instant::now());
    }
}

impl<R: Remote> Volume<R> {
    /// Whether a file may be made later.
    pub(super) fn may_defer_create(&self, parent: u64, name: &str, options: OpenOptions) -> bool {
        let is_known = self.shared.inodes().find(parent, name).is_some();
        let is_whole = self.is_fully_known(parent);
        let mut deferred = lock(&self.deferred);
        let absent = deferred.absent.remove(&(parent, name.to_owned()));
        if is_known || !options.truncates || options.exclusive || options.appends {
            return false;
        }
        let is_absent = is_whole || absent.is_some_and(|at| at.elapsed() < ATTR_TTL);
        let is_proven = deferred.writable_dirs.get(&parent).is_some_and(|at| at.elapsed() < WRITABLE_TTL);
        is_absent && is_proven
    }

    /// It is made soon, if it has not been by then.
    pub(super) fn create_soon(&self, file: &Arc<OpenFile<R>>) {
        let mut deferred = lock(&self.deferred);
        let is_first = deferred.pending.is_empty();
        deferred.pending.push((Instant::now(), Arc::downgrade(file)));
        drop(deferred);
        if is_first {
            let deferred = self.deferred.clone();
            self.shared.spawn(async move {
                loop {
                    tokio::time::sleep(CREATE_DELAY).await;
                    let due: Vec<Weak<OpenFile<R>>> = {
                        let mut deferred = lock(&deferred);
                        let n_due =
                            deferred.pending.iter().take_while(|(since, _)| since.elapsed() >= CREATE_DELAY).count();
                        deferred.pending.drain(..n_due).map(|(_, file)| file).collect()
                    };
                    for file in due.iter().filter_map(Weak::upgrade) {
                        file.ensure_created().await;
                    }
                    if lock(&deferred).pending.is_empty() {
                        return;
                    }
                }
            });
        }
    }

    /// The server knows of all that is in a directory.
    pub(super) async fn create_deferred_below(&self, directory: u64) {
        for file in self.open_within(directory).iter().filter(|file| !file.is_created()) {
            file.ensure_created().await;
        }
    }
}
