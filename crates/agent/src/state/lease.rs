//! The node's lease: how long it may run processes without contact to the server. An agent that cannot reach the server
//! gives up in time to end everything before the job may start elsewhere. If the agent is frozen, the guards do it at
//! their deadline. Nodes on the server's own machine have no lease, since their provider ends them.

use std::future::pending;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use corro_launch::process::Launcher;

/// Moment at which this node's guards kill everything. After it the job may run elsewhere, so code that writes for a
/// job checks it. Clones share the value.
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

/// The lease of this node. Renewed in the background until dropped.
#[derive(Debug)]
pub struct Lease {
    length: watch::Sender<Option<Duration>>,
    over: watch::Receiver<Option<Duration>>,
    guards: GuardDeadline,
    reached: watch::Receiver<Instant>,
    task: JoinHandle<()>,
}

impl Lease {
    /// `reached` holds the time at which the server was last reached for certain.
    pub fn new(reached: watch::Receiver<Instant>, launcher: Launcher, expiry: LeaseExpiry) -> Lease {
        let (length, lengths) = watch::channel(None);
        let (over_sender, over) = watch::channel(None);
        let guards = GuardDeadline { launcher, expiry };
        let task = tokio::spawn(run(reached.clone(), lengths, guards.clone(), over_sender));
        Lease { length, over, guards, reached, task }
    }

    /// Sets the length of the lease. Guards of processes started after this call have the new deadline.
    pub fn set(&self, length: Option<Duration>) {
        if *self.length.borrow() == length {
            return;
        }
        let reached = *self.reached.borrow();
        self.guards.renew(length.map(|length| LeaseDeadlines::after(reached, length).guards_end));
        self.length.send_replace(length);
    }

    /// The lease's length if it has expired. Check it before reporting to the server: processes killed by guards are
    /// not the job's failure.
    pub fn expired(&self) -> Option<Duration> {
        let length = *self.length.borrow();
        (*self.over.borrow()).or(length.filter(|_| self.guards.may_have_fired()))
    }

    /// Resolves when the lease has expired. Cancel safe.
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

/// Renews the guards' deadline. Runs in a task of its own so that slow work cannot delay a renewal.
async fn run(
    mut reached: watch::Receiver<Instant>,
    mut lengths: watch::Receiver<Option<Duration>>,
    guards: GuardDeadline,
    over: watch::Sender<Option<Duration>>,
) {
    loop {
        let (length, last) = (*lengths.borrow_and_update(), *reached.borrow_and_update());
        let now = Instant::now();
        let deadlines = length.map(|length| LeaseDeadlines::after(last, length));
        // Guards may already have fired at the last deadline they got, even if the server was reached since.
        if let (Some(deadlines), Some(length)) = (deadlines, length)
            && (guards.may_have_fired() || deadlines.give_up <= now)
        {
            over.send_replace(Some(length));
            return;
        }
        guards.renew(deadlines.map(|deadlines| deadlines.guards_end));
        let until = async {
            match deadlines {
                Some(deadlines) => sleep_until(deadlines.give_up).await,
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
    /// Deadline last passed to the guards.
    expiry: LeaseExpiry,
}

impl GuardDeadline {
    fn renew(&self, at: Option<Instant>) {
        match self.launcher.set_deadline(at.map(Instant::into_std)) {
            Ok(()) => self.expiry.set(at),
            Err(error) => tracing::warn!(%error, "cannot set the lease deadline of the guards"),
        }
    }

    fn may_have_fired(&self) -> bool {
        self.expiry.is_over()
    }
}

/// Deadlines that follow from the last contact with the server.
#[derive(Clone, Copy)]
struct LeaseDeadlines {
    give_up: Instant,
    guards_end: Instant,
}

impl LeaseDeadlines {
    /// The agent gives up at 2/3 of the lease, so that it can log the reason; guards fire at 5/6, which leaves the rest
    /// for killing everything.
    fn after(reached: Instant, length: Duration) -> LeaseDeadlines {
        LeaseDeadlines { give_up: reached + length * 2 / 3, guards_end: reached + length * 5 / 6 }
    }
}
