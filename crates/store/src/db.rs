//! SQLite access: open, forward migration, load of all rows at start, one transaction per group of changes, close. Rows
//! are `(kind, key, body)`; `records` defines the bodies and `history` the history tables.
//!
//! Every commit sets a new commit number in SQLite's `application_id`. The first page is therefore part of every
//! transaction in the write-ahead log and identifies the database state that the log belongs to; see `sqlite_file`.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};

use corro_model::Timestamp;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, params};

use crate::StoreError;
use crate::clock::ClockJump;
use crate::history::{History, HistoryBounds};
use crate::load::load_records;
use crate::space::{Allocation, GROWTH_PAGES, PageLimit, RESERVE_BYTES, RESERVE_KIND, Space};
use crate::sqlite_file::{self, DatabaseStatus};
use crate::sqlite_header::sibling;
use crate::state::State;
use crate::txn::Changes;

mod commit_numbers;

use commit_numbers::CommitNumbers;

/// Each entry migrates the schema from its index to the next number. Never change a released entry; add another.
pub(crate) const MIGRATIONS: &[&str] = &[
    "CREATE TABLE records (
        kind TEXT NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (kind, key)
    ) WITHOUT ROWID",
    "CREATE TABLE history (
        seq INTEGER PRIMARY KEY, time INTEGER NOT NULL, actor TEXT NOT NULL, what TEXT NOT NULL,
        resource TEXT NOT NULL, detail TEXT NOT NULL
    )",
    // With row ids a record fits into one page and new records are adjacent. Without them, each record beyond 1,000
    // bytes took an overflow page (measured with rows of 1,400 bytes in groups of 64: 2,100 rows/s against 5,900).
    "CREATE TABLE records_with_ids (
        kind TEXT NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL, UNIQUE (kind, key)
    );
    INSERT INTO records_with_ids SELECT kind, key, body FROM records;
    DROP TABLE records;
    ALTER TABLE records_with_ids RENAME TO records",
    // Events that one kind of caller could flood have their own tables; see `history::HistoryTable`.
    "CREATE TABLE history_access (
        seq INTEGER PRIMARY KEY, time INTEGER NOT NULL, actor TEXT NOT NULL, what TEXT NOT NULL,
        resource TEXT NOT NULL, detail TEXT NOT NULL
    );
    CREATE TABLE history_requests (
        seq INTEGER PRIMARY KEY, time INTEGER NOT NULL, actor TEXT NOT NULL, what TEXT NOT NULL,
        resource TEXT NOT NULL, detail TEXT NOT NULL
    );
    CREATE TABLE history_files (
        seq INTEGER PRIMARY KEY, time INTEGER NOT NULL, actor TEXT NOT NULL, what TEXT NOT NULL,
        resource TEXT NOT NULL, detail TEXT NOT NULL
    );
    INSERT INTO history_access SELECT * FROM history WHERE what LIKE 'principal.%';
    INSERT INTO history_requests SELECT * FROM history WHERE what LIKE 'request.%';
    DELETE FROM history WHERE what LIKE 'principal.%' OR what LIKE 'request.%'",
];

/// Write-ahead log pages before a checkpoint: 32 MB. Fewer would copy the same page repeatedly under a stream of
/// submissions; more would slow down a start after a crash.
const CHECKPOINT_PAGES: u32 = 8_000;

/// Updates in place, so that a record keeps its page.
const UPSERT_RECORD: &str =
    "INSERT INTO records VALUES (?1, ?2, ?3) ON CONFLICT (kind, key) DO UPDATE SET body = excluded.body";

/// Maximum growth of the database for one group of changes: 512 MB.
const MAX_GROWTH_PAGES: u64 = 131_072;

/// First schema version with a history.
pub(crate) const HISTORY_SCHEMA: i64 = 2;
/// Index of the migration that split the history into several tables.
pub(crate) const SPLIT_HISTORY_MIGRATION: usize = 3;

/// Changes that are committed together.
#[derive(Clone, Copy)]
pub(crate) struct Batch<'a> {
    pub changes: &'a Changes,
    /// Clock jumps that are not in the history yet.
    pub jumps: &'a [ClockJump],
    pub now: Timestamp,
}

pub(crate) struct Db {
    connection: Connection,
    history: History,
    numbers: CommitNumbers,
    has_reserve: bool,
    /// Shared with the reader's connection. The last owner closes it; see [`Allocation`].
    allocation: Arc<Mutex<Allocation>>,
}

impl Db {
    /// Opens the database, or creates it if no file indicates an earlier one. `check` sees the content before anything
    /// is changed; if it refuses, every file is unchanged.
    pub fn open<E: From<StoreError>>(
        path: &Path,
        bounds: HistoryBounds,
        check: impl FnOnce(&State) -> Result<(), E>,
    ) -> Result<(Self, State), E> {
        let failed = |source| StoreError::Open { path: path.display().to_string(), source: Arc::new(source) };
        let found = inspect(path)?;
        let state = match found {
            DatabaseStatus::New => State::default(),
            DatabaseStatus::Existing { .. } => read_state(path)?,
        };
        check(&state)?;
        make_private(path)?;
        let allocation = Allocation::new(path).map_err(|source| file_failed(path, source))?;
        let mut connection = Connection::open(path).map_err(failed)?;
        if found == DatabaseStatus::New {
            // Set before a log exists, so that no other database's log matches this one.
            commit_numbers::store(&connection, commit_numbers::draw()).map_err(failed)?;
        }
        // FULL: a commit is on the disk before it is acknowledged.
        connection
            .execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -2000;")
            // No checkpoints until commit numbers are drawn; see [`CommitNumbers`].
            .and_then(|()| connection.pragma_update(None, "wal_autocheckpoint", 0))
            .map_err(failed)?;
        migrate(&mut connection).map_err(failed)?;
        let history = History::load(&connection, bounds).map_err(failed)?;
        let number = connection.query_row("PRAGMA application_id", [], |row| row.get::<_, i32>(0)).map_err(failed)?;
        let reserve = "SELECT count(*) FROM records WHERE kind = ?1";
        let reserve: i64 = connection.query_row(reserve, [RESERVE_KIND], |row| row.get(0)).map_err(failed)?;
        let db = Self {
            connection,
            history,
            numbers: CommitNumbers::new(number as u32),
            has_reserve: reserve > 0,
            allocation: Arc::new(Mutex::new(allocation)),
        };
        Ok((db, state))
    }

    /// Time of the last history row when the database was opened.
    pub fn newest(&self) -> Option<Timestamp> {
        self.history.newest()
    }

    pub fn allocation(&self) -> Arc<Mutex<Allocation>> {
        self.allocation.clone()
    }

    /// Writes a group of changes atomically. With [`Space::Reserve`] they may use reserved space. Returns how many
    /// clock jumps are now in the history.
    pub fn write(&mut self, batch: Batch, space: Space) -> Result<usize, StoreError> {
        // Clock jumps separate history rows, so without rows none is written.
        let jumps = if batch.changes.events.is_empty() { &[] } else { batch.jumps };
        let batch = Batch { jumps, ..batch };
        let written = match space {
            Space::Ample => self.write_beside_reserve(batch),
            Space::Reserve => self.write_with_reserve(batch),
        };
        written.map(|()| jumps.len()).map_err(|error| StoreError::Write(Arc::new(error)))
    }

    fn write_beside_reserve(&mut self, batch: Batch) -> rusqlite::Result<()> {
        if !self.lock_allocation().ensure_wal().map_err(io_error)? {
            return Err(full());
        }
        let mut more = GROWTH_PAGES;
        loop {
            let limit = self.limit_pages(more)?;
            match self.try_write(batch, false) {
                // The group needs more pages than one growth step, and the disk may have more.
                Err(error) if is_full(&error) && more < MAX_GROWTH_PAGES && matches!(limit, PageLimit::Whole(_)) => {
                    more *= 8;
                }
                written => return written,
            }
        }
    }

    fn write_with_reserve(&mut self, batch: Batch) -> rusqlite::Result<()> {
        self.limit_pages(GROWTH_PAGES)?;
        match self.try_write(batch, false) {
            Err(error) if is_full(&error) => {
                // The log restarts once all of it is in the database, which has blocks for it. If that fails, the
                // reserve's pages may suffice.
                let _ = self.checkpoint("RESTART");
                let released = self.try_write(batch, self.has_reserve);
                self.has_reserve &= released.is_err();
                released
            }
            written => written,
        }
    }

    pub fn has_reserve(&self) -> bool {
        self.has_reserve
    }

    /// Whether the disk has enough free space to rebuild the reserve.
    pub fn has_space(&self) -> bool {
        self.lock_allocation().has_space()
    }

    /// Creates the reserve if it is missing and the disk has space. `false` if it must be tried again.
    pub fn ensure_reserve(&mut self) -> bool {
        let made = self.has_reserve || (self.has_space() && self.make_reserve().is_ok());
        self.has_reserve = made;
        made
    }

    fn make_reserve(&mut self) -> rusqlite::Result<()> {
        let pages = (RESERVE_BYTES / 4096) as u64 + GROWTH_PAGES;
        self.limit_pages(pages)?;
        let (number, transaction) = (self.numbers.next(), self.connection.transaction()?);
        transaction.execute(UPSERT_RECORD, params![RESERVE_KIND, "", " ".repeat(RESERVE_BYTES)])?;
        commit_numbers::store(&transaction, number)?;
        transaction.commit()?;
        self.took_number(number);
        Ok(())
    }

    /// Limits growth to `more` pages, and never beyond allocated blocks.
    fn limit_pages(&self, more: u64) -> rusqlite::Result<PageLimit> {
        let pages: i64 = self.connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
        let limit = self.lock_allocation().ensure_pages(pages as u64, more).map_err(io_error)?;
        if let PageLimit::Whole(limit) | PageLimit::Full(limit) = limit {
            self.connection.pragma_update(None, "max_page_count", limit as i64)?;
        }
        Ok(limit)
    }

    fn lock_allocation(&self) -> std::sync::MutexGuard<'_, Allocation> {
        self.allocation.lock().expect("no one panics while holding the allocation")
    }

    /// Copies the log into the database and closes it, so that the database file alone holds the whole state. `false`
    /// if another process is reading it; then the log remains.
    pub fn close(mut self) -> Result<bool, StoreError> {
        let whole = self.checkpoint("TRUNCATE").map_err(|error| StoreError::Write(Arc::new(error)))?;
        self.connection.close().map_err(|(_, error)| StoreError::Write(Arc::new(error)))?;
        Ok(whole)
    }

    fn checkpoint(&mut self, mode: &str) -> rusqlite::Result<bool> {
        // The next commit may restart the log.
        if self.numbers.skip_draw() {
            self.connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
        }
        let sql = format!("PRAGMA wal_checkpoint({mode})");
        self.connection.query_row(&sql, [], |row| Ok(row.get::<_, i64>(0)? == 0))
    }

    fn took_number(&mut self, number: u32) {
        if self.numbers.record(number) {
            // Does not fail right after a successful commit; otherwise the log would only grow.
            let _ = self.connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES);
        }
    }

    fn try_write(&mut self, batch: Batch, releasing: bool) -> rusqlite::Result<()> {
        let (Batch { changes, jumps, now }, number) = (batch, self.numbers.next());
        let transaction = self.connection.transaction()?;
        if releasing {
            transaction.execute("DELETE FROM records WHERE kind = ?1", [RESERVE_KIND])?;
        }
        {
            let mut put = transaction.prepare_cached(UPSERT_RECORD)?;
            let mut delete = transaction.prepare_cached("DELETE FROM records WHERE kind = ?1 AND key = ?2")?;
            for ((kind, key), body) in &changes.rows {
                match body {
                    Some(body) => put.execute(params![kind, key, body.text()])?,
                    None => delete.execute(params![kind, key])?,
                };
            }
        }
        let history = self.history.write(&transaction, jumps, &changes.events, now)?;
        commit_numbers::store(&transaction, number)?;
        transaction.commit()?;
        self.history = history;
        self.took_number(number);
        Ok(())
    }
}

/// Inspects the files and refuses a database that must not be opened.
pub(crate) fn inspect(path: &Path) -> Result<DatabaseStatus, StoreError> {
    let found = sqlite_file::inspect(path).map_err(|source| file_failed(path, source))??;
    let known = MIGRATIONS.len() as i64;
    match found {
        DatabaseStatus::Existing { schema } if i64::from(schema) > known => {
            Err(StoreError::Newer { found: i64::from(schema), known })
        }
        found => Ok(found),
    }
}

/// Content of an inspected database. Changes no file.
fn read_state(path: &Path) -> Result<State, StoreError> {
    let connection = open_unchanging(path).map_err(|source| in_use_or_failed(path, source))?;
    match schema(&connection)? {
        0 => Ok(State::default()),
        _ => load(&connection),
    }
}

/// Connection for reading that changes no file. No other connection may be open, since it shares nothing.
pub(crate) fn open_unchanging(path: &Path) -> rusqlite::Result<Connection> {
    let had_log = sibling(path, "-wal").exists();
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    // SQLite removes a log that it created itself, and checkpoints one that existed.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, had_log)?;
    // Set before the first access, so that the index of the log is in memory and not in a file.
    connection.query_row("PRAGMA locking_mode = EXCLUSIVE", [], |_| Ok(()))?;
    connection.query_row("PRAGMA schema_version", [], |_| Ok(()))?;
    Ok(connection)
}

fn in_use_or_failed(path: &Path, source: rusqlite::Error) -> StoreError {
    let path = path.display().to_string();
    match source.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::InUse { path },
        _ => StoreError::Open { path, source: Arc::new(source) },
    }
}

fn file_failed(path: &Path, source: std::io::Error) -> StoreError {
    StoreError::File { path: path.display().to_string(), source: Arc::new(source) }
}

/// Whether the disk is full, also if the log's shared-memory index cannot grow.
pub(crate) fn is_full(error: &rusqlite::Error) -> bool {
    let rusqlite::Error::SqliteFailure(failure, _) = error else { return false };
    failure.code == ErrorCode::DiskFull || failure.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE
}

fn full() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL), None)
}

fn io_error(error: std::io::Error) -> rusqlite::Error {
    let failure = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR);
    rusqlite::Error::SqliteFailure(failure, Some(error.to_string()))
}

/// Second connection, for reading while the writer writes.
pub(crate) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let failed = |source| StoreError::Open { path: path.display().to_string(), source: Arc::new(source) };
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(failed)
}

/// Sets mode 0600 before the first byte is written; SQLite gives its other files the same mode.
fn make_private(path: &Path) -> Result<(), StoreError> {
    let options = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).to_owned();
    let made = options.open(path).and_then(|file| file.set_permissions(Permissions::from_mode(0o600)));
    made.map_err(|source| file_failed(path, source))
}

/// Schema version of a database; an error if it is newer than this version knows.
pub(crate) fn schema(connection: &Connection) -> Result<i64, StoreError> {
    let known = MIGRATIONS.len() as i64;
    let found = connection.query_row("PRAGMA user_version", [], |row| row.get(0));
    let found: i64 = found.map_err(|error| StoreError::cannot_open(connection, error))?;
    if found > known {
        return Err(StoreError::Newer { found, known });
    }
    Ok(found)
}

/// Applies missing migrations. Each is one transaction, so an interrupted start is simply repeated.
fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    let found: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    for (number, sql) in MIGRATIONS.iter().enumerate().skip(found as usize) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(sql)?;
        transaction.pragma_update(None, "user_version", number as i64 + 1)?;
        transaction.commit()?;
    }
    Ok(())
}

/// Loads every record.
pub(crate) fn load(connection: &Connection) -> Result<State, StoreError> {
    let mut state = State::default();
    load_records(connection, &mut state)?;
    state.last_sequence = state.jobs.values().map(|job| job.sequence).max().unwrap_or(0);
    Ok(state)
}

#[cfg(test)]
mod tests;
