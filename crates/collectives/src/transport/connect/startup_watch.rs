//! Watches the other ranks while the world is being connected, when most of them have no connection to each other yet. Learns of an end from
//! the meeting's session and from pidfds of the processes on this host, passes it on, and writes it to the `PeerTable`, which every wait checks.
//! Ends when all ranks are connected: from then on `control::failure_detector` watches.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

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
    peer_table: Arc<PeerTable>,
    /// This rank needs the watch no more.
    is_over: AtomicBool,
    wake: CloseOnFork<OwnedFd>,
}

/// A process of this host, by a descriptor that is readable at its end.
type Process = (usize, CloseOnFork<OwnedFd>);

/// After so long a server is asked for notices: ranks that connect at once cost it nothing.
const FIRST_REQUEST: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// How long an error waits for a better explanation.
const VERDICT: Duration = Duration::from_secs(1);

impl StartupWatch {
    pub fn start(
        session: Session,
        rank: usize,
        peer_infos: &[PeerInfo],
        peer_table: Arc<PeerTable>,
    ) -> io::Result<StartupWatch> {
        let wake = CloseOnFork::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let is_over = AtomicBool::new(matches!(session, Session::SingleProcess));
        let shared = Arc::new(Shared { rank, session: Mutex::new(session), peer_table, is_over, wake });
        let processes = shared.open_processes(peer_infos);
        let of_thread = shared.clone();
        let work = move || of_thread.watch(processes);
        let thread = std::thread::Builder::new().name("corro-joining".into()).spawn(work)?;
        Ok(StartupWatch { shared, thread: Some(thread) })
    }

    /// This rank is connected to all others, which are told so: the end of its connection to the meeting means nothing from now on.
    pub fn finish(mut self) {
        self.shared.send_all(None, &SessionMessage::Connected);
        self.stop();
    }

    /// Tells the others that this rank could not connect. Returns why: the death of a rank, if one is known by then, explains more than
    /// the connection that broke with it.
    pub fn explain(&self, error: ConnectError, deadline: Instant) -> ConnectError {
        let peer_table = &self.shared.peer_table;
        let until = deadline.min(Instant::now() + VERDICT);
        loop {
            if let Some(death) = peer_table.death() {
                return death.into();
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
        self.shared.spread(None, PeerFailure::Lost(culprit.unwrap_or(self.shared.rank)));
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
    /// Numbers of processes mean something only within one PID namespace.
    fn open_processes(&self, peer_infos: &[PeerInfo]) -> Vec<Process> {
        let own = &peer_infos[self.rank];
        let beside = peer_infos.iter().enumerate().filter(|(_, other)| {
            other.machine == own.machine
                && other.pid_namespace == own.pid_namespace
                && own.pid_namespace != 0
                && other.pid != own.pid
        });
        let mut processes = Vec::new();
        for (rank, other) in beside {
            match peer_process::open_pidfd(other.pid as i32) {
                Ok(pidfd) => processes.push((rank, pidfd)),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                    self.on_notice(None, PeerFailure::Died(rank))
                }
                // The kernel or a sandbox does not offer it.
                Err(_) => {}
            }
        }
        processes
    }

    fn watch(self: &Arc<Shared>, mut processes: Vec<Process>) {
        let mut members = match &mut *self.lock() {
            Session::Rank0(members) => (0..members.len()).collect::<Vec<usize>>(),
            _ => Vec::new(),
        };
        let mut may_ask = matches!(&*self.lock(), Session::KeyValue(_));
        while !self.is_over.load(Ordering::Acquire) {
            let (ready_members, ready_processes) = self.wait(&members, &processes, may_ask);
            if self.is_over.load(Ordering::Acquire) {
                return;
            }
            if may_ask && ready_processes.is_empty() {
                may_ask = false;
                self.ask_server();
            }
            let mut ended = ready_processes.into_iter();
            processes.retain(|(rank, _)| {
                let has_ended = ended.next() == Some(true);
                if has_ended {
                    self.on_notice(None, PeerFailure::Died(*rank));
                }
                !has_ended
            });
            for index in ready_members {
                if !self.hear(index) {
                    members.retain(|open| *open != index);
                }
            }
        }
    }

    /// Members that have something to say, and for each process whether it has ended; nothing when the time is over.
    fn wait(&self, members: &[usize], processes: &[Process], is_limited: bool) -> (Vec<usize>, Vec<bool>) {
        // The session is not locked during the wait: others of this process send to it. The descriptors live as long as `self`.
        let sockets: Vec<OwnedFd> = match &*self.lock() {
            Session::Rank0(all) => {
                members.iter().filter_map(|index| all[*index].as_fd().try_clone_to_owned().ok()).collect()
            }
            _ => Vec::new(),
        };
        let mut fds = vec![PollFd::new(&self.wake, PollFlags::IN)];
        fds.extend(processes.iter().map(|(_, pidfd)| PollFd::new(pidfd, PollFlags::IN)));
        fds.extend(sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)));
        let n_ready = poll(&mut fds, is_limited.then_some(&FIRST_REQUEST));
        if !matches!(n_ready, Ok(1..)) {
            return (Vec::new(), Vec::new());
        }
        let ready: Vec<bool> = fds[1..].iter().map(|fd| !fd.revents().is_empty()).collect();
        let (ended, spoken) = ready.split_at(processes.len());
        let spoken = members.iter().zip(spoken).filter(|(_, spoken)| **spoken).map(|(index, _)| *index);
        (spoken.collect(), ended.to_vec())
    }

    /// False when nothing more is to be heard from this member.
    fn hear(&self, index: usize) -> bool {
        let (rank, said) = match &mut *self.lock() {
            Session::Rank0(members) => (members[index].rank, members[index].receive()),
            _ => return false,
        };
        let Ok(said) = said else {
            self.on_notice(Some(rank), PeerFailure::Died(rank));
            return false;
        };
        for said in said {
            match said {
                SessionMessage::Connected => return false,
                SessionMessage::Failure(notice) => self.on_notice(Some(rank), notice),
            }
        }
        true
    }

    fn ask_server(self: &Arc<Shared>) {
        let Session::KeyValue(notices) = &*self.lock() else { return };
        let (shared, notices) = (self.clone(), notices.clone());
        // Not joined: an answer may take a second, and nobody waits for it any more when the ranks are connected.
        let work = move || {
            while !shared.is_over.load(Ordering::Acquire) {
                let Some(rank) = notices.wait() else { continue };
                if !shared.is_over.load(Ordering::Acquire) {
                    shared.note(PeerFailure::Died(rank));
                }
                return;
            }
        };
        // Without the thread the ranks wait for their deadline, as they would without a launcher that tells.
        let _ = std::thread::Builder::new().name("corro-notices".into()).spawn(work);
    }

    /// The others first: once it is known here, this process may end at any moment.
    fn on_notice(&self, from: Option<usize>, notice: PeerFailure) {
        self.spread(from, notice);
        self.note(notice);
    }

    fn note(&self, notice: PeerFailure) {
        match notice {
            PeerFailure::Died(rank) if rank < self.peer_table.size() => drop(self.peer_table.on_died(rank)),
            PeerFailure::Lost(rank) if rank < self.peer_table.size() => drop(self.peer_table.on_lost(rank)),
            _ => {}
        }
    }

    /// Over rank 0 to everybody, but not back.
    fn spread(&self, from: Option<usize>, notice: PeerFailure) {
        let (PeerFailure::Died(rank) | PeerFailure::Lost(rank)) = notice;
        if rank >= self.peer_table.size() || self.peer_table.is_gone(rank) || (self.rank != 0 && from == Some(0)) {
            return;
        }
        let notices = match &*self.lock() {
            Session::KeyValue(notices) => Some(notices.clone()),
            _ => None,
        };
        match notices {
            Some(notices) => {
                let host = &self.peer_table.peer(rank).host;
                notices.put(rank, &format!("rank {rank} on host {host} was lost while the ranks connected"));
            }
            None => self.send_all(from, &SessionMessage::Failure(notice)),
        }
    }

    fn send_all(&self, but: Option<usize>, said: &SessionMessage) {
        if let Session::Rank0(members) = &*self.lock() {
            members.iter().filter(|member| Some(member.rank) != but).for_each(|member: &SessionPeer| member.send(said));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
