//! Failure detection during connection setup, when most ranks have no connection to each other yet. Learns of failures from
//! the rendezvous session and from pidfds of the processes on this host, forwards them, and records them in the `PeerTable`, which every wait checks.
//! Ends when all ranks are connected; from then on `control::failure_detector` takes over.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::bootstrap::rendezvous::kv_exchange::FailureKey;
use crate::bootstrap::rendezvous::session::{PeerFailure, Session, SessionMessage, SessionPeer};
use crate::close_on_fork::CloseOnFork;
use crate::peer_process;
use crate::transport::connect::error::ConnectError;
use crate::transport::peer_info::PeerInfo;
use crate::transport::peer_table::PeerTable;

pub struct StartupWatch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    rank: usize,
    session: Mutex<Session>,
    /// Held while messages are read and recorded, so that the next holder finds recorded all that had arrived.
    reading: Mutex<()>,
    peer_table: Arc<PeerTable>,
    /// Set when this rank is connected or has given up.
    is_over: AtomicBool,
    wake: CloseOnFork<OwnedFd>,
}

/// Rank and pidfd of a process of this host; the pidfd becomes readable when the process ends.
type WatchedProcess = (usize, CloseOnFork<OwnedFd>);

/// Delay before the key-value server is polled for failures, so that ranks that connect quickly send it no request.
const FIRST_POLL_DELAY: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// How long an error waits for the notice of a death that explains it.
const EXPLAIN_TIMEOUT: Duration = Duration::from_secs(1);

impl StartupWatch {
    pub fn start(
        session: Session,
        rank: usize,
        peer_infos: &[PeerInfo],
        peer_table: Arc<PeerTable>,
    ) -> io::Result<StartupWatch> {
        let wake = CloseOnFork::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let is_over = AtomicBool::new(matches!(session, Session::SingleProcess));
        let shared =
            Arc::new(Shared { rank, session: Mutex::new(session), reading: Mutex::new(()), peer_table, is_over, wake });
        let (processes, ended) = open_pidfds(rank, peer_infos);
        let thread_shared = shared.clone();
        let work = move || thread_shared.run(processes, &ended);
        let thread = std::thread::Builder::new().name("corro-joining".into()).spawn(work)?;
        Ok(StartupWatch { shared, thread: Some(thread) })
    }

    /// Ends the watch because this rank is connected to all others. Tells them, so that the end of its session is not taken for its death.
    pub fn finish(mut self) {
        self.shared.send_to_all(None, &SessionMessage::Connected);
        self.stop();
    }

    /// Reports to the others that this rank could not connect. Returns the error to show: the death of a rank, if one becomes known in time,
    /// explains more than the connection that broke with it.
    pub fn explain(&self, error: ConnectError, deadline: Instant) -> ConnectError {
        let peer_table = &self.shared.peer_table;
        let until = deadline.min(Instant::now() + EXPLAIN_TIMEOUT);
        loop {
            if peer_table.death().is_some() {
                // A rank that has ended may have reported before which other one made it end.
                self.shared.read_reports();
                return peer_table.death().expect("a death stays recorded").into();
            }
            if Instant::now() >= until {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let culprit = match &error {
            ConnectError::Missing { ranks, .. } | ConnectError::Unreachable { ranks, .. } => ranks.first().copied(),
            _ => None,
        };
        self.shared.forward(None, PeerFailure::Lost(culprit.unwrap_or(self.shared.rank)));
        error
    }

    fn stop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for StartupWatch {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn run(self: &Arc<Shared>, mut processes: Vec<WatchedProcess>, ended: &[usize]) {
        self.on_processes_ended(ended);
        let mut may_poll = matches!(&*self.lock(), Session::KeyValue(_));
        while !self.is_over.load(Ordering::Acquire) {
            let has_event = self.wait(&processes, may_poll);
            if self.is_over.load(Ordering::Acquire) {
                return;
            }
            if may_poll && !has_event {
                may_poll = false;
                self.poll_server();
            }
            // Seen together: a rank that ended because of another is not seen without it.
            let ended = ended_processes(&processes);
            processes.retain(|(rank, _)| !ended.contains(rank));
            self.on_processes_ended(&ended);
        }
    }

    /// Handles the end of processes of this host. Their last messages come first: they may name the rank that made them end. Ranks whose session has
    /// ended are left out; those that are connected are watched by the failure detector.
    fn on_processes_ended(&self, ranks: &[usize]) {
        self.read_messages();
        let is_done = |rank: usize| match &*self.lock() {
            Session::Rank0(peers) => peers.iter().any(|peer| peer.rank == rank && peer.is_done),
            _ => false,
        };
        for rank in ranks.iter().filter(|rank| !is_done(**rank)) {
            self.on_failure(None, PeerFailure::Died(*rank));
        }
    }

    /// Waits for events. False on timeout.
    fn wait(&self, processes: &[WatchedProcess], is_limited: bool) -> bool {
        // Descriptors are duplicated, so that the session is not locked during the wait: other threads send through it.
        let sockets: Vec<OwnedFd> = match &*self.lock() {
            Session::Rank0(peers) => {
                let open = peers.iter().filter(|peer| !peer.is_done);
                open.filter_map(|peer| peer.as_fd().try_clone_to_owned().ok()).collect()
            }
            _ => Vec::new(),
        };
        let mut fds = vec![PollFd::new(&self.wake, PollFlags::IN)];
        fds.extend(processes.iter().map(|(_, pidfd)| PollFd::new(pidfd, PollFlags::IN)));
        fds.extend(sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)));
        let n_ready = poll(&mut fds, is_limited.then_some(&FIRST_POLL_DELAY));
        matches!(n_ready, Ok(1..))
    }

    /// Reads and records the messages of the session's peers that have arrived. Never blocks.
    fn read_messages(&self) {
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let n_peers = match &*self.lock() {
            Session::Rank0(peers) => peers.len(),
            _ => 0,
        };
        for index in 0..n_peers {
            while self.read_message(index) {}
        }
    }

    /// Reads what has arrived from one peer. False when nothing had, or nothing will come any more.
    fn read_message(&self, index: usize) -> bool {
        let (rank, messages) = match &mut *self.lock() {
            Session::Rank0(peers) if !peers[index].is_done => {
                let peer = &mut peers[index];
                let messages = peer.receive();
                let is_last = |messages: &Vec<SessionMessage>| messages.contains(&SessionMessage::Connected);
                peer.is_done = messages.as_ref().map_or(true, is_last);
                (peer.rank, messages)
            }
            _ => return false,
        };
        let Ok(messages) = messages else {
            self.on_failure(Some(rank), PeerFailure::Died(rank));
            return false;
        };
        for message in &messages {
            if let SessionMessage::Failure(failure) = message {
                self.on_failure(Some(rank), *failure);
            }
        }
        !messages.is_empty()
    }

    /// Records the failures that other ranks have reported so far.
    fn read_reports(&self) {
        self.read_messages();
        let reported = self.failure_key().and_then(|failure_key| failure_key.get());
        if let Some(rank) = reported.filter(|rank| *rank < self.peer_table.size()) {
            self.peer_table.on_died(rank);
            self.peer_table.set_first_failure(rank);
        }
    }

    fn failure_key(&self) -> Option<FailureKey> {
        match &*self.lock() {
            Session::KeyValue(failure_key) => Some(failure_key.clone()),
            _ => None,
        }
    }

    fn poll_server(self: &Arc<Shared>) {
        let Some(failure_key) = self.failure_key() else { return };
        let shared = self.clone();
        // Not joined: a poll takes up to a second, and its result is not needed once the ranks are connected.
        let work = move || {
            while !shared.is_over.load(Ordering::Acquire) {
                let Some(rank) = failure_key.wait() else { continue };
                if !shared.is_over.load(Ordering::Acquire) {
                    shared.record(PeerFailure::Died(rank));
                }
                return;
            }
        };
        // Without the thread, the ranks wait until their deadline, as with a launcher that does not report failures.
        let _ = std::thread::Builder::new().name("corro-notices".into()).spawn(work);
    }

    /// Forwards before recording: once the failure is recorded, this process may end at any moment.
    fn on_failure(&self, from: Option<usize>, failure: PeerFailure) {
        self.forward(from, failure);
        self.record(failure);
        let (PeerFailure::Died(rank) | PeerFailure::Lost(rank)) = failure;
        // A rank that reports a failure ends because of it.
        let is_consequence = |from: &usize| *from != rank && self.peer_table.first_failure() == Some(*from);
        if rank < self.peer_table.size() && from.as_ref().is_some_and(is_consequence) {
            self.peer_table.set_first_failure(rank);
        }
    }

    fn record(&self, failure: PeerFailure) {
        match failure {
            PeerFailure::Died(rank) if rank < self.peer_table.size() => drop(self.peer_table.on_died(rank)),
            PeerFailure::Lost(rank) if rank < self.peer_table.size() => drop(self.peer_table.on_lost(rank)),
            _ => {}
        }
    }

    /// Forwards a failure through rank 0 to all ranks, except to the one it came from.
    fn forward(&self, from: Option<usize>, failure: PeerFailure) {
        let (PeerFailure::Died(rank) | PeerFailure::Lost(rank)) = failure;
        if rank >= self.peer_table.size() || self.peer_table.is_gone(rank) || (self.rank != 0 && from == Some(0)) {
            return;
        }
        match self.failure_key() {
            // The first report stays: later ones are likely to be its consequences.
            Some(failure_key) if failure_key.get().is_some() => {}
            Some(failure_key) => {
                let host = &self.peer_table.peer(rank).host;
                failure_key.put(rank, &format!("rank {rank} on host {host} was lost while the ranks connected"));
            }
            None => self.send_to_all(from, &SessionMessage::Failure(failure)),
        }
    }

    fn send_to_all(&self, except: Option<usize>, message: &SessionMessage) {
        if let Session::Rank0(peers) = &*self.lock() {
            peers.iter().filter(|peer| Some(peer.rank) != except).for_each(|peer: &SessionPeer| peer.send(message));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens pidfds of the other ranks on this host. Returns them, and the ranks that have ended already. Pids are comparable only within one PID
/// namespace.
fn open_pidfds(own_rank: usize, peer_infos: &[PeerInfo]) -> (Vec<WatchedProcess>, Vec<usize>) {
    let own = &peer_infos[own_rank];
    let on_this_host = peer_infos.iter().enumerate().filter(|(_, other)| {
        other.machine == own.machine
            && other.pid_namespace == own.pid_namespace
            && own.pid_namespace != 0
            && other.pid != own.pid
    });
    let (mut processes, mut ended) = (Vec::new(), Vec::new());
    for (rank, other) in on_this_host {
        match peer_process::open_pidfd(other.pid as i32) {
            Ok(pidfd) => processes.push((rank, pidfd)),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => ended.push(rank),
            // The kernel or a sandbox does not support pidfds.
            Err(_) => {}
        }
    }
    (processes, ended)
}

/// The ranks of the processes that have ended, ascending.
fn ended_processes(processes: &[WatchedProcess]) -> Vec<usize> {
    let mut fds: Vec<_> = processes.iter().map(|(_, pidfd)| PollFd::new(pidfd, PollFlags::IN)).collect();
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let n_ready = poll(&mut fds, Some(&at_once));
    if !matches!(n_ready, Ok(1..)) {
        return Vec::new();
    }
    let ended = processes.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
    ended.map(|((rank, _), _)| *rank).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::error::Peer;

    /// Rank 0 reports that rank 1 has died and ends. This rank notices the end of rank 0 before it reads the report.
    #[test]
    fn a_rank_that_ended_because_of_another_is_not_blamed() {
        let (zero, two) = UnixStream::pair().expect("sockets");
        let peers = (0..3).map(|rank| Peer { rank, host: "here".into() }).collect();
        let shared = Shared {
            rank: 2,
            session: Mutex::new(Session::Rank0(vec![SessionPeer::new(0, two.into())])),
            reading: Mutex::new(()),
            peer_table: Arc::new(PeerTable::new(peers)),
            is_over: AtomicBool::new(false),
            wake: CloseOnFork::new(eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd")),
        };
        let watch = StartupWatch { shared: Arc::new(shared), thread: None };
        SessionPeer::new(2, zero.into()).send(&SessionMessage::Failure(PeerFailure::Died(1)));
        watch.shared.on_failure(None, PeerFailure::Died(0));
        let broken = ConnectError::Network(io::ErrorKind::BrokenPipe.into());
        let explained = watch.explain(broken, Instant::now() + EXPLAIN_TIMEOUT);
        assert_eq!(explained.to_string(), "rank 1 on host here has died");
    }
}
