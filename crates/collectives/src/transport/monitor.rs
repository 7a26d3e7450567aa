//! The thread that notices how other ranks fare. It listens on ties, over which hardly anything is said: when one ends without a
//! goodbye, or the process at the other end of one of this host does (its pidfd says so), its rank has died. The ranks of a host are tied to their lowest, and all ranks to rank 0; who is tied to several
//! passes on what it learns. It also says aloud whom this process has been waiting for, and asks rank 0 now and then whether it
//! still runs while the engine waits for its word.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::fork::ForkClosed;
use crate::transport::roster::{Roster, Waiting};
use crate::transport::tie::{BYE, DIED, Ended, LEFT, LOST, MESSAGE, PING, PONG, Tie, Wire};

/// Takes what another rank said; must not block.
pub type OnMessage = Box<dyn Fn(usize, Vec<u8>) + Send + Sync>;

pub struct Monitor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    rank: usize,
    ties: Vec<Tie>,
    /// For each tie, the beginning of a frame of which not everything has come. Whoever reads the tie holds it.
    partial: Vec<Mutex<Vec<u8>>>,
    roster: Arc<Roster>,
    on_message: Mutex<Option<OnMessage>>,
    /// Said before somebody listened.
    unheard: Mutex<Vec<(usize, Vec<u8>)>>,
    /// After how long a wait is reported; `None`: never.
    report_after: Option<Duration>,
    who: String,
    /// Rank 0 has answered the last question.
    answered: AtomicBool,
    ending: AtomicBool,
    wake: ForkClosed<OwnedFd>,
}

/// How often the thread looks around though nothing has happened.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };
/// How often rank 0 is asked for a sign of life. Asking again as soon as it has answered would keep both monitors busy.
const PING_INTERVAL: Duration = Duration::from_millis(500);
/// How long whoever ties others together stays for their goodbyes.
const LAST_WORDS: Duration = Duration::from_secs(1);

impl Monitor {
    pub fn start(
        rank: usize,
        ties: Vec<(usize, Wire)>,
        roster: Arc<Roster>,
        report_after: Option<Duration>,
    ) -> io::Result<Monitor> {
        let shared = Arc::new(Shared {
            rank,
            partial: ties.iter().map(|_| Mutex::default()).collect(),
            ties: ties.into_iter().map(|(rank, wire)| Tie::new(rank, wire)).collect(),
            who: format!("rank {rank} on host {}", roster.peer(rank).host),
            roster,
            on_message: Mutex::new(None),
            unheard: Mutex::new(Vec::new()),
            report_after,
            answered: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            wake: ForkClosed::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
        });
        let thread = {
            let shared = shared.clone();
            std::thread::Builder::new().name("corro-monitor".into()).spawn(move || shared.listen())?
        };
        Ok(Monitor { shared, thread: Some(thread) })
    }

    /// From now on, and for what was said before.
    pub fn on_message(&self, take: OnMessage) {
        let mut listener = self.shared.on_message.lock().unwrap_or_else(PoisonError::into_inner);
        for (rank, message) in self.shared.unheard.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            take(rank, message);
        }
        *listener = Some(take);
    }

    /// Reads what has come from other hosts on the calling thread, without the monitor's: saves a change of thread to somebody who is
    /// awake. Never blocks. An end is left to the monitor, which sees it too.
    pub fn poll_messages(&self) {
        for (idx, tie) in self.shared.ties.iter().enumerate().filter(|(_, tie)| tie.is_remote()) {
            if let Ok(mut partial) = self.shared.partial[idx].try_lock() {
                let _ = tie.hear(&mut partial, |kind, body| self.shared.on_frame(idx, kind, body));
            }
        }
    }

    /// Says something to a rank this one is tied to. What cannot be said any more will be known from the socket's end.
    pub fn send(&self, rank: usize, message: &[u8]) {
        if let Some(tie) = self.shared.ties.iter().find(|tie| tie.rank == rank) {
            let _ = tie.send(MESSAGE, message);
        }
    }

    /// This rank cannot go on without `rank`, and has not got what it needs: so nobody can go on.
    pub fn give_up(&self, rank: usize) {
        self.shared.pass_on(None, LOST, &lost(rank, self.shared.rank));
        self.shared.roster.on_lost(rank);
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let shared = &self.shared;
        for tie in &shared.ties {
            let _ = tie.send(BYE, &[]);
        }
        // Others learn of each other through us: we stay until all have said goodbye, but not for long.
        let deadline = Instant::now() + LAST_WORDS;
        let ties_others = shared.ties.len() > 1;
        while ties_others && Instant::now() < deadline && shared.ties.iter().any(|tie| !shared.roster.is_gone(tie.rank))
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
        let mut open: Vec<usize> = (0..self.ties.len()).collect();
        let mut asked: Option<Instant> = None;
        let mut reported: Option<Instant> = None;
        while !self.ending.load(Ordering::Acquire) {
            let mut fds = vec![PollFd::new(&self.wake, PollFlags::IN)];
            for tie in open.iter().map(|index| &self.ties[*index]) {
                let descriptors = std::iter::once(tie.fd()).chain(tie.pidfd());
                fds.extend(descriptors.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            }
            let _ = poll(&mut fds, Some(&TICK));
            let ready: Vec<bool> = fds[1..].iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            let mut ready = ready.into_iter();
            open.retain(|index| {
                let tie = &self.ties[*index];
                let is_readable = ready.next() == Some(true);
                let has_ended = tie.pidfd().is_some() && ready.next() == Some(true);
                let outcome = self.attend(*index, is_readable, has_ended);
                outcome.map_err(|ended| self.on_ended(*index, &ended)).is_ok()
            });
            self.ask(&mut asked);
            self.report(asked, &mut reported);
        }
    }

    /// Reads from a tie. The peer's process may have ended (`has_ended`) while another process holds the socket open.
    fn attend(&self, index: usize, is_readable: bool, has_ended: bool) -> Result<(), Ended> {
        let tie = &self.ties[index];
        let hear = || {
            let mut partial = self.partial[index].lock().unwrap_or_else(PoisonError::into_inner);
            tie.hear(&mut partial, |kind, body| self.on_frame(index, kind, body))
        };
        if has_ended {
            // What it said before its end comes first: it may have said goodbye.
            while hear()? {}
            return Err(Ended::Died);
        }
        if is_readable {
            return hear().map(drop);
        }
        if tie.is_cut_off() { Err(Ended::Lost) } else { Ok(()) }
    }

    fn on_frame(&self, index: usize, kind: u8, body: &[u8]) {
        let number = |place: usize| Some(u32::from_le_bytes(body.get(place..place + 4)?.try_into().ok()?) as usize);
        let named = |place| number(place).filter(|rank| *rank < self.roster.size());
        let teller = self.ties[index].rank;
        match kind {
            BYE => {
                self.roster.on_left(teller);
                self.pass_on(Some(index), LEFT, &(teller as u32).to_le_bytes());
            }
            DIED => {
                if let Some(rank) = named(0) {
                    self.relay(index, DIED, rank, body);
                    self.roster.on_died(rank);
                }
            }
            LEFT => {
                if let Some(rank) = named(0) {
                    self.roster.on_left(rank);
                }
            }
            LOST => {
                if let (Some(rank), Some(by)) = (named(0), named(4)) {
                    self.relay(index, LOST, rank, body);
                    self.roster.on_lost(if rank == self.rank { by } else { rank });
                }
            }
            PING => {
                let _ = self.ties[index].send(PONG, &[]);
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
            // A later version may say more.
            _ => {}
        }
    }

    fn on_ended(&self, index: usize, ended: &Ended) {
        let rank = self.ties[index].rank;
        self.ties[index].close();
        if self.roster.is_gone(rank) {
            return;
        }
        // The others first: once it is known here, this process may end at any moment.
        match ended {
            Ended::Died => {
                self.pass_on(Some(index), DIED, &(rank as u32).to_le_bytes());
                self.roster.on_died(rank);
            }
            Ended::Lost => {
                self.pass_on(Some(index), LOST, &lost(rank, self.rank));
                self.roster.on_lost(rank);
            }
        }
    }

    /// What somebody else noticed first: all are tied to rank 0, so it is enough that it tells. Its own tie to that rank ends later,
    /// when this is no news any more.
    fn relay(&self, from: usize, kind: u8, rank: usize, body: &[u8]) {
        if self.rank == 0 && !self.roster.is_gone(rank) {
            self.pass_on(Some(from), kind, body);
        }
    }

    fn pass_on(&self, from: Option<usize>, kind: u8, body: &[u8]) {
        for (index, tie) in self.ties.iter().enumerate() {
            if Some(index) != from && !self.roster.is_gone(tie.rank) {
                let _ = tie.send(kind, body);
            }
        }
    }

    /// Asks rank 0 for a sign of life while the engine waits for its word: it reports who lets others wait, but not itself.
    fn ask(&self, asked: &mut Option<Instant>) {
        let Some(tie) = self.ties.iter().find(|tie| tie.rank == 0 && self.rank != 0) else { return };
        if self.report_after.is_none() || !self.roster.is_agreeing() || self.roster.is_gone(0) {
            *asked = None;
            return;
        }
        let is_due = asked.is_none_or(|at| self.answered.load(Ordering::Relaxed) && at.elapsed() >= PING_INTERVAL);
        if is_due {
            *asked = Some(Instant::now());
            self.answered.store(false, Ordering::Relaxed);
            let _ = tie.send(PING, &[]);
        }
    }

    fn report(&self, asked: Option<Instant>, reported: &mut Option<Instant>) {
        let Some(limit) = self.report_after else { return };
        let unanswered = asked.filter(|at| !self.answered.load(Ordering::Relaxed) && at.elapsed() > limit);
        let unanswered = unanswered.map(|since| Waiting { peer: self.roster.peer(0).clone(), since });
        let Some(waiting) = self.roster.waiting_longer_than(limit).or(unanswered) else { return };
        if reported.is_some_and(|at| at.elapsed() < limit && at > waiting.since) {
            return;
        }
        *reported = Some(Instant::now());
        let (peer, seconds) = (&waiting.peer, waiting.since.elapsed().as_secs());
        let work = self.roster.work().map(|name| format!(", in {name}")).unwrap_or_default();
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

    /// Rank 0 answers at once, and is still asked only now and then.
    #[test]
    fn an_answered_ping_is_not_repeated_at_once() {
        let (one, mut zero) = UnixStream::pair().expect("sockets");
        let peers = (0..2).map(|rank| Peer { rank, host: "here".into() }).collect();
        let roster = Arc::new(Roster::new(peers));
        roster.set_agreeing(true);
        let ties = vec![(0, Wire::Unix(ForkClosed::new(one)))];
        let monitor = Monitor::start(1, ties, roster, Some(Duration::from_secs(60))).expect("a monitor");
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
}
