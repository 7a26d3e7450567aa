//! Durable state: SQLite behind one writer thread, an immutable in-memory snapshot for readers, and change
//! notifications. An acknowledged commit survives `kill -9` and power loss.
//!
//! Makes no decisions: rules are in `server::app`, plans in `sched`. Moves jobs and nodes only through their state
//! machines, and refuses illegal transitions.
//!
//! Reading order: [`records`] (stored types), [`state`] and [`index`] (the snapshot), [`txn`] (one change), `writer`
//! (group commit), [`clock`] (timestamps and ages), `sqlite_file`, `sqlite_header` and `wal` (inspection before
//! SQLite opens a database), `db` and `load` (SQLite), `space` (full disks), [`history`] (audit log), [`backup`],
//! [`data_dir`], [`dir_lock`], [`encryption`] (secrets at rest).

pub mod backup;
pub mod clock;
pub mod commit_event;
pub mod data_dir;
mod db;
pub mod dir_lock;
pub mod encryption;
pub mod history;
pub mod index;
pub mod latency_histogram;
mod load;
pub mod records;
mod space;
mod sqlite_file;
mod sqlite_header;
pub mod state;
pub mod txn;
mod wal;
mod writer;

use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};

use corro_model::ApiError;
use corro_model::history::{HistoryEntry, HistoryFilter};
use rusqlite::Connection;
use tokio::sync::{broadcast, oneshot, watch};

use clock::Clock;
pub use clock::{ClockJump, Timeline};
pub use commit_event::CommitEvent;
pub use encryption::{Ciphertext, Vault};
use history::Actor;
pub use history::{HistoryBounds, SERVER};
pub use latency_histogram::{LatencyHistogram, StoreStats};
pub use records::*;
pub use space::Space;
pub use sqlite_file::DatabaseFileError;
pub use state::{Record, State};
pub use txn::Txn;
pub use wal::WalDamage;

#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot open the database at {path}")]
    Open { path: String, source: Arc<rusqlite::Error> },
    #[error(transparent)]
    DatabaseFiles(#[from] DatabaseFileError),
    #[error("another process has the database {path} open: stop it, or wait until it ends")]
    InUse { path: String },
    #[error("cannot read or create the database at {path}")]
    File { path: String, source: Arc<std::io::Error> },
    #[error(
        "the database was written by a newer version of corro (schema {found}; this version supports up to {known}) \
         and was not changed: use that version, or restore a backup"
    )]
    Newer { found: i64, known: i64 },
    #[error("cannot read the record {kind} {key}")]
    Record { kind: String, key: String, source: Arc<serde_json::Error> },
    #[error("cannot write to the database")]
    Write(#[source] Arc<rusqlite::Error>),
    #[error("cannot read the history")]
    History(#[source] Arc<rusqlite::Error>),
    #[error("the store has stopped")]
    Stopped,
}

impl StoreError {
    fn cannot_open(connection: &Connection, error: rusqlite::Error) -> Self {
        Self::Open { path: connection.path().unwrap_or_default().to_owned(), source: Arc::new(error) }
    }

    fn is_full(&self) -> bool {
        let Self::Write(error) = self else { return false };
        db::is_full(error)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        if error.is_full() {
            return ApiError::insufficient_storage();
        }
        if matches!(error, StoreError::History(_)) {
            return ApiError::new(500, "InternalError", "The server could not read its history. See the server's log.");
        }
        ApiError::new(
            500,
            "InternalError",
            "The server could not write to its database: nothing was changed. See the server's log.",
        )
    }
}

/// Handle to the store; cheap to clone.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
    writer: writer::Inbox,
    actor: Actor,
}

/// State that readers use without the writer thread.
struct Shared {
    snapshot: RwLock<Arc<State>>,
    changed: watch::Sender<u64>,
    commits: broadcast::Sender<Arc<CommitEvent>>,
    stats: StoreStats,
    /// `None` after the store was closed.
    reader: Mutex<Option<Connection>>,
    /// Dropped after the reader; see [`space::Allocation`].
    _allocation: Arc<Mutex<space::Allocation>>,
    clock: Clock,
}

impl Store {
    /// Opens or creates the database file, loads everything, starts the writer thread. Blocking.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_bounded(path, HistoryBounds::DEFAULT)
    }

    /// Same as `open` with explicit retention limits of the history.
    pub fn open_bounded(path: &Path, bounds: HistoryBounds) -> Result<Self, StoreError> {
        Self::open_with(path, bounds, |_| Ok(()))
    }

    /// Same as `open`, but `check` sees the content before anything is changed. If it refuses, every file is unchanged.
    pub fn open_checked<E: From<StoreError>>(
        path: &Path,
        check: impl FnOnce(&State) -> Result<(), E>,
    ) -> Result<Self, E> {
        Self::open_with(path, HistoryBounds::DEFAULT, check)
    }

    fn open_with<E: From<StoreError>>(
        path: &Path,
        bounds: HistoryBounds,
        check: impl FnOnce(&State) -> Result<(), E>,
    ) -> Result<Self, E> {
        let (db, state) = db::Db::open(path, bounds, check)?;
        let reader = Mutex::new(Some(db::open_reader(path)?));
        let (snapshot, changed) = (RwLock::new(Arc::new(state)), watch::channel(0).0);
        let commits = broadcast::channel(commit_event::EVENT_BACKLOG).0;
        let (stats, clock, _allocation) = (StoreStats::default(), Clock::start(db.newest()), db.allocation());
        let shared = Arc::new(Shared { snapshot, changed, commits, stats, reader, _allocation, clock });
        let writer = writer::start(db, shared.clone());
        Ok(Self { shared, writer, actor: Actor::new(history::SERVER, None) })
    }

    /// Makes everything durable, copies the write-ahead log into the database file and closes it, for all handles of
    /// this store. `false` if another process is reading the database; then the latest state is in the log.
    pub async fn close(&self) -> Result<bool, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.writer.close(reply);
        answer.await.unwrap_or(Err(StoreError::Stopped))
    }

    /// The same store with commits attributed to `actor` in the history.
    pub fn acting_as(&self, actor: &str) -> Self {
        Self { actor: Actor::new(actor, None), ..self.clone() }
    }

    /// The same, with the client's address.
    pub fn acting_from(&self, actor: &str, address: &str) -> Self {
        Self { actor: Actor::new(actor, Some(address)), ..self.clone() }
    }

    /// History rows, newest first. Blocking; does not disturb the writer.
    pub fn history(&self, filter: &HistoryFilter) -> Result<Vec<HistoryEntry>, StoreError> {
        let reader = self.shared.reader.lock().expect("no one panics while holding the reader");
        let reader = reader.as_ref().ok_or(StoreError::Stopped)?;
        history::read(reader, filter).map_err(|error| StoreError::History(Arc::new(error)))
    }

    /// State as of the last commit. Cheap; never blocks on the writer.
    pub fn snapshot(&self) -> Arc<State> {
        self.shared.snapshot.read().expect("no one panics while holding the snapshot").clone()
    }

    /// Wakes after every commit. Carries no data: read a fresh snapshot.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changed.subscribe()
    }

    /// Clock that stamps commits and computes ages.
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Counters of the writer.
    pub fn stats(&self) -> &StoreStats {
        &self.shared.stats
    }

    /// Notifications of all commits from now on. A receiver that lags gets the number of events that it missed.
    pub fn commit_events(&self) -> broadcast::Receiver<Arc<CommitEvent>> {
        self.shared.commits.subscribe()
    }

    /// Runs `change` on the current state and makes its result durable before returning. If it fails, nothing changes.
    /// Changes of several callers share one disk write.
    pub async fn commit<T, E>(&self, change: impl FnOnce(&mut Txn) -> Result<T, E> + Send + 'static) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.writer.send(self.actor.clone(), change, reply);
        answer.await.unwrap_or_else(|_| Err(StoreError::Stopped.into()))
    }

    /// Same as `commit`, for a change that ends, removes or shrinks something. It is also accepted on a full disk, from
    /// reserved space. It may run twice on the same state, the second time with [`Space::Reserve`] ([`Txn::space`]),
    /// and must then add nothing.
    pub async fn commit_relief<T, E>(
        &self,
        change: impl FnMut(&mut Txn) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.writer.send_relief(self.actor.clone(), change, reply);
        answer.await.unwrap_or_else(|_| Err(StoreError::Stopped.into()))
    }
}

impl Shared {
    fn publish(&self, event: CommitEvent) {
        let revision = event.after.revision;
        *self.snapshot.write().expect("no one panics while holding the snapshot") = event.after.clone();
        self.changed.send_replace(revision);
        // No receiver is fine.
        let _ = self.commits.send(Arc::new(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corro_model::{GroupKey, Timestamp};

    fn group(name: &str) -> GroupRecord {
        GroupRecord {
            name: name.to_owned(),
            location: "eastus".to_owned(),
            tags: None,
            created: Timestamp::from_millis(1),
            deleting: false,
        }
    }

    #[tokio::test]
    async fn a_commit_is_there_after_reopening() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let path = dir.path().join("corro.db");
        let store = Store::open(&path).expect("opens");
        let put = store.commit(|txn| {
            txn.put(GroupKey::new("G1"), group("G1"));
            Ok::<_, StoreError>(())
        });
        put.await.expect("commits");
        assert_eq!(store.snapshot().groups.len(), 1);
        store.close().await.expect("closes");
        assert!(matches!(store.commit(|_| Ok::<_, StoreError>(())).await, Err(StoreError::Stopped)));
        let again = Store::open(&path).expect("opens again");
        assert_eq!(again.snapshot().groups.get(&GroupKey::new("g1")).map(|g| g.name.clone()).as_deref(), Some("G1"));
    }

    #[tokio::test]
    async fn a_refused_change_leaves_nothing_behind() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let store = Store::open(&dir.path().join("corro.db")).expect("opens");
        let refused = store
            .commit(|txn| {
                txn.put(GroupKey::new("g"), group("g"));
                Err::<(), _>(ApiError::bad_body("no"))
            })
            .await;
        assert_eq!(refused.expect_err("refused").message, "no");
        assert!(store.snapshot().groups.is_empty());
    }

    #[tokio::test]
    async fn many_writers_all_commit() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let store = Store::open(&dir.path().join("corro.db")).expect("opens");
        let writers = (0..200).map(|i| {
            let store = store.clone();
            tokio::spawn(async move {
                store
                    .commit(move |txn| {
                        txn.put(GroupKey::new(&format!("g{i}")), group("g"));
                        Ok::<_, StoreError>(())
                    })
                    .await
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.expect("not cancelled").expect("commits");
        }
        assert_eq!(store.snapshot().groups.len(), 200);
    }
}
