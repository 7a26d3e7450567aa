//! What the kernel holds of files where it keeps what programs write (`--write-cache`). Sizes and times of a file it knows are its own then,
//! whatever it is told later. So a file that is not what the kernel holds any more gets another number, under which the kernel is told anew: this
//! here knows which do. Pure; time is told to it.
//!
//! A program that opens such a file is told that its number is stale. The kernel then looks the name up again and opens what it finds, and
//! does that once only. So what it finds is good for that `open`, though the file may have changed again between the two: of a file that
//! somebody writes all the time, nobody could open anything otherwise.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::remote::Status;

/// Within this an `open` follows the look for which it has sent the kernel.
const AGAIN: Duration = Duration::from_secs(5);
/// Names that nobody looked up again, because the program ended before, are forgotten now and then.
const MOST_AWAITED: usize = 1_000;

/// A name in a directory.
pub type Name = (u64, String);

#[derive(Debug, Default)]
pub struct Told {
    /// By inode.
    held: HashMap<u64, Held>,
    /// Numbers that are not used any more, though the kernel still has them, and what they were the numbers of.
    left: HashMap<u64, Name>,
    /// Who looks these names up again, which have no numbers yet.
    awaited: HashMap<Name, Vec<u32>>,
}

#[derive(Debug)]
enum Held {
    /// What it was told first, and the threads for which it was looked up again: they open it before then.
    Of { name: Name, status: Status, awaited: Vec<u32>, until: Instant },
    /// Programs of this machine have changed it since: the server's time of that is not known here.
    Own,
}

impl Told {
    /// The kernel is told of it under this number; what it holds already it keeps.
    pub fn tell(&mut self, inode: u64, name: &Name, status: &Status, now: Instant) {
        let awaited = self.awaited.remove(name).unwrap_or_default();
        let first = || Held::Of { name: name.clone(), status: status.clone(), awaited, until: now + AGAIN };
        self.held.entry(inode).or_insert_with(first);
    }

    /// A program of this machine changes it.
    pub fn change(&mut self, inode: u64) {
        self.held.insert(inode, Held::Own);
    }

    /// The kernel has forgotten the number. It does so with the answer that shows it that another one is stale, and then asks once more: those who
    /// were sent are still to come.
    pub fn forget(&mut self, inode: u64) {
        self.left.remove(&inode);
        if let Some(Held::Of { name, awaited, .. }) = self.held.remove(&inode)
            && !awaited.is_empty()
        {
            self.await_at(name, awaited);
        }
    }

    fn await_at(&mut self, name: Name, threads: Vec<u32>) {
        if self.awaited.len() >= MOST_AWAITED {
            self.awaited.clear();
        }
        self.awaited.entry(name).or_default().extend(threads);
    }

    /// The number is not used any more; the name will have another.
    pub fn leave(&mut self, inode: u64, name: Name) {
        self.held.remove(&inode);
        self.left.insert(inode, name);
    }

    /// What this was the number of, if it was left.
    pub fn left(&self, inode: u64) -> Option<&Name> {
        self.left.get(&inode)
    }

    /// The `open` of a thread is told that the number it has is stale. `inode` is that of the name, if it has one.
    pub fn send(&mut self, thread: u32, name: &Name, inode: Option<u64>, now: Instant) {
        match inode.and_then(|inode| self.held.get_mut(&inode)) {
            Some(Held::Of { awaited, until, .. }) => {
                awaited.push(thread);
                *until = now + AGAIN;
            }
            // Whoever looks will not find this number.
            Some(Held::Own) => {}
            None => self.await_at(name.clone(), vec![thread]),
        }
    }

    /// Whether somebody is about to open it who was sent to look for it.
    pub fn is_awaited(&self, inode: u64, now: Instant) -> bool {
        let held = self.held.get(&inode);
        matches!(held, Some(Held::Of { awaited, until, .. }) if !awaited.is_empty() && now < *until)
    }

    /// Whether the kernel holds something else, as far as can be told, than what the server has, and nobody is about to open that.
    pub fn is_outdated(&self, inode: u64, status: &Status, now: Instant) -> bool {
        match self.held.get(&inode) {
            None => false,
            Some(Held::Own) => true,
            Some(Held::Of { status: held, .. }) => !held.is_same(status) && !self.is_awaited(inode, now),
        }
    }

    /// The same, for the `open` of a thread. One that is awaited comes once.
    pub fn is_outdated_for(&mut self, thread: u32, inode: u64, status: &Status, now: Instant) -> bool {
        match self.held.get_mut(&inode) {
            None => false,
            Some(Held::Own) => true,
            Some(Held::Of { status: held, awaited, until, .. }) => {
                let place = awaited.iter().position(|other| *other == thread);
                let is_awaited = place.map(|place| awaited.swap_remove(place)).is_some() && now < *until;
                !is_awaited && !held.is_same(status)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::inodes::Kind;

    fn status(length: u64, etag: &str) -> Status {
        let (kind, modified) = (Kind::File, SystemTime::UNIX_EPOCH);
        Status { kind, length, modified, etag: etag.to_owned() }
    }

    #[test]
    fn the_kernel_holds_what_it_was_told_first() {
        let (mut told, now, name) = (Told::default(), Instant::now(), (1, "f".to_owned()));
        assert!(!told.is_outdated(7, &status(1, "a"), now), "it was not told of it");
        told.tell(7, &name, &status(1, ""), now);
        told.tell(7, &name, &status(2, "b"), now);
        assert!(!told.is_outdated(7, &status(1, "a"), now));
        assert!(told.is_outdated(7, &status(2, "b"), now) && told.is_outdated_for(1, 7, &status(2, "b"), now));
        told.change(7);
        told.tell(7, &name, &status(2, "b"), now);
        assert!(told.is_outdated(7, &status(2, "b"), now), "it may have been changed after it was closed here");
        told.forget(7);
        assert!(!told.is_outdated(7, &status(2, "b"), now));
    }

    #[test]
    fn what_was_looked_up_again_is_good_for_those_who_were_sent() {
        let (mut told, now, name, changed) = (Told::default(), Instant::now(), (1, "f".to_owned()), status(2, "b"));
        told.tell(7, &name, &status(1, "a"), now);
        assert!(told.is_outdated_for(1, 7, &changed, now));
        told.leave(7, name.clone());
        assert_eq!(told.left(7), Some(&name));
        told.send(1, &name, None, now);
        told.tell(8, &name, &status(1, "a"), now);
        // Another program had the old number when the new one was there already.
        told.send(2, &name, Some(8), now);
        assert!(!told.is_outdated(8, &changed, now), "it stays until they have come");
        assert!(told.is_outdated_for(3, 8, &changed, now), "nobody has sent this one");
        let opened = [1, 2, 1].map(|thread| told.is_outdated_for(thread, 8, &changed, now));
        assert_eq!((opened, told.is_outdated(8, &changed, now)), ([false, false, true], true));
        told.leave(8, name.clone());
        told.send(1, &name, None, now);
        told.tell(9, &name, &status(1, "a"), now);
        told.forget(9);
        told.tell(10, &name, &status(1, "a"), now);
        assert!(!told.is_outdated_for(1, 10, &changed, now), "the kernel has asked twice");
        told.send(1, &name, Some(10), now);
        assert!(told.is_outdated_for(1, 10, &changed, now + AGAIN), "that is another time");
    }
}
