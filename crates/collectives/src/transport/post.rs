//! Carries messages between rank 0 and every other rank: through rings of shared memory on rank 0's host, over the monitor's sockets to
//! other hosts. The engine enters here. Sending never waits: what does not go now goes later.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::transport::board::{sleep, wake};
use crate::transport::link::{ring_bell, ring_read, ring_write};
use crate::transport::segment::{Area, Bell};
use crate::world::Shared;

/// Where the engine of this process sleeps, and how it is woken: by ranks of this host, by the monitor, by whoever submits.
pub struct Waker {
    area: Option<Area>,
    me: usize,
    /// For a rank that shares memory with nobody.
    alone: Bell,
}

impl Waker {
    fn bell(&self) -> &Bell {
        self.area.as_ref().map_or(&self.alone, |area| area.bell(self.me))
    }

    pub fn wake(&self) {
        ring_bell(self.bell());
    }

    /// Wakes also who naps without having said so.
    pub fn force(&self) {
        let bell = self.bell();
        bell.rung.fetch_add(1, Ordering::SeqCst);
        wake(&bell.rung);
    }

    /// What to sleep with: a call of [`Waker::force`] after this is not missed.
    pub fn seen(&self) -> u32 {
        self.bell().rung.load(Ordering::SeqCst)
    }

    /// From now on whoever brings something wakes us. Returns what to sleep with, after a last look.
    pub fn doze(&self) -> u32 {
        let bell = self.bell();
        bell.asleep.store(1, Ordering::SeqCst);
        bell.rung.load(Ordering::SeqCst)
    }

    pub fn sleep(&self, dozed: u32, nap: Duration) {
        sleep(&self.bell().rung, dozed, nap);
    }

    /// Nobody needs to wake us.
    pub fn rouse(&self) {
        self.bell().asleep.store(0, Ordering::SeqCst);
    }
}

pub struct Post {
    waker: Arc<Waker>,
    /// Ranks of this host that we exchange messages with, and where they are on it.
    near: Vec<Near>,
    /// Whether messages come from other hosts too.
    has_far: bool,
    far: Arc<Mutex<Inbox>>,
    /// Set when something lies in `far`; cheaper to look at.
    n_far: Arc<AtomicU32>,
    world: Arc<Shared>,
}

/// Sender and message.
type Inbox = VecDeque<(usize, Vec<u8>)>;

struct Near {
    rank: usize,
    member: usize,
    /// What did not fit into the ring yet.
    outgoing: VecDeque<u8>,
    /// A message of which not everything has come.
    incoming: Vec<u8>,
}

/// More is no message of ours.
const LONGEST: usize = 256 << 20;

impl Post {
    /// Collective. `area` is used for nothing else.
    pub(crate) fn open(world: Arc<Shared>, area: u64) -> io::Result<Post> {
        let rank = world.place.rank;
        let locals: Vec<usize> =
            (0..world.place.size).filter(|other| world.lowest[*other] == world.lowest[rank]).collect();
        let me = locals.iter().position(|other| *other == rank).expect("we are on our host");
        let mapped = world.segment.as_ref().map(|segment| segment.area(area)).transpose()?;
        let near = match rank {
            0 => locals.iter().enumerate().skip(1).map(|(member, rank)| Near::new(*rank, member)).collect(),
            _ if locals[0] == 0 => vec![Near::new(0, 0)],
            _ => Vec::new(),
        };
        let has_far = if rank == 0 { locals.len() < world.place.size } else { locals[0] != 0 };
        let alone = Bell { rung: AtomicU32::new(0), asleep: AtomicU32::new(0) };
        let waker = Arc::new(Waker { area: mapped, me, alone });
        let far = Arc::new(Mutex::new(Inbox::new()));
        let n_far = Arc::new(AtomicU32::new(0));
        let (inbox, count, bell) = (far.clone(), n_far.clone(), waker.clone());
        world.monitor.on_message(Box::new(move |rank, message| {
            inbox.lock().unwrap_or_else(PoisonError::into_inner).push_back((rank, message));
            count.fetch_add(1, Ordering::SeqCst);
            bell.wake();
        }));
        Ok(Post { waker, near, has_far, far, n_far, world })
    }

    pub fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }

    pub fn send(&mut self, rank: usize, message: &[u8]) {
        let Some(near) = self.near.iter_mut().find(|near| near.rank == rank) else {
            self.world.monitor.send(rank, message);
            return;
        };
        let length = (message.len() as u32).to_le_bytes();
        let area = self.waker.area.as_ref().expect("near ranks share memory");
        near.write(area, self.waker.me, &length);
        near.write(area, self.waker.me, message);
    }

    /// Hands over whole messages, and sends what had to wait. True when anything moved.
    pub fn deliver(&mut self, mut take: impl FnMut(usize, &[u8])) -> bool {
        let mut moved = false;
        if let Some(area) = self.waker.area.as_ref() {
            for near in &mut self.near {
                moved |= near.flush(area, self.waker.me);
                moved |= near.read(area, self.waker.me, &mut take);
            }
        }
        if self.has_far {
            self.world.monitor.poll_messages();
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

    /// Whether all that was sent has left this process.
    pub fn is_sent(&mut self) -> bool {
        let Some(area) = self.waker.area.as_ref() else { return true };
        let me = self.waker.me;
        self.near.iter_mut().all(|near| {
            near.flush(area, me);
            near.outgoing.is_empty()
        })
    }

    /// Whether something waits to be delivered or sent.
    pub fn is_pending(&self) -> bool {
        let Some(area) = self.waker.area.as_ref() else { return self.n_far.load(Ordering::SeqCst) > 0 };
        let me = self.waker.me;
        let there = |near: &Near| {
            let ends = area.ring_ends(near.member, me);
            ends.written.load(Ordering::SeqCst) != ends.read.load(Ordering::SeqCst)
        };
        self.n_far.load(Ordering::SeqCst) > 0 || self.near.iter().any(there)
    }
}

impl Near {
    fn new(rank: usize, member: usize) -> Near {
        Near { rank, member, outgoing: VecDeque::new(), incoming: Vec::new() }
    }

    fn write(&mut self, area: &Area, me: usize, bytes: &[u8]) {
        let mut sent = 0;
        if self.outgoing.is_empty() {
            // SAFETY: a slice; only this engine writes to this ring.
            sent = unsafe { ring_write(area, me, self.member, bytes.as_ptr(), bytes.len()) };
        }
        self.outgoing.extend(&bytes[sent..]);
    }

    fn flush(&mut self, area: &Area, me: usize) -> bool {
        let mut moved = false;
        while !self.outgoing.is_empty() {
            let (bytes, _) = self.outgoing.as_slices();
            // SAFETY: as above.
            let sent = unsafe { ring_write(area, me, self.member, bytes.as_ptr(), bytes.len()) };
            if sent == 0 {
                break;
            }
            self.outgoing.drain(..sent);
            moved = true;
        }
        moved
    }

    fn read(&mut self, area: &Area, me: usize, take: &mut impl FnMut(usize, &[u8])) -> bool {
        let mut buffer = [0; 4096];
        let mut moved = false;
        loop {
            // SAFETY: an array; only this engine reads this ring.
            let n = unsafe { ring_read(area, me, self.member, buffer.as_mut_ptr(), buffer.len()) };
            if n == 0 {
                return moved;
            }
            moved = true;
            self.incoming.extend_from_slice(&buffer[..n]);
            let mut used = 0;
            while let Some(length) = self.incoming.get(used..used + 4) {
                let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
                assert!(length <= LONGEST, "rank {} wrote nonsense into shared memory", self.rank);
                let Some(message) = self.incoming.get(used + 4..used + 4 + length) else { break };
                take(self.rank, message);
                used += 4 + length;
            }
            self.incoming.drain(..used);
        }
    }
}
