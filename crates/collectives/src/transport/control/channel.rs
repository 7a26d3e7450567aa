//! Messages of the engine between rank 0 and every other rank: through ring buffers in shared memory on rank 0's host, over the control connections to
//! other hosts. Sending never blocks: bytes that do not fit into a ring are queued.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::transport::control::failure_detector::FailureDetector;
use crate::transport::shm::byte_ring::{ring_read, ring_write, wake_sleeper};
use crate::transport::shm::segment::{CommRegion, FutexEvent, Segment};
use crate::transport::shm::step_sync::{sleep, wake};

/// The futex on which the engine of this process sleeps. Woken by ranks of this host, by the failure detector's thread and by submitting threads.
pub struct Waker {
    region: Option<CommRegion>,
    me: usize,
    /// The futex of a rank that shares memory with no other.
    alone: FutexEvent,
}

impl Waker {
    fn event(&self) -> &FutexEvent {
        self.region.as_ref().map_or(&self.alone, |region| region.event(self.me))
    }

    pub fn wake(&self) {
        wake_sleeper(self.event());
    }

    /// Wakes the sleeper even if it has not announced its sleep by [`Waker::doze`].
    pub fn force(&self) {
        let event = self.event();
        event.count.fetch_add(1, Ordering::SeqCst);
        wake(&event.count);
    }

    /// The futex value to pass to [`Waker::sleep`]: a [`Waker::force`] after this call ends that sleep at once.
    pub fn seen(&self) -> u32 {
        self.event().count.load(Ordering::SeqCst)
    }

    /// Announces a sleep, so that senders wake this process. Returns the futex value to pass to [`Waker::sleep`] after a last check.
    pub fn doze(&self) -> u32 {
        let event = self.event();
        event.asleep.store(1, Ordering::SeqCst);
        event.count.load(Ordering::SeqCst)
    }

    pub fn sleep(&self, dozed: u32, nap: Duration) {
        sleep(&self.event().count, dozed, nap);
    }

    /// Takes the announcement back.
    pub fn rouse(&self) {
        self.event().asleep.store(0, Ordering::SeqCst);
    }
}

pub struct ControlChannel {
    waker: Arc<Waker>,
    /// Ranks of this host that this one exchanges messages with.
    shm_peers: Vec<ShmPeer>,
    /// Whether ranks of other hosts send messages too.
    has_far: bool,
    far: Arc<Mutex<Inbox>>,
    /// The length of `far`, readable without its lock.
    n_far: Arc<AtomicU32>,
    failure_detector: Arc<FailureDetector>,
}

/// Sender's rank and message.
type Inbox = VecDeque<(usize, Vec<u8>)>;

struct ShmPeer {
    rank: usize,
    member: usize,
    /// Bytes that did not fit into the ring yet.
    outgoing: VecDeque<u8>,
    /// The received part of an incomplete message.
    incoming: Vec<u8>,
}

/// A longer length field is no valid message.
const MAX_MESSAGE_BYTES: usize = 256 << 20;

impl ControlChannel {
    /// Opens the channel of `rank` in a world of `size`; `locals` are the ranks of its host, ascending. Collective over all ranks. No
    /// communicator may use the region `comm_id` of `segment`.
    pub(crate) fn open(
        rank: usize,
        size: usize,
        locals: &[usize],
        segment: Option<&Segment>,
        failure_detector: Arc<FailureDetector>,
        comm_id: u64,
    ) -> io::Result<ControlChannel> {
        let me = locals.iter().position(|other| *other == rank).expect("this rank is on its host");
        let region = segment.map(|segment| segment.comm_region(comm_id)).transpose()?;
        let shm_peers = match rank {
            0 => locals.iter().enumerate().skip(1).map(|(member, rank)| ShmPeer::new(*rank, member)).collect(),
            _ if locals[0] == 0 => vec![ShmPeer::new(0, 0)],
            _ => Vec::new(),
        };
        let has_far = if rank == 0 { locals.len() < size } else { locals[0] != 0 };
        let alone = FutexEvent { count: AtomicU32::new(0), asleep: AtomicU32::new(0) };
        let waker = Arc::new(Waker { region, me, alone });
        let far = Arc::new(Mutex::new(Inbox::new()));
        let n_far = Arc::new(AtomicU32::new(0));
        let (inbox, count, event) = (far.clone(), n_far.clone(), waker.clone());
        failure_detector.on_message(Box::new(move |rank, message| {
            inbox.lock().unwrap_or_else(PoisonError::into_inner).push_back((rank, message));
            count.fetch_add(1, Ordering::SeqCst);
            event.wake();
        }));
        Ok(ControlChannel { waker, shm_peers, has_far, far, n_far, failure_detector })
    }

    pub fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }

    pub fn send(&mut self, rank: usize, message: &[u8]) {
        let Some(near) = self.shm_peers.iter_mut().find(|near| near.rank == rank) else {
            self.failure_detector.send(rank, message);
            return;
        };
        let length = (message.len() as u32).to_le_bytes();
        let region = self.waker.region.as_ref().expect("near ranks share memory");
        near.write(region, self.waker.me, &length);
        near.write(region, self.waker.me, message);
    }

    /// Hands over complete messages and sends queued bytes. True when anything was received or sent.
    pub fn deliver(&mut self, mut take: impl FnMut(usize, &[u8])) -> bool {
        let mut moved = false;
        if let Some(region) = self.waker.region.as_ref() {
            for near in &mut self.shm_peers {
                moved |= near.flush(region, self.waker.me);
                moved |= near.read(region, self.waker.me, &mut take);
            }
        }
        if self.has_far {
            self.failure_detector.poll_messages();
        }
        if self.n_far.load(Ordering::Acquire) > 0 {
            let messages = std::mem::take(&mut *self.far.lock().unwrap_or_else(PoisonError::into_inner));
            self.n_far.fetch_sub(messages.len() as u32, Ordering::SeqCst);
            moved = true;
            for (rank, message) in messages {
                take(rank, &message);
            }
        }
        moved
    }

    /// Whether no bytes are queued.
    pub fn is_sent(&mut self) -> bool {
        let Some(region) = self.waker.region.as_ref() else { return true };
        let me = self.waker.me;
        self.shm_peers.iter_mut().all(|near| {
            near.flush(region, me);
            near.outgoing.is_empty()
        })
    }

    /// Whether messages wait to be delivered.
    pub fn is_pending(&self) -> bool {
        let Some(region) = self.waker.region.as_ref() else { return self.n_far.load(Ordering::SeqCst) > 0 };
        let me = self.waker.me;
        let there = |near: &ShmPeer| {
            let ends = region.ring_ends(near.member, me);
            ends.written.load(Ordering::SeqCst) != ends.read.load(Ordering::SeqCst)
        };
        self.n_far.load(Ordering::SeqCst) > 0 || self.shm_peers.iter().any(there)
    }
}

impl ShmPeer {
    fn new(rank: usize, member: usize) -> ShmPeer {
        ShmPeer { rank, member, outgoing: VecDeque::new(), incoming: Vec::new() }
    }

    fn write(&mut self, region: &CommRegion, me: usize, bytes: &[u8]) {
        let mut sent = 0;
        if self.outgoing.is_empty() {
            // SAFETY: a slice; only this engine writes to this ring.
            sent = unsafe { ring_write(region, me, self.member, bytes.as_ptr(), bytes.len()) };
        }
        self.outgoing.extend(&bytes[sent..]);
    }

    fn flush(&mut self, region: &CommRegion, me: usize) -> bool {
        let mut moved = false;
        while !self.outgoing.is_empty() {
            let (bytes, _) = self.outgoing.as_slices();
            // SAFETY: as above.
            let sent = unsafe { ring_write(region, me, self.member, bytes.as_ptr(), bytes.len()) };
            if sent == 0 {
                break;
            }
            self.outgoing.drain(..sent);
            moved = true;
        }
        moved
    }

    fn read(&mut self, region: &CommRegion, me: usize, take: &mut impl FnMut(usize, &[u8])) -> bool {
        let mut buffer = [0; 4096];
        let mut moved = false;
        loop {
            // SAFETY: an array; only this engine reads this ring.
            let n = unsafe { ring_read(region, me, self.member, buffer.as_mut_ptr(), buffer.len()) };
            if n == 0 {
                return moved;
            }
            moved = true;
            self.incoming.extend_from_slice(&buffer[..n]);
            let mut used = 0;
            while let Some(length) = self.incoming.get(used..used + 4) {
                let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
                assert!(length <= MAX_MESSAGE_BYTES, "rank {} wrote an invalid length into shared memory", self.rank);
                let Some(message) = self.incoming.get(used + 4..used + 4 + length) else { break };
                take(self.rank, message);
                used += 4 + length;
            }
            self.incoming.drain(..used);
        }
    }
}
