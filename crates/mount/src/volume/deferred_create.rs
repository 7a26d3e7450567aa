//! Deferred creation of files that a program creates and writes at once: creation and content go to the server in one
//! request, when the file is closed or its first range is full. A file that stays open is created shortly after, and
//! before its directory is listed, removed or synced.
//!
//! Used only where the difference is visible from other machines alone and only for that moment: the name was just
//! found absent, a file that others create meanwhile would be truncated anyway, and a file was created in that
//! directory before.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::{OpenOptions, Volume, lock};
use crate::attr_cache::ATTR_TTL;
use crate::open_file::OpenFile;
use crate::remote::Remote;

/// Delay after which a deferred file is created anyway.
const CREATE_DELAY: Duration = Duration::from_millis(100);
/// How long a successful creation in a directory proves that files can be created there.
const WRITABLE_TTL: Duration = Duration::from_secs(60);
/// Limit of remembered absent names.
const MAX_ABSENT_NAMES: usize = 1_000;

/// Knowledge for deferring creations, and the deferred files.
#[derive(Debug)]
pub(super) struct DeferredCreates<R> {
    /// Names that were looked up and absent, and when.
    absent: HashMap<(u64, String), Instant>,
    /// Directories in which something was created, and when.
    writable_dirs: HashMap<u64, Instant>,
    /// Files not created yet, with the time since when, oldest first. While there are any, a background task creates
    /// them.
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
    /// Whether the creation of a file may be deferred.
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

    /// Schedules the creation of a deferred file.
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

    /// Creates all deferred files below a directory.
    pub(super) async fn create_deferred_below(&self, directory: u64) {
        for file in self.open_within(directory).iter().filter(|file| !file.is_created()) {
            file.ensure_created().await;
        }
    }
}
