//! What this process knows about the ranks of its world: who they are, who has left, who has died, and whom it waits for. The
//! monitor writes it; every wait asks it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Peer};

pub struct Roster {
    peers: Vec<Peer>,
    standing: Vec<AtomicU8>,
    /// One more than the first rank known to have died or been lost.
    died: AtomicU32,
    waiting: Mutex<Option<Waiting>>,
    /// What is being done, as people know it.
    work: Mutex<Option<Arc<str>>>,
    agreeing: AtomicBool,
}

const ALIVE: u8 = 0;
const LEFT: u8 = 1;
const DEAD: u8 = 2;
/// It may live, but not for us.
const LOST: u8 = 3;
/// How long a broken connection is not spoken of, because a better reason is likely to become known.
const VERDICT: Duration = Duration::from_secs(1);

/// A wait that has become long enough to be talked about.
#[derive(Clone, Debug)]
pub struct Waiting {
    pub peer: Peer,
    pub since: Instant,
}

impl Roster {
    pub fn new(peers: Vec<Peer>) -> Roster {
        let standing = peers.iter().map(|_| AtomicU8::new(ALIVE)).collect();
        Roster {
            peers,
            standing,
            died: AtomicU32::new(0),
            waiting: Mutex::new(None),
            work: Mutex::new(None),
            agreeing: AtomicBool::new(false),
        }
    }

    pub fn peer(&self, rank: usize) -> &Peer {
        &self.peers[rank]
    }

    pub fn size(&self) -> usize {
        self.peers.len()
    }

    /// Whether waiting for `rank` can still end well. A death breaks every wait: the job cannot go on. Who merely left may have
    /// done its part, so only those fail who still wait for that rank.
    pub fn check(&self, rank: usize) -> Result<(), Error> {
        if let Some(error) = self.death() {
            return Err(error);
        }
        match self.standing[rank].load(Ordering::Acquire) {
            LEFT => Err(Error::Left { peer: self.peers[rank].clone() }),
            _ => Ok(()),
        }
    }

    /// An error when a rank is known to have died or to be out of reach.
    pub fn check_deaths(&self) -> Result<(), Error> {
        self.death().map_or(Ok(()), Err)
    }

    pub fn death(&self) -> Option<Error> {
        let rank = (self.died.load(Ordering::Acquire) as usize).checked_sub(1)?;
        let peer = self.peers[rank].clone();
        Some(if self.standing[rank].load(Ordering::Acquire) == LOST {
            Error::Lost { peer }
        } else {
            Error::Died { peer }
        })
    }

    pub fn is_gone(&self, rank: usize) -> bool {
        self.standing[rank].load(Ordering::Acquire) != ALIVE
    }

    pub fn on_left(&self, rank: usize) {
        let _ = self.standing[rank].compare_exchange(ALIVE, LEFT, Ordering::AcqRel, Ordering::Acquire);
    }

    /// True when this is news.
    pub fn on_died(&self, rank: usize) -> bool {
        self.on_gone(rank, DEAD)
    }

    /// True when this is news.
    pub fn on_lost(&self, rank: usize) -> bool {
        self.on_gone(rank, LOST)
    }

    /// Why something could not be had from `rank`: its process has said goodbye, or has died, which is soon known from elsewhere if
    /// it is so. Else by `cause`. The only one here that waits.
    pub fn why(&self, rank: usize, cause: io::Error) -> Error {
        let deadline = Instant::now() + VERDICT;
        loop {
            if let Err(error) = self.check(rank) {
                return error;
            }
            if Instant::now() >= deadline {
                return Error::Link { peer: self.peers[rank].clone(), cause: Arc::new(cause) };
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn on_gone(&self, rank: usize, standing: u8) -> bool {
        let news = self.standing[rank].compare_exchange(ALIVE, standing, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if news {
            let _ = self.died.compare_exchange(0, rank as u32 + 1, Ordering::AcqRel, Ordering::Acquire);
        }
        news
    }

    pub fn begin_waiting(&self, rank: usize, since: Instant) {
        let waiting = Waiting { peer: self.peers[rank].clone(), since };
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(waiting);
    }

    pub fn end_waiting(&self) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// From now on, until the next. Long waits are then told with it.
    pub fn begin_work(&self, name: &Arc<str>) {
        *self.work.lock().unwrap_or_else(PoisonError::into_inner) = Some(name.clone());
    }

    pub fn work(&self) -> Option<Arc<str>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether rank 0 has been asked to bring about something, and has not.
    pub fn set_agreeing(&self, agreeing: bool) {
        self.agreeing.store(agreeing, Ordering::Relaxed);
    }

    pub fn is_agreeing(&self) -> bool {
        self.agreeing.load(Ordering::Relaxed)
    }

    /// Whom this process has been waiting for longer than `limit`.
    pub fn waiting_longer_than(&self, limit: Duration) -> Option<Waiting> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        (waiting.since.elapsed() > limit).then_some(waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Roster {
        Roster::new((0..3).map(|rank| Peer { rank, host: format!("h{rank}").into() }).collect())
    }

    #[test]
    fn leaving_is_felt_only_by_who_waits_for_that_rank() {
        let roster = three();
        roster.on_left(1);
        assert!(roster.check(0).is_ok());
        let told = roster.check(1).expect_err("it has left").to_string();
        assert_eq!(told, "rank 1 on host h1 has left while others still needed it");
        assert!(!roster.on_died(1), "who has left does not die");
        assert!(roster.check(2).is_ok());
    }

    #[test]
    fn the_first_death_is_felt_by_every_wait() {
        let roster = three();
        assert!(roster.on_died(2) && !roster.on_died(2));
        roster.on_died(1);
        assert_eq!(roster.check(0).expect_err("a death").to_string(), "rank 2 on host h2 has died");
    }

    #[test]
    fn a_broken_connection_is_explained_by_what_is_known_of_the_rank() {
        let roster = three();
        let told = roster.why(1, io::ErrorKind::BrokenPipe.into()).to_string();
        assert_eq!(told, "the connection to rank 1 on host h1 broke");
        roster.on_lost(2);
        let told = roster.why(1, io::ErrorKind::BrokenPipe.into()).to_string();
        assert_eq!(told, "the connection to rank 2 on host h2 was lost");
    }

    #[test]
    fn only_long_waits_are_told() {
        let roster = three();
        roster.begin_waiting(1, Instant::now());
        assert!(roster.waiting_longer_than(Duration::from_secs(3600)).is_none());
        assert_eq!(roster.waiting_longer_than(Duration::ZERO).map(|waiting| waiting.peer.rank), Some(1));
        roster.end_waiting();
        assert!(roster.waiting_longer_than(Duration::ZERO).is_none());
    }
}
