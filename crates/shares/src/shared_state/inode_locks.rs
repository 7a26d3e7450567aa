//! Locks for changes of properties. Properties are read, changed and written back; two concurrent changes of the same
//! file would lose one of them.

use std::{
    array,
    fs::File,
    os::unix::fs::MetadataExt,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Striped locks by inode number: two files may share a lock, one file never has two.
#[derive(Debug)]
pub(crate) struct InodeLocks([Mutex<()>; LOCK_COUNT]);

const LOCK_COUNT: usize = 64;

impl Default for InodeLocks {
    fn default() -> Self {
        InodeLocks(array::from_fn(|_| Mutex::default()))
    }
}

impl InodeLocks {
    /// Waits for the lock. A thread must not lock a second file meanwhile.
    pub fn lock(&self, file: &File) -> MutexGuard<'_, ()> {
        // If `fstat` fails, the operation is about to fail anyway.
        let inode = file.metadata().map_or(0, |metadata| metadata.ino());
        self.0[inode as usize % LOCK_COUNT].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
