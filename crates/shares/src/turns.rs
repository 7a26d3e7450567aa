//! Whose turn it is to change what is kept with a thing. Properties are read, changed and written
//! back; two who do that to the same thing at once would lose one of the changes.

use std::{
    array,
    fs::File,
    os::unix::fs::MetadataExt,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Locks, by inode number: different things may share one, the same thing never has two.
#[derive(Debug)]
pub(crate) struct Turns([Mutex<()>; LOCKS]);

const LOCKS: usize = 64;

impl Default for Turns {
    fn default() -> Self {
        Turns(array::from_fn(|_| Mutex::default()))
    }
}

impl Turns {
    /// Waits for the turn; it ends with the guard. Nobody takes a second one meanwhile.
    pub fn take(&self, thing: &File) -> MutexGuard<'_, ()> {
        // A thing whose number cannot be read is about to fail anyway.
        let inode = thing.metadata().map_or(0, |metadata| metadata.ino());
        self.0[inode as usize % LOCKS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
