//! The ranks of a world as this process knows them: host, liveness, and the rank that it waits for. Written by the failure detector; checked by
//! every wait.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Peer};

pub struct PeerTable {
    peers: Vec<Peer>,
    liveness: Vec<AtomicU8>,
    /// One more than the first rank known to have died or been lost.
    died: AtomicU32,
    waiting: Mutex<Option<LongWait>>,
    /// The operation in progress, for reports.
    work: Mutex<Option<Arc<str>>>,
    agreeing: AtomicBool,
    /// Wakes the thread that sleeps in this process.
    on_failure: Mutex<Option<OnFailure>>,
}

/// Called when a rank has died or been lost. Must not block.
pub type OnFailure = Box<dyn Fn() + Send + Sync>;

const ALIVE: u8 = 0;
const LEFT: u8 = 1;
const DEAD: u8 = 2;
/// Its process may live, but cannot be reached.
const LOST: u8 = 3;
/// How long a broken connection is not reported, because the failure detector is likely to learn the reason.
const EXPLANATION_TIMEOUT: Duration = Duration::from_secs(1);

/// A wait that has become long enough to be reported.
#[derive(Clone, Debug)]
pub struct LongWait {
    pub peer: Peer,
    pub since: Instant,
}

impl PeerTable {
    pub fn new(peers: Vec<Peer>) -> PeerTable {
        let liveness = peers.iter().map(|_| AtomicU8::new(ALIVE)).collect();
        PeerTable {
            peers,
            liveness,
            died: AtomicU32::new(0),
            waiting: Mutex::new(None),
            work: Mutex::new(None),
            agreeing: AtomicBool::new(false),
            on_failure: Mutex::new(None),
        }
    }

    /// Sets what is called when a rank has died or been lost from now on.
    pub fn set_on_failure(&self, on_failure: OnFailure) {
        *self.on_failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(on_failure);
    }

    pub fn peer(&self, rank: usize) -> &Peer {
        &self.peers[rank]
    }

    pub fn size(&self) -> usize {
        self.peers.len()
    }

    /// An error when a wait for `rank` cannot succeed. A death ends every wait, because the job cannot go on. A rank that has left may have
    /// done its part, so only waits for that rank fail.
    pub fn check(&self, rank: usize) -> Result<(), Error> {
        if let Some(error) = self.death() {
            return Err(error);
        }
        match self.liveness[rank].load(Ordering::Acquire) {
            LEFT => Err(Error::Left { peer: self.peers[rank].clone() }),
            _ => Ok(()),
        }
    }

    /// An error when a rank is known to have died or to be out of reach.
    pub fn check_deaths(&self) -> Result<(), Error> {
        self.death().map_or(Ok(()), Err)
    }

    pub fn death(&self) -> Option<Error> {
        let rank = self.first_failure()?;
        let peer = self.peers[rank].clone();
        Some(if self.liveness[rank].load(Ordering::Acquire) == LOST {
            Error::Lost { peer }
        } else {
            Error::Died { peer }
        })
    }

    /// The rank that is blamed for the end of the world: the first known to have died or been lost.
    pub fn first_failure(&self) -> Option<usize> {
        (self.died.load(Ordering::SeqCst) as usize).checked_sub(1)
    }

    /// Blames another rank: what is known of the first failure has shown it to be a consequence of this one.
    pub fn set_first_failure(&self, rank: usize) {
        self.died.store(rank as u32 + 1, Ordering::Release);
    }

    pub fn is_gone(&self, rank: usize) -> bool {
        self.liveness[rank].load(Ordering::Acquire) != ALIVE
    }

    pub fn on_left(&self, rank: usize) {
        let _ = self.liveness[rank].compare_exchange(ALIVE, LEFT, Ordering::AcqRel, Ordering::Acquire);
    }

    /// True when it was alive so far.
    pub fn on_died(&self, rank: usize) -> bool {
        self.on_gone(rank, DEAD)
    }

    /// True when it was alive so far.
    pub fn on_lost(&self, rank: usize) -> bool {
        self.on_gone(rank, LOST)
    }

    /// The error of a failed transfer with `rank`: that it has left or died, which the failure detector learns within a moment, else
    /// `cause`. Blocks for up to a second.
    pub fn explain(&self, rank: usize, cause: io::Error) -> Error {
        let deadline = Instant::now() + EXPLANATION_TIMEOUT;
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

    fn on_gone(&self, rank: usize, liveness: u8) -> bool {
        let news = self.liveness[rank].compare_exchange(ALIVE, liveness, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if news {
            let _ = self.died.compare_exchange(0, rank as u32 + 1, Ordering::SeqCst, Ordering::Acquire);
            if let Some(on_failure) = &*self.on_failure.lock().unwrap_or_else(PoisonError::into_inner) {
                on_failure();
            }
        }
        news
    }

    pub fn begin_waiting(&self, rank: usize, since: Instant) {
        let waiting = LongWait { peer: self.peers[rank].clone(), since };
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(waiting);
    }

    pub fn end_waiting(&self) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Names the operation in progress, for reports of long waits.
    pub fn begin_work(&self, name: &Arc<str>) {
        *self.work.lock().unwrap_or_else(PoisonError::into_inner) = Some(name.clone());
    }

    pub fn work(&self) -> Option<Arc<str>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the engine waits for a response of the coordinator.
    pub fn set_agreeing(&self, agreeing: bool) {
        self.agreeing.store(agreeing, Ordering::Relaxed);
    }

    pub fn is_agreeing(&self) -> bool {
        self.agreeing.load(Ordering::Relaxed)
    }

    /// The rank that this process has been waiting for, if for longer than `limit`.
    pub fn waiting_longer_than(&self, limit: Duration) -> Option<LongWait> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        (waiting.since.elapsed() > limit).then_some(waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> PeerTable {
        PeerTable::new((0..3).map(|rank| Peer { rank, host: format!("h{rank}").into() }).collect())
    }

    #[test]
    fn leaving_is_felt_only_by_who_waits_for_that_rank() {
        let peer_table = three();
        peer_table.on_left(1);
        assert!(peer_table.check(0).is_ok());
        let text = peer_table.check(1).expect_err("it has left").to_string();
        assert_eq!(text, "rank 1 on host h1 has left while others still needed it");
        assert!(!peer_table.on_died(1), "who has left does not die");
        assert!(peer_table.check(2).is_ok());
    }

    #[test]
    fn the_first_death_is_felt_by_every_wait() {
        let peer_table = three();
        assert!(peer_table.on_died(2) && !peer_table.on_died(2));
        peer_table.on_died(1);
        assert_eq!(peer_table.check(0).expect_err("a death").to_string(), "rank 2 on host h2 has died");
    }

    #[test]
    fn a_broken_connection_is_explained_by_what_is_known_of_the_rank() {
        let peer_table = three();
        let text = peer_table.explain(1, io::ErrorKind::BrokenPipe.into()).to_string();
        assert_eq!(text, "the connection to rank 1 on host h1 broke");
        peer_table.on_lost(2);
        let text = peer_table.explain(1, io::ErrorKind::BrokenPipe.into()).to_string();
        assert_eq!(text, "the connection to rank 2 on host h2 was lost");
    }

    #[test]
    fn only_long_waits_are_told() {
        let peer_table = three();
        peer_table.begin_waiting(1, Instant::now());
        assert!(peer_table.waiting_longer_than(Duration::from_secs(3600)).is_none());
        assert_eq!(peer_table.waiting_longer_than(Duration::ZERO).map(|waiting| waiting.peer.rank), Some(1));
        peer_table.end_waiting();
        assert!(peer_table.waiting_longer_than(Duration::ZERO).is_none());
    }
}
