//! State shared by everything of a mount: the server, the retry policy, the inodes and the limit of uploads.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::inodes::Inodes;
use crate::retry::RetryPolicy;

/// Limit of concurrent uploads of all files.
const MAX_CONCURRENT_UPLOADS: usize = 8;

/// State shared by everything of a mount.
#[derive(Debug)]
pub struct SharedState<R> {
    pub remote: R,
    pub retry: RetryPolicy,
    pub inodes: Mutex<Inodes>,
    /// For work that continues after the program has its answer.
    pub runtime: Handle,
    /// Permits for concurrent uploads.
    pub uploads: Arc<Semaphore>,
}

impl<R> SharedState<R> {
    pub fn new(remote: R, retry: RetryPolicy, runtime: Handle) -> SharedState<R> {
        let uploads = Arc::new(Semaphore::new(MAX_CONCURRENT_UPLOADS));
        SharedState { remote, retry, inodes: Mutex::default(), runtime, uploads }
    }

    pub fn inodes(&self) -> MutexGuard<'_, Inodes> {
        self.inodes.lock().expect("no one panics while holding the inodes")
    }

    /// Runs work that continues after the program has its answer.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    /// Path of an inode; ESTALE if it has no name.
    pub fn path(&self, inode: u64) -> Result<String, i32> {
        self.inodes().path(inode).ok_or(libc::ESTALE)
    }
}
