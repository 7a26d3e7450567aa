//! Writer thread with group commit. It takes all queued changes, applies each to the working state, writes their rows
//! in one transaction, publishes one snapshot, and then replies. A failed change costs no write.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use corro_base::error_chain;
use tokio::sync::oneshot;

use crate::db::{Batch, Db};
use crate::history::Actor;
use crate::space::Space;
use crate::state::State;
use crate::txn::{Changes, Txn};
use crate::{CommitEvent, Shared, StoreError, StoreStats};

/// Changes that share one disk write at most.
const MAX_GROUP_CHANGES: usize = 512;

/// Interval between attempts to create a missing reserve; see `space`.
const RESERVE_RETRY: Duration = Duration::from_millis(500);

#[derive(Clone)]
pub(crate) struct Inbox(mpsc::Sender<Message>);

enum Message {
    Change(Box<dyn Change>),
    Close(oneshot::Sender<Result<bool, StoreError>>),
}

impl Inbox {
    pub fn send<T, E, F>(&self, actor: Actor, change: F, reply: oneshot::Sender<Result<T, E>>)
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut Txn) -> Result<T, E> + Send + 'static,
    {
        let mut once = Some(change);
        let change = move |txn: &mut Txn| once.take().map(|change| change(txn));
        self.put(Pending { actor, change, is_relief: false, result: None, reply });
    }

    /// Sends a change that may be applied more than once.
    pub fn send_relief<T, E, F>(&self, actor: Actor, mut change: F, reply: oneshot::Sender<Result<T, E>>)
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnMut(&mut Txn) -> Result<T, E> + Send + 'static,
    {
        let change = move |txn: &mut Txn| Some(change(txn));
        self.put(Pending { actor, change, is_relief: true, result: None, reply });
    }

    fn put(&self, change: impl Change + 'static) {
        // A closed inbox drops the reply, which the caller sees as `Stopped`.
        let _ = self.0.send(Message::Change(Box::new(change)));
    }

    pub fn close(&self, reply: oneshot::Sender<Result<bool, StoreError>>) {
        let _ = self.0.send(Message::Close(reply));
    }
}

pub(crate) fn start(db: Db, shared: Arc<Shared>) -> Inbox {
    let (sender, receiver) = mpsc::channel();
    std::thread::Builder::new()
        .name("store-writer".to_owned())
        .spawn(move || Writer { db, failure: None, shared }.run(&receiver))
        .expect("a thread can be started at start-up");
    Inbox(sender)
}

struct Writer {
    db: Db,
    /// Error of the last commit, and the number of failures since the last success. Logged on the first failure and on
    /// recovery.
    failure: Option<(String, u64)>,
    shared: Arc<Shared>,
}

impl Writer {
    fn run(mut self, inbox: &mpsc::Receiver<Message>) {
        let mut retry = Instant::now() + RESERVE_RETRY;
        loop {
            if !self.db.has_reserve() && retry <= Instant::now() {
                self.db.ensure_reserve();
                retry = Instant::now() + RESERVE_RETRY;
            }
            let first = match self.db.has_reserve() {
                true => inbox.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
                false => inbox.recv_timeout(retry.saturating_duration_since(Instant::now())),
            };
            let first = match first {
                Ok(first) => first,
                Err(mpsc::RecvTimeoutError::Timeout) => continue,
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            };
            let (mut group, mut close) = (Vec::new(), None);
            for message in std::iter::once(first).chain(inbox.try_iter()) {
                match message {
                    Message::Change(change) => group.push(change),
                    Message::Close(reply) => close = Some(reply),
                }
                if group.len() == MAX_GROUP_CHANGES || close.is_some() {
                    break;
                }
            }
            self.commit_group(group);
            if let Some(reply) = close {
                // The reader's connection would keep the log.
                drop(self.shared.reader.lock().expect("no one panics while holding the reader").take());
                // The caller may be gone.
                let _ = reply.send(self.db.close());
                return;
            }
        }
    }

    /// Commits a group. On a full disk, only relief changes are committed.
    fn commit_group(&mut self, mut group: Vec<Box<dyn Change>>) {
        let written = self.try_commit(&mut group, Space::Ample);
        if written.as_ref().is_err_and(StoreError::is_full) && group.iter().any(|change| change.is_relief()) {
            let (mut relief, rest): (Vec<_>, Vec<_>) = group.into_iter().partition(|change| change.is_relief());
            rest.into_iter().for_each(|change| change.answer(&written));
            let written = self.try_commit(&mut relief, Space::Reserve);
            relief.into_iter().for_each(|change| change.answer(&written));
            return;
        }
        group.into_iter().for_each(|change| change.answer(&written));
    }

    fn try_commit(&mut self, group: &mut [Box<dyn Change>], space: Space) -> Result<(), StoreError> {
        let shared = &self.shared;
        let base = shared.snapshot.read().expect("no one panics while holding the snapshot").clone();
        let mut working: State = (*base).clone();
        let mut changes = Changes::default();
        let mut made = 0;
        for change in group {
            if let Some((state, more)) = change.apply(&working, space) {
                made += u64::from(!more.is_empty());
                working = state;
                changes.extend(more);
            }
        }
        if changes.is_empty() {
            return Ok(());
        }
        let (now, jumps) = (shared.clock.now(), shared.clock.unrecorded());
        let batch = Batch { changes: &changes, jumps: &jumps, now };
        let written = timed(&shared.stats, made, || self.db.write(batch, space));
        let written = written.map(|recorded| shared.clock.recorded(recorded));
        if written.is_ok() {
            let rows = changes.rows.into_keys().collect();
            shared.publish(CommitEvent { before: base, after: Arc::new(working), rows, time: now });
        }
        // Relief changes that succeed on a full disk do not clear the failure.
        match space == Space::Ample || written.is_err() {
            true => self.note_failure(written.as_ref().err()),
            false => shared.stats.is_failing.store(true, Ordering::Relaxed),
        }
        written
    }

    fn note_failure(&mut self, error: Option<&StoreError>) {
        match (error, &mut self.failure) {
            (None, None) => {}
            // Changes that need no new page succeed on a full disk, too.
            (None, Some(_)) if !self.db.has_space() => {}
            (None, Some((_, count))) => {
                tracing::info!(refused = *count, "commits succeed again");
                self.failure = None;
            }
            (Some(error), Some((text, count))) if *text == error_chain::join(error) => *count += 1,
            (Some(error), _) => {
                let shown = error as &dyn std::error::Error;
                tracing::error!(
                    error = shown,
                    "a commit failed; nothing was changed (logged once until commits succeed again)"
                );
                let count = self.failure.take().map_or(0, |(_, count)| count) + 1;
                self.failure = Some((error_chain::join(error), count));
            }
        }
    }
}

fn timed<T>(stats: &StoreStats, made: u64, write: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let began = Instant::now();
    let written = write();
    match &written {
        Ok(_) => {
            stats.changes.fetch_add(made, Ordering::Relaxed);
            stats.writes.record(began.elapsed());
        }
        Err(_) => {
            stats.failures.fetch_add(1, Ordering::Relaxed);
        }
    }
    stats.is_failing.store(written.is_err(), Ordering::Relaxed);
    written
}

/// Change of any result type, queued for its group.
trait Change: Send {
    /// Whether it may be applied again and use the reserve of a full disk.
    fn is_relief(&self) -> bool;
    /// State after the change and its rows; `None` if it failed.
    fn apply(&mut self, state: &State, space: Space) -> Option<(State, Changes)>;
    fn answer(self: Box<Self>, written: &Result<(), StoreError>);
}

struct Pending<T, E, F> {
    actor: Actor,
    /// Returns `None` if a change that runs once was already applied.
    change: F,
    is_relief: bool,
    result: Option<Result<T, E>>,
    reply: oneshot::Sender<Result<T, E>>,
}

impl<T, E, F> Change for Pending<T, E, F>
where
    T: Send,
    E: From<StoreError> + Send,
    F: FnMut(&mut Txn) -> Option<Result<T, E>> + Send,
{
    fn is_relief(&self) -> bool {
        self.is_relief
    }

    fn apply(&mut self, state: &State, space: Space) -> Option<(State, Changes)> {
        let mut txn = Txn::with_space(space, state, self.actor.clone());
        self.result = None;
        // A panic in a change drops its reply; the other changes continue.
        let result = catch_unwind(AssertUnwindSafe(|| (self.change)(&mut txn))).ok()??;
        let accepted = result.is_ok();
        self.result = Some(result);
        accepted.then(|| txn.finish())
    }

    fn answer(self: Box<Self>, written: &Result<(), StoreError>) {
        let Some(result) = self.result else { return };
        let answer = match (result, written) {
            (Ok(_), Err(error)) => Err(E::from(error.clone())),
            (result, _) => result,
        };
        // The caller may be gone; the change stands.
        let _ = self.reply.send(answer);
    }
}
