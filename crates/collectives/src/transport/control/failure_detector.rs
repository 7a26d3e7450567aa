//! The thread that notices the end of other ranks. It polls the control connections and, for processes of this host, their pidfds: end of file without a
//! BYE frame, or a pidfd that becomes readable, means that the rank has died. Ranks of a host are connected to the lowest of them, and all ranks to rank 0;
//! a rank with several connections passes on what it learns. The thread also reports on standard error which rank this process has been
//! waiting for, and pings rank 0 while the engine waits for its response.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::close_on_fork::CloseOnFork;
use crate::error::Error;
use crate::transport::control::connection::{
    BYE, ControlConnection, DIED, Disconnect, LEFT, LOST, MESSAGE, PING, PONG, Wire,
};
use crate::transport::peer_table::{LongWait, PeerTable};

/// Receives a message of another rank; must not block.
pub type OnMessage = Box<dyn Fn(usize, Vec<u8>) + Send + Sync>;

pub struct FailureDetector {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    rank: usize,
    connections: Vec<ControlConnection>,
    /// For each connection, the received part of an incomplete frame. Locked by the thread that reads the connection.
    partial: Vec<Mutex<Vec<u8>>>,
    peer_table: Arc<PeerTable>,
    on_message: Mutex<Option<OnMessage>>,
    /// Messages that arrived before `on_message` was set.
    unheard: Mutex<Vec<(usize, Vec<u8>)>>,
    /// A wait longer than this is reported; `None`: never.
    report_after: Option<Duration>,
    who: String,
    /// Whether rank 0 has answered the last PING.
    answered: AtomicBool,
    ending: AtomicBool,
    wake: CloseOnFork<OwnedFd>,
}

/// The longest poll: waits are reported and pings sent even if nothing happens.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };
/// How often rank 0 is pinged. Pinging again as soon as it has answered would keep both threads busy.
const PING_INTERVAL: Duration = Duration::from_millis(500);
/// How long a rank that relays for others waits for their BYE frames before it ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

impl FailureDetector {
    pub fn start(
        rank: usize,
        connections: Vec<(usize, Wire)>,
        peer_table: Arc<PeerTable>,
        report_after: Option<Duration>,
    ) -> io::Result<FailureDetector> {
        let shared = Arc::new(Shared {
            rank,
            partial: connections.iter().map(|_| Mutex::default()).collect(),
            connections: connections.into_iter().map(|(rank, wire)| ControlConnection::new(rank, wire)).collect(),
            who: format!("rank {rank} on host {}", peer_table.peer(rank).host),
            peer_table,
            on_message: Mutex::new(None),
            unheard: Mutex::new(Vec::new()),
            report_after,
            answered: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            wake: CloseOnFork::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
        });
        let thread = {
            let shared = shared.clone();
            std::thread::Builder::new().name("corro-monitor".into()).spawn(move || shared.listen())?
        };
        Ok(FailureDetector { shared, thread: Some(thread) })
    }

    /// Sets the receiver of messages, and hands it those that came before.
    pub fn on_message(&self, take: OnMessage) {
        let mut listener = self.shared.on_message.lock().unwrap_or_else(PoisonError::into_inner);
        for (rank, message) in self.shared.unheard.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            take(rank, message);
        }
        *listener = Some(take);
    }

    /// Reads the connections to other hosts on the calling thread, which saves a caller that is awake the wake-up of the detector's thread. Never
    /// blocks. A disconnect is left to the thread, which sees it too.
    pub fn poll_messages(&self) {
        for (idx, connection) in
            self.shared.connections.iter().enumerate().filter(|(_, connection)| connection.is_remote())
        {
            if let Ok(mut partial) = self.shared.partial[idx].try_lock() {
                let _ = connection.read_frames(&mut partial, |kind, body| self.shared.on_frame(idx, kind, body));
            }
        }
    }

    /// Sends a message to a rank that this one is connected to. Errors are dropped: the thread sees the disconnect.
    pub fn send(&self, rank: usize, message: &[u8]) {
        if let Some(connection) = self.shared.connections.iter().find(|connection| connection.rank == rank) {
            let _ = connection.send(MESSAGE, message);
        }
    }

    /// Declares `rank` lost, here and to all others: this rank needs it and cannot reach it.
    pub fn give_up(&self, rank: usize) {
        self.shared.pass_on(None, LOST, &lost(rank, self.shared.rank));
        self.shared.peer_table.on_lost(rank);
    }
}

impl Drop for FailureDetector {
    fn drop(&mut self) {
        let shared = &self.shared;
        // A failure may have become known on another way, during connection setup, and to this rank alone. Without it, the others would wait for
        // that rank after this one, their only source of news, has left.
        match shared.peer_table.death() {
            Some(Error::Lost { peer }) => shared.pass_on(None, LOST, &lost(peer.rank, shared.rank)),
            Some(Error::Died { peer }) => shared.pass_on(None, DIED, &(peer.rank as u32).to_le_bytes()),
            _ => {}
        }
        for connection in &shared.connections {
            let _ = connection.send(BYE, &[]);
        }
        // Others learn of each other through this rank, so it stays for their BYE frames. After a failure, which they know now, nobody needs more.
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        let serves_others = shared.connections.len() > 1 && shared.peer_table.death().is_none();
        while serves_others
            && Instant::now() < deadline
            && shared.connections.iter().any(|connection| !shared.peer_table.is_gone(connection.rank))
        {
            std::thread::sleep(Duration::from_micros(200));
        }
        shared.ending.store(true, Ordering::Release);
        let _ = rustix::io::write(&shared.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn listen(&self) {
        let mut open: Vec<usize> = (0..self.connections.len()).collect();
        let mut asked: Option<Instant> = None;
        let mut reported: Option<Instant> = None;
        while !self.ending.load(Ordering::Acquire) {
            let mut fds = vec![PollFd::new(&self.wake, PollFlags::IN)];
            for connection in open.iter().map(|idx| &self.connections[*idx]) {
                let descriptors = std::iter::once(connection.fd()).chain(connection.pidfd());
                fds.extend(descriptors.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            }
            let _ = poll(&mut fds, Some(&POLL_INTERVAL));
            let ready: Vec<bool> = fds[1..].iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            let mut ready = ready.into_iter();
            open.retain(|idx| {
                let connection = &self.connections[*idx];
                let is_readable = ready.next() == Some(true);
                let has_ended = connection.pidfd().is_some() && ready.next() == Some(true);
                let outcome = self.attend(*idx, is_readable, has_ended);
                outcome.map_err(|ended| self.on_ended(*idx, &ended)).is_ok()
            });
            self.ask(&mut asked);
            self.report(asked, &mut reported);
        }
    }

    /// Reads from a connection. The peer's process may have ended (`has_ended`) while another process holds the socket open.
    fn attend(&self, idx: usize, is_readable: bool, has_ended: bool) -> Result<(), Disconnect> {
        let connection = &self.connections[idx];
        let read_frames = || {
            let mut partial = self.partial[idx].lock().unwrap_or_else(PoisonError::into_inner);
            connection.read_frames(&mut partial, |kind, body| self.on_frame(idx, kind, body))
        };
        if has_ended {
            // Frames that it sent before its end come first: a BYE may be among them.
            while read_frames()? {}
            return Err(Disconnect::Died);
        }
        if is_readable {
            return read_frames().map(drop);
        }
        if connection.is_cut_off() { Err(Disconnect::Lost) } else { Ok(()) }
    }

    fn on_frame(&self, idx: usize, kind: u8, body: &[u8]) {
        let number = |place: usize| Some(u32::from_le_bytes(body.get(place..place + 4)?.try_into().ok()?) as usize);
        let named = |place| number(place).filter(|rank| *rank < self.peer_table.size());
        let teller = self.connections[idx].rank;
        match kind {
            BYE => {
                self.peer_table.on_left(teller);
                self.pass_on(Some(idx), LEFT, &(teller as u32).to_le_bytes());
            }
            DIED => {
                if let Some(rank) = named(0) {
                    self.relay(idx, DIED, rank, body);
                    self.peer_table.on_died(rank);
                }
            }
            LEFT => {
                if let Some(rank) = named(0) {
                    self.peer_table.on_left(rank);
                }
            }
            LOST => {
                if let (Some(rank), Some(by)) = (named(0), named(4)) {
                    self.relay(idx, LOST, rank, body);
                    self.peer_table.on_lost(if rank == self.rank { by } else { rank });
                }
            }
            PING => {
                let _ = self.connections[idx].send(PONG, &[]);
            }
            PONG => self.answered.store(true, Ordering::Relaxed),
            MESSAGE => {
                let listener = self.on_message.lock().unwrap_or_else(PoisonError::into_inner);
                match &*listener {
                    Some(take) => take(teller, body.to_vec()),
                    None => {
                        self.unheard.lock().unwrap_or_else(PoisonError::into_inner).push((teller, body.to_vec()));
                    }
                }
            }
            // Later versions may have more kinds of frames.
            _ => {}
        }
    }

    fn on_ended(&self, idx: usize, ended: &Disconnect) {
        let rank = self.connections[idx].rank;
        self.connections[idx].close();
        if self.peer_table.is_gone(rank) {
            return;
        }
        // The other ranks are notified first: once the death is recorded here, this process may end at any moment.
        match ended {
            Disconnect::Died => {
                self.pass_on(Some(idx), DIED, &(rank as u32).to_le_bytes());
                self.peer_table.on_died(rank);
            }
            Disconnect::Lost => {
                self.pass_on(Some(idx), LOST, &lost(rank, self.rank));
                self.peer_table.on_lost(rank);
            }
        }
    }

    /// Passes on a failure that another rank reported. Only rank 0 does, because all ranks are connected to it. The disconnect that it sees itself
    /// later is dropped, as the rank is recorded as gone by then.
    fn relay(&self, from: usize, kind: u8, rank: usize, body: &[u8]) {
        if self.rank == 0 && !self.peer_table.is_gone(rank) {
            self.pass_on(Some(from), kind, body);
        }
    }

    fn pass_on(&self, from: Option<usize>, kind: u8, body: &[u8]) {
        for (idx, connection) in self.connections.iter().enumerate() {
            if Some(idx) != from && !self.peer_table.is_gone(connection.rank) {
                let _ = connection.send(kind, body);
            }
        }
    }

    /// Pings rank 0 while the engine waits for its response: rank 0 reports stalled ranks, but not itself.
    fn ask(&self, asked: &mut Option<Instant>) {
        let Some(connection) = self.connections.iter().find(|connection| connection.rank == 0 && self.rank != 0) else {
            return;
        };
        if self.report_after.is_none() || !self.peer_table.is_agreeing() || self.peer_table.is_gone(0) {
            *asked = None;
            return;
        }
        let is_due = asked.is_none_or(|at| self.answered.load(Ordering::Relaxed) && at.elapsed() >= PING_INTERVAL);
        if is_due {
            *asked = Some(Instant::now());
            self.answered.store(false, Ordering::Relaxed);
            let _ = connection.send(PING, &[]);
        }
    }

    fn report(&self, asked: Option<Instant>, reported: &mut Option<Instant>) {
        let Some(limit) = self.report_after else { return };
        let unanswered = asked.filter(|at| !self.answered.load(Ordering::Relaxed) && at.elapsed() > limit);
        let unanswered = unanswered.map(|since| LongWait { peer: self.peer_table.peer(0).clone(), since });
        let Some(waiting) = self.peer_table.waiting_longer_than(limit).or(unanswered) else { return };
        if reported.is_some_and(|at| at.elapsed() < limit && at > waiting.since) {
            return;
        }
        *reported = Some(Instant::now());
        let (peer, seconds) = (&waiting.peer, waiting.since.elapsed().as_secs());
        let work = self.peer_table.work().map(|name| format!(", in {name}")).unwrap_or_default();
        eprintln!(
            "corro: {} has been waiting for rank {} on host {} for {seconds} s{work}",
            self.who, peer.rank, peer.host
        );
    }
}

fn lost(rank: usize, by: usize) -> [u8; 8] {
    (rank as u64 | (by as u64) << 32).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::error::Peer;

    /// Rank 0 answers at once, and is still pinged once per interval only.
    #[test]
    fn an_answered_ping_is_not_repeated_at_once() {
        let (one, mut zero) = UnixStream::pair().expect("sockets");
        let peers = (0..2).map(|rank| Peer { rank, host: "here".into() }).collect();
        let peer_table = Arc::new(PeerTable::new(peers));
        peer_table.set_agreeing(true);
        let connections = vec![(0, Wire::Unix(CloseOnFork::new(one)))];
        let monitor =
            FailureDetector::start(1, connections, peer_table, Some(Duration::from_secs(60))).expect("a monitor");
        let mut n_pings = 0;
        let mut frame = [0; 5];
        while n_pings < 10 && zero.read_exact(&mut frame).is_ok() {
            assert_eq!(frame, [0, 0, 0, 0, PING]);
            n_pings += 1;
            zero.set_read_timeout(Some(PING_INTERVAL / 2)).expect("a timeout");
            zero.write_all(&[0, 0, 0, 0, PONG]).expect("sent");
        }
        drop(monitor);
        assert_eq!(n_pings, 1);
    }

    /// Rank 0 learned of a death while it connected, and gives up. Rank 2, which is connected already, learns of it before rank 0 leaves.
    #[test]
    fn a_rank_that_leaves_reports_the_death_that_made_it_leave() {
        let (to_two, mut two) = UnixStream::pair().expect("sockets");
        let peers = (0..3).map(|rank| Peer { rank, host: "here".into() }).collect();
        let peer_table = Arc::new(PeerTable::new(peers));
        let connections = vec![(2, Wire::Unix(CloseOnFork::new(to_two)))];
        let monitor = FailureDetector::start(0, connections, peer_table.clone(), None).expect("a monitor");
        peer_table.on_died(1);
        drop(monitor);
        let mut frames = Vec::new();
        two.read_to_end(&mut frames).expect("it has left");
        assert_eq!(frames, [&[4, 0, 0, 0, DIED, 1, 0, 0, 0][..], &[0, 0, 0, 0, BYE]].concat());
    }
}
