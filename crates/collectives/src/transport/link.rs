//! A stream of bytes to and from one other rank: through shared memory on one host, over TCP between hosts. Algorithms that send
//! and receive enter here; nothing here waits but [`Links::rest`].

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::Error;
use crate::fork::ForkClosed;
use crate::transport::control::peer_table::PeerTable;
use crate::transport::shm::segment::{CommRegion, FutexEvent, RING_BYTES};
use crate::transport::shm::step_sync::{StepSync, sleep, wake};
use crate::transport::tcp;

/// Where the streams of a communicator lead.
pub enum Link {
    /// Ourselves.
    None,
    /// A member of the communicator on this host.
    Ring(usize),
    Tcp(Vec<ForkClosed<TcpStream>>),
}

/// All links of a communicator, by member.
pub struct Links {
    links: Vec<Link>,
    ranks: Vec<usize>,
    peer_table: Arc<PeerTable>,
    /// Scratch for `rest`.
    waiting: Vec<(usize, usize, PollFlags)>,
    idle: u32,
    idle_since: Option<Instant>,
    /// One we wait for has left.
    doubting: bool,
    /// Attempts before the kernel is asked to wake us.
    pub eagerness: u32,
    /// How long nothing may move.
    pub limit: Option<Duration>,
}

const NAP: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_millis(200);

impl Links {
    pub fn new(links: Vec<Link>, ranks: Vec<usize>, peer_table: Arc<PeerTable>, eagerness: u32) -> Links {
        Links {
            links,
            ranks,
            peer_table,
            waiting: Vec::new(),
            idle: 0,
            idle_since: None,
            doubting: false,
            eagerness,
            limit: None,
        }
    }

    /// Sends as much of `n_bytes` as goes now.
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
            // SAFETY: the caller's.
            Link::Ring(to) => unsafe {
                let sync = sync.expect("rings lie on the sync");
                ring_write(sync.area(), sync.me(), *to, from, n_bytes)
            },
            Link::Tcp(streams) => {
                // SAFETY: the caller's.
                let sent = unsafe {
                    libc::send(
                        streams[stream].as_raw_fd(),
                        from.cast(),
                        n_bytes,
                        libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
                    )
                };
                self.moved(member, sent)?
            }
        };
        self.note(sent, member, stream, PollFlags::OUT);
        Ok(sent)
    }

    /// Receives what is there, at most `n_bytes`.
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
            // SAFETY: the caller's.
            Link::Ring(from) => unsafe {
                let sync = sync.expect("rings lie on the sync");
                ring_read(sync.area(), sync.me(), *from, to, n_bytes)
            },
            Link::Tcp(streams) => {
                // SAFETY: the caller's.
                let received =
                    unsafe { libc::recv(streams[stream].as_raw_fd(), to.cast(), n_bytes, libc::MSG_DONTWAIT) };
                if received == 0 && n_bytes > 0 {
                    return Err(self.peer_table.explain(self.ranks[member], io::ErrorKind::UnexpectedEof.into()));
                }
                self.moved(member, received)?
            }
        };
        self.note(received, member, stream, PollFlags::IN);
        Ok(received)
    }

    /// Called when a round of attempts moved nothing: looks again soon, then sleeps until one of the last attempts may succeed.
    pub fn rest(&mut self, sync: Option<&StepSync>) -> Result<(), Error> {
        self.idle += 1;
        if self.idle < self.eagerness {
            self.waiting.clear();
            std::hint::spin_loop();
            return Ok(());
        }
        let since = *self.idle_since.get_or_insert_with(Instant::now);
        self.sleep(sync);
        let first = self.waiting.first().map_or(0, |(member, _, _)| *member);
        let cut_off = if since.elapsed() > LONG { self.cut_off() } else { None };
        self.waiting.clear();
        match self.peer_table.check(self.ranks[first]) {
            // It may have sent what we need before it left: that is known only after one more look.
            Err(Error::Left { .. }) if !self.doubting => self.doubting = true,
            standing => standing?,
        }
        let waited = since.elapsed();
        if self.limit.is_some_and(|limit| waited > limit) {
            return Err(Error::Silent { peer: self.peer_table.peer(self.ranks[first]).clone(), waited });
        }
        if waited > LONG {
            self.peer_table.begin_waiting(self.ranks[first], since);
        }
        match cut_off {
            Some(member) => Err(self.peer_table.explain(self.ranks[member], io::ErrorKind::TimedOut.into())),
            None => Ok(()),
        }
    }

    /// Whoever among those we wait for cannot be reached.
    fn cut_off(&self) -> Option<usize> {
        let is_cut = |&&(member, stream, _): &&(usize, usize, PollFlags)| match &self.links[member] {
            Link::Tcp(streams) => tcp::is_cut_off(&streams[stream]),
            _ => false,
        };
        self.waiting.iter().find(is_cut).map(|(member, _, _)| *member)
    }

    /// Called when something moved.
    pub fn go_on(&mut self) {
        self.waiting.clear();
        self.idle = 0;
        self.doubting = false;
        if self.idle_since.take().is_some_and(|since| since.elapsed() > LONG) {
            self.peer_table.end_waiting();
        }
    }

    fn note(&mut self, moved: usize, member: usize, stream: usize, flags: PollFlags) {
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
            let sync = sync.expect("rings lie on the sync");
            let event = sync.area().event(sync.me());
            let seen = event.count.load(Ordering::SeqCst);
            event.asleep.store(1, Ordering::SeqCst);
            if !self.waiting.iter().any(|(member, _, flags)| self.ring_ready(sync, *member, *flags)) {
                sleep(&event.count, seen, NAP);
            }
            event.asleep.store(0, Ordering::SeqCst);
            return;
        }
        // Bells do not wake a poll, so with both kinds we look often.
        let nap = if rings { Duration::from_micros(100) } else { NAP };
        let nap = Timespec { tv_sec: 0, tv_nsec: i64::from(nap.subsec_nanos()) };
        let _ = poll(&mut fds, Some(&nap));
    }

    fn ring_ready(&self, sync: &StepSync, member: usize, flags: PollFlags) -> bool {
        let Link::Ring(other) = self.links[member] else { return false };
        let used = |from, to| {
            let ends = sync.area().ring_ends(from, to);
            ends.written.load(Ordering::SeqCst).wrapping_sub(ends.read.load(Ordering::SeqCst)) as usize
        };
        if flags.contains(PollFlags::IN) { used(other, sync.me()) > 0 } else { used(sync.me(), other) < RING_BYTES }
    }

    fn moved(&self, member: usize, outcome: isize) -> Result<usize, Error> {
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
pub struct Road<'a> {
    pub links: &'a mut Links,
    pub sync: Option<&'a StepSync>,
}

impl Road<'_> {
    /// # Safety
    /// As [`Links::send`].
    pub unsafe fn send(
        &mut self,
        member: usize,
        stream: usize,
        from: *const u8,
        n_bytes: usize,
    ) -> Result<usize, Error> {
        // SAFETY: the caller's.
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
        // SAFETY: the caller's.
        unsafe { self.links.receive(self.sync, member, stream, to, n_bytes) }
    }

    /// After a round of attempts that moved something, or nothing.
    pub fn after(&mut self, moved: bool) -> Result<(), Error> {
        if moved {
            self.links.go_on();
            return Ok(());
        }
        self.links.rest(self.sync)
    }
}

/// Writes as much as there is room for, and rings the reader's event if it sleeps.
///
/// # Safety
/// `from` must be readable for `n_bytes`, and nobody else writes to this ring.
pub unsafe fn ring_write(area: &CommRegion, me: usize, to: usize, from: *const u8, n_bytes: usize) -> usize {
    let (ends, ring) = (area.ring_ends(me, to), area.ring(me, to));
    let written = ends.written.load(Ordering::Relaxed);
    let room = RING_BYTES - written.wrapping_sub(ends.read.load(Ordering::Acquire)) as usize;
    let n = n_bytes.min(room);
    if n > 0 {
        let at = written as usize % RING_BYTES;
        let first = n.min(RING_BYTES - at);
        // SAFETY: the caller's source; the ring from `at` on is free, as its reader said.
        unsafe {
            std::ptr::copy_nonoverlapping(from, ring.add(at), first);
            std::ptr::copy_nonoverlapping(from.add(first), ring, n - first);
        }
        ends.written.swap(written.wrapping_add(n as u32), Ordering::SeqCst);
        wake_sleeper(area.event(to));
    }
    n
}

/// Reads what is there, and rings the writer's event if it sleeps.
///
/// # Safety
/// `to` must be writable for `n_bytes`, and nobody else reads this ring.
pub unsafe fn ring_read(area: &CommRegion, me: usize, from: usize, to: *mut u8, n_bytes: usize) -> usize {
    let (ends, ring) = (area.ring_ends(from, me), area.ring(from, me));
    let read = ends.read.load(Ordering::Relaxed);
    let there = ends.written.load(Ordering::Acquire).wrapping_sub(read) as usize;
    let n = n_bytes.min(there);
    if n > 0 {
        let at = read as usize % RING_BYTES;
        let first = n.min(RING_BYTES - at);
        // SAFETY: the caller's target; the ring from `at` on is written, as its writer said.
        unsafe {
            std::ptr::copy_nonoverlapping(ring.add(at), to, first);
            std::ptr::copy_nonoverlapping(ring, to.add(first), n - first);
        }
        ends.read.swap(read.wrapping_add(n as u32), Ordering::SeqCst);
        wake_sleeper(area.event(from));
    }
    n
}

/// Wakes whoever sleeps there, if anybody does.
#[inline]
pub fn wake_sleeper(event: &FutexEvent) {
    if event.asleep.load(Ordering::SeqCst) != 0 {
        event.count.fetch_add(1, Ordering::SeqCst);
        wake(&event.count);
    }
}

const _: () = assert!(RING_BYTES.is_power_of_two(), "positions wrap with their counter");
