//! Byte streams to and from other ranks: ring buffers in shared memory on one host, TCP between hosts. Nothing here blocks but
//! [`Links::wait_io`].

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::Error;
use crate::transport::peer_table::PeerTable;
use crate::transport::shm::byte_ring::{ring_read, ring_write};
use crate::transport::shm::segment::RING_BYTES;
use crate::transport::shm::step_sync::{StepSync, sleep};
use crate::transport::tcp::socket::{Socket, is_unacknowledged};

/// The streams of a communicator to one member.
pub enum Link {
    /// This rank itself.
    None,
    /// A member of the communicator on this host.
    Ring(usize),
    Tcp(Vec<Socket>),
}

/// All links of a communicator, by member.
pub struct Links {
    links: Vec<Link>,
    ranks: Vec<usize>,
    peer_table: Arc<PeerTable>,
    /// Scratch for `wait_io`.
    waiting: Vec<(usize, usize, PollFlags)>,
    idle: u32,
    idle_since: Option<Instant>,
    /// An awaited member has left; one more round of attempts follows.
    is_last_round: bool,
    /// Attempts before the thread sleeps in `poll`.
    pub spin_limit: u32,
    /// The longest wait without any bytes sent or received.
    pub limit: Option<Duration>,
}

/// The longest sleep: a rank whose waker has died checks again by then.
const MAX_SLEEP: Duration = Duration::from_millis(10);
/// A longer wait is reported.
const REPORT_AFTER: Duration = Duration::from_millis(200);

impl Links {
    pub fn new(links: Vec<Link>, ranks: Vec<usize>, peer_table: Arc<PeerTable>, spin_limit: u32) -> Links {
        Links {
            links,
            ranks,
            peer_table,
            waiting: Vec::new(),
            idle: 0,
            idle_since: None,
            is_last_round: false,
            spin_limit,
            limit: None,
        }
    }

    /// Sends as much of `n_bytes` as can be sent without blocking.
    ///
    /// # Safety
    /// `from` must be readable for `n_bytes`.
    pub unsafe fn send(
        &mut self,
        sync: Option<&StepSync>,
        member: usize,
        stream: usize,
        from: *const u8,
        n_bytes: usize,
    ) -> Result<usize, Error> {
        let sent = match &self.links[member] {
            Link::None => 0,
            // SAFETY: `from` is readable for `n_bytes` by the function's contract; only this rank writes to its ring.
            Link::Ring(to) => unsafe {
                let sync = sync.expect("ring buffers are in the region of the step synchronisation");
                ring_write(sync.region(), sync.me(), *to, from, n_bytes)
            },
            Link::Tcp(streams) => {
                // SAFETY: `from` is readable for `n_bytes` by the function's contract.
                let sent = unsafe {
                    libc::send(
                        streams[stream].as_raw_fd(),
                        from.cast(),
                        n_bytes,
                        libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
                    )
                };
                self.bytes_moved(member, sent)?
            }
        };
        self.record_attempt(sent, member, stream, PollFlags::OUT);
        Ok(sent)
    }

    /// Receives what has arrived, at most `n_bytes`. Never blocks.
    ///
    /// # Safety
    /// `to` must be writable for `n_bytes`.
    pub unsafe fn receive(
        &mut self,
        sync: Option<&StepSync>,
        member: usize,
        stream: usize,
        to: *mut u8,
        n_bytes: usize,
    ) -> Result<usize, Error> {
        let received = match &self.links[member] {
            Link::None => 0,
            // SAFETY: `to` is writable for `n_bytes` by the function's contract; only this rank reads this ring.
            Link::Ring(from) => unsafe {
                let sync = sync.expect("ring buffers are in the region of the step synchronisation");
                ring_read(sync.region(), sync.me(), *from, to, n_bytes)
            },
            Link::Tcp(streams) => {
                // SAFETY: `to` is writable for `n_bytes` by the function's contract.
                let received =
                    unsafe { libc::recv(streams[stream].as_raw_fd(), to.cast(), n_bytes, libc::MSG_DONTWAIT) };
                if received == 0 && n_bytes > 0 {
                    return Err(self.peer_table.explain(self.ranks[member], io::ErrorKind::UnexpectedEof.into()));
                }
                self.bytes_moved(member, received)?
            }
        };
        self.record_attempt(received, member, stream, PollFlags::IN);
        Ok(received)
    }

    /// Called after a round of attempts that moved no bytes: returns at once for `spin_limit` rounds, then sleeps until one of the last attempts may
    /// succeed.
    pub fn wait_io(&mut self, sync: Option<&StepSync>) -> Result<(), Error> {
        self.idle += 1;
        if self.idle < self.spin_limit {
            self.waiting.clear();
            std::hint::spin_loop();
            return Ok(());
        }
        let since = *self.idle_since.get_or_insert_with(Instant::now);
        self.sleep(sync);
        let first = self.waiting.first().map_or(0, |(member, _, _)| *member);
        let cut_off = if since.elapsed() > REPORT_AFTER { self.cut_off() } else { None };
        self.waiting.clear();
        match self.peer_table.check(self.ranks[first]) {
            // It may have sent the awaited bytes before it left, so there is one more round of attempts.
            Err(Error::Left { .. }) if !self.is_last_round => self.is_last_round = true,
            liveness => liveness?,
        }
        let waited = since.elapsed();
        if self.limit.is_some_and(|limit| waited > limit) {
            return Err(Error::Silent { peer: self.peer_table.peer(self.ranks[first]).clone(), waited });
        }
        if waited > REPORT_AFTER {
            self.peer_table.begin_waiting(self.ranks[first], since);
        }
        match cut_off {
            Some(member) => Err(self.peer_table.explain(self.ranks[member], io::ErrorKind::TimedOut.into())),
            None => Ok(()),
        }
    }

    /// The first awaited member whose TCP connection is not acknowledged any more.
    fn cut_off(&self) -> Option<usize> {
        let is_cut = |&&(member, stream, _): &&(usize, usize, PollFlags)| match &self.links[member] {
            Link::Tcp(streams) => is_unacknowledged(&streams[stream]),
            _ => false,
        };
        self.waiting.iter().find(is_cut).map(|(member, _, _)| *member)
    }

    /// Called after a round that moved bytes.
    pub fn reset_idle(&mut self) {
        self.waiting.clear();
        self.idle = 0;
        self.is_last_round = false;
        if self.idle_since.take().is_some_and(|since| since.elapsed() > REPORT_AFTER) {
            self.peer_table.end_waiting();
        }
    }

    fn record_attempt(&mut self, moved: usize, member: usize, stream: usize, flags: PollFlags) {
        if moved == 0 {
            self.waiting.push((member, stream, flags));
        }
    }

    fn sleep(&self, sync: Option<&StepSync>) {
        let tcp = |&(member, stream, flags): &(usize, usize, PollFlags)| match &self.links[member] {
            Link::Tcp(streams) => Some(PollFd::from_borrowed_fd(streams[stream].as_fd(), flags)),
            _ => None,
        };
        let mut fds: Vec<PollFd<'_>> = self.waiting.iter().filter_map(tcp).collect();
        let rings = fds.len() < self.waiting.len();
        if rings && fds.is_empty() {
            let sync = sync.expect("ring buffers are in the region of the step synchronisation");
            let event = sync.region().event(sync.me());
            let seen = event.count.load(Ordering::SeqCst);
            event.asleep.store(1, Ordering::SeqCst);
            if !self.waiting.iter().any(|(member, _, flags)| self.ring_ready(sync, *member, *flags)) {
                sleep(&event.count, seen, MAX_SLEEP);
            }
            event.asleep.store(0, Ordering::SeqCst);
            return;
        }
        // A futex does not wake `poll`, so with both kinds of links the sleep is short.
        let nap = if rings { Duration::from_micros(100) } else { MAX_SLEEP };
        let nap = Timespec { tv_sec: 0, tv_nsec: i64::from(nap.subsec_nanos()) };
        let _ = poll(&mut fds, Some(&nap));
    }

    fn ring_ready(&self, sync: &StepSync, member: usize, flags: PollFlags) -> bool {
        let Link::Ring(other) = self.links[member] else { return false };
        let used = |from, to| {
            let ends = sync.region().ring_ends(from, to);
            ends.written.load(Ordering::SeqCst).wrapping_sub(ends.read.load(Ordering::SeqCst)) as usize
        };
        if flags.contains(PollFlags::IN) { used(other, sync.me()) > 0 } else { used(sync.me(), other) < RING_BYTES }
    }

    fn bytes_moved(&self, member: usize, outcome: isize) -> Result<usize, Error> {
        if outcome >= 0 {
            return Ok(outcome as usize);
        }
        let cause = io::Error::last_os_error();
        match cause.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
            _ => Err(self.peer_table.explain(self.ranks[member], cause)),
        }
    }
}

/// Links and the step synchronisation of this host: what an algorithm needs to send and receive.
pub struct Endpoint<'a> {
    pub links: &'a mut Links,
    pub sync: Option<&'a StepSync>,
}

impl Endpoint<'_> {
    /// # Safety
    /// As [`Links::send`].
    pub unsafe fn send(
        &mut self,
        member: usize,
        stream: usize,
        from: *const u8,
        n_bytes: usize,
    ) -> Result<usize, Error> {
        // SAFETY: this function has the contract of `Links::send`.
        unsafe { self.links.send(self.sync, member, stream, from, n_bytes) }
    }

    /// # Safety
    /// As [`Links::receive`].
    pub unsafe fn receive(
        &mut self,
        member: usize,
        stream: usize,
        to: *mut u8,
        n_bytes: usize,
    ) -> Result<usize, Error> {
        // SAFETY: this function has the contract of `Links::receive`.
        unsafe { self.links.receive(self.sync, member, stream, to, n_bytes) }
    }

    /// Ends a round of attempts; `moved` says whether it sent or received anything.
    pub fn end_round(&mut self, moved: bool) -> Result<(), Error> {
        if moved {
            self.links.reset_idle();
            return Ok(());
        }
        self.links.wait_io(self.sync)
    }
}
