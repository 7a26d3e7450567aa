//! The one thread that writes. It takes the changes that are waiting, applies each to the working state, writes all
//! their rows in one transaction, publishes one snapshot, and only then answers. A change that refuses costs nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Instant;

use tokio::sync::oneshot;

use crate::db::Db;
use crate::history::Actor;
use crate::state::State;
use crate::txn::{Changes, Txn};
use crate::{Shared, StoreError, StoreFigures, Touched};

/// As many changes as share one disk write.
const GROUP: usize = 512;

#[derive(Clone)]
pub(crate) struct Inbox(mpsc::Sender<Box<dyn Change>>);

impl Inbox {
    pub fn send<T, E, F>(&self, actor: Actor, change: F, reply: oneshot::Sender<Result<T, E>>)
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut Txn) -> Result<T, E> + Send + 'static,
    {
        // A closed inbox drops the reply, which the caller sees as `Stopped`.
        let _ = self.0.send(Box::new(Pending { actor, change: Some(change), result: None, reply: Some(reply) }));
    }
}

pub(crate) fn start(db: Db, shared: Arc<Shared>) -> Inbox {
    let (sender, receiver) = mpsc::channel();
    std::thread::Builder::new()
        .name("store-writer".to_owned())
        .spawn(move || write_loop(db, &shared, &receiver))
        .expect("a thread can be started at start-up");
    Inbox(sender)
}

fn write_loop(mut db: Db, shared: &Shared, inbox: &mpsc::Receiver<Box<dyn Change>>) {
    while let Ok(first) = inbox.recv() {
        let waiting = std::iter::once(first).chain(inbox.try_iter()).take(GROUP);
        let base = shared.snapshot.read().expect("no one panics while holding the snapshot").clone();
        let mut working: State = (*base).clone();
        let mut changes = Changes::default();
        let mut answered = Vec::new();
        let mut made = 0;
        for mut change in waiting {
            if let Some((state, more)) = change.apply(&working) {
                made += u64::from(!more.is_empty());
                working = state;
                changes.extend(more);
            }
            answered.push(change);
        }
        let now = shared.clock.now();
        let jumps = shared.clock.unrecorded();
        let written = match changes.is_empty() {
            true => Ok(()),
            false => timed(&shared.figures, made, || db.write(&changes, &jumps, now))
                .map(|recorded| shared.clock.recorded(recorded)),
        };
        match &written {
            Ok(()) if !changes.is_empty() => {
                let rows = changes.rows.into_keys().collect();
                shared.publish(Touched { before: base, after: Arc::new(working), rows, time: now });
            }
            Ok(()) => {}
            Err(error) => {
                tracing::error!(error = error as &dyn std::error::Error, "a commit failed; nothing was changed")
            }
        }
        for change in answered {
            change.answer(&written);
        }
    }
}

fn timed<T>(figures: &StoreFigures, made: u64, write: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let began = Instant::now();
    let written = write();
    match &written {
        Ok(_) => {
            figures.changes.fetch_add(made, Ordering::Relaxed);
            figures.writes.note(began.elapsed());
        }
        Err(_) => {
            figures.failures.fetch_add(1, Ordering::Relaxed);
        }
    }
    figures.is_failing.store(written.is_err(), Ordering::Relaxed);
    written
}

/// A change of any result type, waiting for its group.
trait Change: Send {
    /// The state after the change and the rows it touched; `None` when it refused.
    fn apply(&mut self, state: &State) -> Option<(State, Changes)>;
    fn answer(self: Box<Self>, written: &Result<(), StoreError>);
}

struct Pending<T, E, F> {
    actor: Actor,
    change: Option<F>,
    result: Option<Result<T, E>>,
    reply: Option<oneshot::Sender<Result<T, E>>>,
}

impl<T, E, F> Change for Pending<T, E, F>
where
    T: Send,
    E: From<StoreError> + Send,
    F: FnOnce(&mut Txn) -> Result<T, E> + Send,
{
    fn apply(&mut self, state: &State) -> Option<(State, Changes)> {
        let change = self.change.take()?;
        let mut txn = Txn::on(state, self.actor.clone());
        // A change that panics is a bug of whoever sent it, who gets no answer; the others' changes go on.
        let result = catch_unwind(AssertUnwindSafe(|| change(&mut txn))).ok()?;
        let accepted = result.is_ok();
        self.result = Some(result);
        accepted.then(|| txn.finish())
    }

    fn answer(mut self: Box<Self>, written: &Result<(), StoreError>) {
        let (Some(result), Some(reply)) = (self.result.take(), self.reply.take()) else { return };
        let answer = match (result, written) {
            (Ok(_), Err(error)) => Err(E::from(error.clone())),
            (result, _) => result,
        };
        // The caller may have gone away; the change stands.
        let _ = reply.send(answer);
    }
}
