//! SQLite: opening, forward migration, reading every row at start, writing a group of rows in one transaction.
//! Rows are `(kind, key, body)`; what the bodies mean is `records`' business, what the history holds is `history`'s.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use corro_model::Timestamp;
use rusqlite::{Connection, OpenFlags, params};

use crate::StoreError;
use crate::history::{History, HistoryBounds};
use crate::records::load_row;
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
];

pub(crate) struct Db {
    connection: Connection,
    history: History,
}

impl Db {
    pub fn open(path: &Path, bounds: HistoryBounds) -> Result<(Self, State), StoreError> {
        let failed = |source| StoreError::Open { path: path.display().to_string(), source: Arc::new(source) };
        make_private(path)?;
        let mut connection = Connection::open(path).map_err(failed)?;
        // FULL: a commit is on the disk before it is acknowledged.
        connection
            .execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -2000;")
            .map_err(failed)?;
        migrate(&mut connection, failed)?;
        let state = load(&connection, failed)?;
        let history = History::load(&connection, bounds).map_err(failed)?;
        Ok((Self { connection, history }, state))
    }

    pub fn write(&mut self, changes: &Changes, now: Timestamp) -> Result<(), StoreError> {
        self.try_write(changes, now).map_err(|error| StoreError::Write(Arc::new(error)))
    }

    fn try_write(&mut self, changes: &Changes, now: Timestamp) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        {
            let mut put = transaction.prepare_cached("INSERT OR REPLACE INTO records VALUES (?1, ?2, ?3)")?;
            let mut delete = transaction.prepare_cached("DELETE FROM records WHERE kind = ?1 AND key = ?2")?;
            for ((kind, key), body) in &changes.rows {
                match body {
                    Some(body) => put.execute(params![kind, key, body.text()])?,
                    None => delete.execute(params![kind, key])?,
                };
            }
        }
        let history = self.history.write(&transaction, &changes.events, now)?;
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

fn migrate(
    connection: &mut Connection,
    failed: impl Fn(rusqlite::Error) -> StoreError + Copy,
) -> Result<(), StoreError> {
    let known = MIGRATIONS.len() as i64;
    let found: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(failed)?;
    if found > known {
        return Err(StoreError::Newer { found, known });
    }
    for (number, sql) in MIGRATIONS.iter().enumerate().skip(found as usize) {
        let transaction = connection.transaction().map_err(failed)?;
        transaction.execute_batch(sql).map_err(failed)?;
        transaction.pragma_update(None, "user_version", number as i64 + 1).map_err(failed)?;
        transaction.commit().map_err(failed)?;
    }
    Ok(())
}

fn load(connection: &Connection, failed: impl Fn(rusqlite::Error) -> StoreError + Copy) -> Result<State, StoreError> {
    let mut state = State::default();
    let mut query = connection.prepare("SELECT kind, key, body FROM records").map_err(failed)?;
    let mut rows = query.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let (kind, key, body): (String, String, String) = row.try_into().map_err(failed)?;
        match load_row(&mut state, &kind, &key, &body) {
            Ok(true) => {}
            Ok(false) => tracing::warn!(kind, key, "a record of a kind this version does not know was left alone"),
            Err(source) => return Err(StoreError::Record { kind, key, source: Arc::new(source) }),
        }
    }
    state.last_sequence = state.jobs.values().map(|job| job.sequence).max().unwrap_or(0);
    Ok(state)
}
