//! Whose turn it is to change what is kept with a file. Properties are read, changed and written
//! back; two who do that to the same file at once would lose one of the changes.

use std::{
    array,
    fs::File,
    os::unix::fs::MetadataExt,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Locks, by inode number: different things may share one, the same file never has two.
#[derive(Debug)]
pub(crate) struct InodeLocks([Mutex<()>; LOCK_COUNT]);

const LOCK_COUNT: usize = 64;

impl Default for InodeLocks {
    fn default() -> Self {
        InodeLocks(array::from_fn(|_| Mutex::default()))
    }
}

impl InodeLocks {
    /// Waits for the turn; it ends with the guard. Nobody takes a second one meanwhile.
    pub fn lock(&self, file: &File) -> MutexGuard<'_, ()> {
        // A file whose number cannot be read is about to fail anyway.
        let inode = file.metadata().map_or(0, |metadata| metadata.ino());
        self.0[inode as usize % LOCK_COUNT].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
