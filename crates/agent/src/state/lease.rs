//! How long this node may run things without a word from the server. An agent that cannot reach it gives itself up in time to end everything before the
//! job may start elsewhere; for one that is frozen meanwhile, the guards do. Only `driver` enters here. A node of the server's own machine has no lease: its
//! provider ends it.

use std::future::pending;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use corro_launch::process::Launcher;

/// When this node's guards end everything, for whoever writes on behalf of a job: after that the job may run elsewhere. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct LeaseExpiry(watch::Sender<Option<Instant>>);

impl LeaseExpiry {
    pub fn is_over(&self) -> bool {
        self.0.borrow().is_some_and(|at| at <= Instant::now())
    }

    pub(crate) fn set(&self, at: Option<Instant>) {
        self.0.send_replace(at);
    }
}

#[derive(Debug)]
pub struct Lease {
    length: watch::Sender<Option<Duration>>,
    over: watch::Receiver<Option<Duration>>,
    guards: GuardDeadline,
    reached: watch::Receiver<Instant>,
    task: JoinHandle<()>,
}

impl Lease {
    /// `reached` tells when the server was last reached for certain.
    pub fn new(reached: watch::Receiver<Instant>, launcher: Launcher, expiry: LeaseExpiry) -> Lease {
        let (length, lengths) = watch::channel(None);
        let (over_sender, over) = watch::channel(None);
        let guards = GuardDeadline { launcher, expiry };
        let task = tokio::spawn(run(reached.clone(), lengths, guards.clone(), over_sender));
        Lease { length, over, guards, reached, task }
    }

    /// Guards of processes that are started after this know of it.
    pub fn set(&self, length: Option<Duration>) {
        if *self.length.borrow() == length {
            return;
        }
        let reached = *self.reached.borrow();
        self.guards.renew(length.map(|length| LeaseDeadlines::after(reached, length).guards_end));
        self.length.send_replace(length);
    }

    /// Its length, if it is over. To be asked before anything is told to the server: what guards ended is nobody's failure.
    pub fn expired(&self) -> Option<Duration> {
        let length = *self.length.borrow();
        (*self.over.borrow()).or(length.filter(|_| self.guards.may_have_fired()))
    }

    /// Resolves when it is over. May be cancelled and called again.
    pub async fn wait_expired(&mut self) -> Duration {
        match self.over.wait_for(Option::is_some).await.ok().and_then(|length| *length) {
            Some(length) => length,
            None => pending().await,
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// In a task of its own, so that nothing slow keeps it from being renewed.
async fn run(
    mut reached: watch::Receiver<Instant>,
    mut lengths: watch::Receiver<Option<Duration>>,
    guards: GuardDeadline,
    over: watch::Sender<Option<Duration>>,
) {
    loop {
        let (length, last) = (*lengths.borrow_and_update(), *reached.borrow_and_update());
        let now = Instant::now();
        let moments = length.map(|length| LeaseDeadlines::after(last, length));
        // What guards were told last they may have done by now, whatever was heard since.
        if let (Some(moments), Some(length)) = (moments, length)
            && (guards.may_have_fired() || moments.give_up <= now)
        {
            over.send_replace(Some(length));
            return;
        }
        guards.renew(moments.map(|moments| moments.guards_end));
        let until = async {
            match moments {
                Some(moments) => sleep_until(moments.give_up).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = until => {}
            Ok(()) = reached.changed() => {}
            Ok(()) = lengths.changed() => {}
            else => return,
        }
    }
}

#[derive(Clone, Debug)]
struct GuardDeadline {
    launcher: Launcher,
    /// When they end everything, as they were told last.
    expiry: LeaseExpiry,
}

impl GuardDeadline {
    fn renew(&self, at: Option<Instant>) {
        match self.launcher.lease_ends(at.map(Instant::into_std)) {
            Ok(()) => self.expiry.set(at),
            Err(error) => tracing::warn!(%error, "guards cannot be told until when this node may run things"),
        }
    }

    fn may_have_fired(&self) -> bool {
        self.expiry.is_over()
    }
}

#[derive(Clone, Copy)]
struct LeaseDeadlines {
    give_up: Instant,
    guards_end: Instant,
}

impl LeaseDeadlines {
    /// The agent itself first, which can say why; what is left is needed to end all that runs.
    fn after(reached: Instant, length: Duration) -> LeaseDeadlines {
        LeaseDeadlines { give_up: reached + length * 2 / 3, guards_end: reached + length * 5 / 6 }
    }
}
