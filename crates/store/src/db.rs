//! SQLite: opening, forward migration, reading every row at start, writing a group of rows in one transaction.
//! Rows are `(kind, key, body)`; what the bodies mean is `records`' business, what the history holds is `history`'s.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use corro_model::Timestamp;
use rusqlite::{Connection, OpenFlags, params};

use crate::StoreError;
use crate::clock::ClockJump;
use crate::history::{History, HistoryBounds};
use crate::loading;
use crate::state::State;
use crate::txn::Changes;

/// Each entry brings the schema from its index to the next number. Never change one that was released; add another.
pub(crate) const MIGRATIONS: &[&str] = &[
    "CREATE TABLE records (
        kind TEXT NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (kind, key)
    ) WITHOUT ROWID",
    "CREATE TABLE history (
        seq INTEGER PRIMARY KEY, time INTEGER NOT NULL, actor TEXT NOT NULL, what TEXT NOT NULL,
        resource TEXT NOT NULL, detail TEXT NOT NULL
    )",
    // With row ids a record lies whole in its page, and new ones lie side by side; without them it took a page of its own
    // beyond the first 1,000 bytes (measured with rows of 1,400 bytes in groups of 64: 2,100 rows/s against 5,900).
    "CREATE TABLE records_with_ids (
        kind TEXT NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL, UNIQUE (kind, key)
    );
    INSERT INTO records_with_ids SELECT kind, key, body FROM records;
    DROP TABLE records;
    ALTER TABLE records_with_ids RENAME TO records",
    // What one kind of caller could flood is kept apart; see `history::Shelf`.
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

/// Pages of the write-ahead log that are gathered before they are moved to their places: 32 MB. Fewer would move the same
/// page again and again under a stream of submits; more would make a start after a crash slower.
const CHECKPOINT: u32 = 8_000;

/// In place, so that a record keeps its page.
const PUT: &str = "INSERT INTO records VALUES (?1, ?2, ?3) ON CONFLICT (kind, key) DO UPDATE SET body = excluded.body";

/// The schema that brought the history.
pub(crate) const WITH_HISTORY: i64 = 2;
/// The migration that gave it several shelves.
pub(crate) const SHELVES: usize = 3;

pub(crate) struct Db {
    connection: Connection,
    history: History,
}

impl Db {
    pub fn open(path: &Path, bounds: HistoryBounds) -> Result<(Self, State), StoreError> {
        let failed = |source| StoreError::Open { path: path.display().to_string(), source: Arc::new(source) };
        make_private(path)?;
        let mut connection = Connection::open(path).map_err(failed)?;
        // Before anything else: a database of a newer version is left exactly as it is.
        schema(&connection)?;
        // FULL: a commit is on the disk before it is acknowledged.
        connection
            .execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -2000;")
            .and_then(|()| connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT))
            .map_err(failed)?;
        migrate(&mut connection).map_err(failed)?;
        let state = load(&connection)?;
        let history = History::load(&connection, bounds).map_err(failed)?;
        Ok((Self { connection, history }, state))
    }

    /// The last stamp in the history when it was opened.
    pub fn newest(&self) -> Option<Timestamp> {
        self.history.newest()
    }

    /// Writes the rows, and in the history the jumps of the clock before what happened after them. Gives how many of the jumps are
    /// in the history now.
    pub fn write(&mut self, changes: &Changes, jumps: &[ClockJump], now: Timestamp) -> Result<usize, StoreError> {
        // They belong between rows of the history: without a row there is nothing to tell apart.
        let jumps = if changes.events.is_empty() { &[] } else { jumps };
        let written = self.try_write(changes, jumps, now);
        written.map(|()| jumps.len()).map_err(|error| StoreError::Write(Arc::new(error)))
    }

    fn try_write(&mut self, changes: &Changes, jumps: &[ClockJump], now: Timestamp) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        {
            let mut put = transaction.prepare_cached(PUT)?;
            let mut delete = transaction.prepare_cached("DELETE FROM records WHERE kind = ?1 AND key = ?2")?;
            for ((kind, key), body) in &changes.rows {
                match body {
                    Some(body) => put.execute(params![kind, key, body.text()])?,
                    None => delete.execute(params![kind, key])?,
                };
            }
        }
        let history = self.history.write(&transaction, jumps, &changes.events, now)?;
        transaction.commit()?;
        self.history = history;
        Ok(())
    }
}

/// A second connection, for reading while the writer writes.
pub(crate) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let failed = |source| StoreError::Open { path: path.display().to_string(), source: Arc::new(source) };
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(failed)
}

/// For its owner alone before the first byte is in it; SQLite gives its other files the same mode.
fn make_private(path: &Path) -> Result<(), StoreError> {
    let options = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).to_owned();
    let made = options.open(path).and_then(|file| file.set_permissions(Permissions::from_mode(0o600)));
    made.map_err(|source| StoreError::File { path: path.display().to_string(), source: Arc::new(source) })
}

/// The schema a database has, which must be one that is known here.
pub(crate) fn schema(connection: &Connection) -> Result<i64, StoreError> {
    let known = MIGRATIONS.len() as i64;
    let found = connection.query_row("PRAGMA user_version", [], |row| row.get(0));
    let found: i64 = found.map_err(|error| open_failed(connection, error))?;
    if found > known {
        return Err(StoreError::Newer { found, known });
    }
    Ok(found)
}

/// Each step is whole or not at all, so that a start that was interrupted is simply repeated.
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

/// Every record there is.
pub(crate) fn load(connection: &Connection) -> Result<State, StoreError> {
    let mut state = State::default();
    loading::load(connection, &mut state)?;
    state.last_sequence = state.jobs.values().map(|job| job.sequence).max().unwrap_or(0);
    Ok(state)
}

pub(crate) fn open_failed(connection: &Connection, error: rusqlite::Error) -> StoreError {
    StoreError::Open { path: connection.path().unwrap_or_default().to_owned(), source: Arc::new(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupRecord, Txn};
    use corro_model::GroupKey;

    fn changes(state: &State, names: std::ops::Range<usize>) -> (State, Changes) {
        let mut txn = Txn::on(state, "test".into());
        for i in names {
            let (name, location) = (format!("g{i}"), "x".repeat(1000));
            let record = GroupRecord { name, location, tags: None, created: Timestamp::default(), deleting: false };
            txn.put(GroupKey::new(&format!("g{i}")), record);
        }
        txn.finish()
    }

    #[test]
    fn a_history_from_before_the_shelves_is_sorted_onto_them() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let path = dir.path().join("corro.db");
        let old = Connection::open(&path).expect("opens");
        MIGRATIONS[..SHELVES].iter().for_each(|sql| old.execute_batch(sql).expect("an older schema"));
        old.pragma_update(None, "user_version", SHELVES as i64).expect("a number");
        for (seq, what) in ["group.created", "principal.created", "request.refused", "job.x"].iter().enumerate() {
            let row = params![seq as i64 + 1, i64::MAX / 2, "ada", what, "g", ""];
            old.execute("INSERT INTO history VALUES (?1, ?2, ?3, ?4, ?5, ?6)", row).expect("a row");
        }
        drop(old);
        let (db, _) = Db::open(&path, HistoryBounds::USUAL).expect("opens");
        let counts = crate::history::Shelf::ALL.map(|shelf| {
            let sql = format!("SELECT count(*) FROM {}", shelf.table());
            db.connection.query_row(&sql, [], |row| row.get::<_, i64>(0)).expect("a number")
        });
        assert_eq!(counts, [2, 1, 1, 0]);
        let all = crate::history::read(&db.connection, &corro_model::history::HistoryFilter::newest(9)).expect("reads");
        assert_eq!(all.iter().map(|entry| entry.number).collect::<Vec<_>>(), [4, 3, 2, 1]);
    }

    #[test]
    fn a_full_disk_refuses_a_group_of_changes_whole_and_takes_it_when_there_is_room() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let path = dir.path().join("corro.db");
        let (mut db, state) = Db::open(&path, HistoryBounds::USUAL).expect("opens");
        let (state, first) = changes(&state, 0..10);
        db.write(&first, &[], Timestamp::default()).expect("there is room");
        // As much as there is, and a little more: SQLite answers as it does when the disk is full.
        let pages: i64 = db.connection.query_row("PRAGMA page_count", [], |row| row.get(0)).expect("a number");
        let limit = |db: &Db, pages: i64| {
            db.connection.pragma_update(None, "max_page_count", pages).expect("a limit");
        };
        limit(&db, pages + 3);
        let (_, more) = changes(&state, 10..60);
        let error = db.write(&more, &[], Timestamp::default()).expect_err("no room");
        let answer = corro_model::ApiError::from(error);
        assert_eq!(answer.status, 507, "{answer:?}");
        let there = |path: &Path| Db::open(path, HistoryBounds::USUAL).expect("opens").1.groups.len();
        assert_eq!(there(&path), 10, "nothing of it is there");
        limit(&db, 1_000_000);
        db.write(&more, &[], Timestamp::default()).expect("there is room again");
        assert_eq!(there(&path), 60);
    }
}
