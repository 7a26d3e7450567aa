//! Backup, verification and restore of the whole store. A backup is made while the server runs and verified before it
//! is used. It is one SQLite file with the records, the history, and the small files without which encrypted values
//! cannot be read.
//!
//! Never overwrites a file, and never leaves a partial file under its final name.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use corro_base::atomic_file;
use corro_model::Timestamp;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::StoreError;
use crate::data_dir::{DATABASE, MASTER_KEY};
use crate::db;
use crate::dir_lock::SharedDirLock;
use crate::encryption::{EncryptionError, Vault};
use crate::history::HistoryTable;
use crate::sqlite_file::DatabaseFileError;
use crate::state::State;

/// Files beside the database that are needed to use it: the master key, and the certificate authority that clients of a
/// TLS server trust. Missing files are skipped, except the master key.
const BACKED_UP_FILES: [&str; 3] = [MASTER_KEY, "tls/ca.pem", "tls/ca.key"];

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("there is no database in {0}")]
    NoDatabase(PathBuf),
    #[error("{0} already exists")]
    Exists(PathBuf),
    #[error("{0} is not a backup made by corro")]
    NotABackup(PathBuf),
    #[error("the database in {path} is damaged: {first}")]
    Damaged { path: PathBuf, first: String },
    #[error("cannot read or write {path}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("the database {path} cannot be used")]
    Database { path: PathBuf, source: rusqlite::Error },
    #[error(transparent)]
    DatabaseFiles(DatabaseFileError),
    #[error("the records in {path} cannot be used")]
    Records { path: PathBuf, source: StoreError },
    #[error("the master key of the secrets in {database} is missing: {key} does not exist")]
    NoKey { database: PathBuf, key: PathBuf },
    #[error("the secrets in {database} cannot be decrypted with {key}")]
    WrongKey {
        database: PathBuf,
        key: PathBuf,
        #[source]
        source: EncryptionError,
    },
}

/// Summary of a verified database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Time of the backup; `None` for a database in use.
    pub made: Option<Timestamp>,
    pub schema: i64,
    pub records: usize,
    pub jobs: usize,
    pub unfinished_jobs: usize,
    pub history: u64,
}

/// Writes a consistent copy of the data directory `data` to the new file `to`. The server may keep running.
pub fn back_up(data: &Path, to: &Path, now: Timestamp) -> Result<Contents, BackupError> {
    let source = data.join(DATABASE);
    if !source.is_file() {
        return Err(BackupError::NoDatabase(data.to_owned()));
    }
    if to.exists() {
        return Err(BackupError::Exists(to.to_owned()));
    }
    let failed = |source| BackupError::Database { path: data.join(DATABASE), source };
    let connection = open(&source)?;
    let partial = PartialFile::create(to)?;
    // One read transaction: later commits are not in the copy, and no writer waits.
    let name = partial.path.to_str().ok_or_else(|| BackupError::File {
        path: to.to_owned(),
        source: std::io::Error::other("the name is not valid UTF-8"),
    })?;
    connection.execute("VACUUM INTO ?1", [name]).map_err(failed)?;
    drop(connection);
    put_files(data, &partial.path, now)?;
    let contents = verify(&partial.path)?;
    partial.persist(to)?;
    Ok(contents)
}

/// Restores a backup into the data directory `data`, whose lock the caller holds. An existing database and key are kept
/// under names that contain `replaced`.
pub fn restore(from: &Path, data: &Path) -> Result<Contents, BackupError> {
    let contents = verify_backup(from)?;
    let failed = |source| BackupError::Database { path: from.to_owned(), source };
    let source = open(from)?;
    let database = PartialFile::create(&data.join(DATABASE))?;
    let name = database.path.to_string_lossy();
    source.execute("VACUUM INTO ?1", [&*name]).map_err(failed)?;
    {
        let copy = Connection::open(&database.path).map_err(failed)?;
        copy.execute_batch("DROP TABLE backup; DROP TABLE backup_files; VACUUM; PRAGMA journal_mode = DELETE")
            .map_err(failed)?;
    }
    let mut partials = vec![(database, DATABASE)];
    for name in BACKED_UP_FILES {
        let query = source.query_row("SELECT body FROM backup_files WHERE name = ?1", [name], |row| row.get(0));
        let Some(body): Option<Vec<u8>> = query.optional().map_err(failed)? else { continue };
        let path = data.join(name);
        if let Some(dir) = path.parent() {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
            made.map_err(|source| BackupError::File { path: dir.to_owned(), source })?;
        }
        let partial = PartialFile::create(&path)?;
        partial.write(&body)?;
        partials.push((partial, name));
    }
    move_aside(data, partials.iter().map(|(_, name)| *name))?;
    // The key comes before the database that it decrypts: otherwise a server could create a new key for an old
    // database.
    for (partial, name) in partials.into_iter().rev() {
        partial.persist(&data.join(name))?;
    }
    Ok(contents)
}

/// Same as [`verify`] for a file that must be a backup.
pub fn verify_backup(path: &Path) -> Result<Contents, BackupError> {
    let contents = verify(path)?;
    if contents.made.is_none() {
        return Err(BackupError::NotABackup(path.to_owned()));
    }
    Ok(contents)
}

/// Checks every page and every record of a database or backup. Changes nothing.
pub fn verify(path: &Path) -> Result<Contents, BackupError> {
    let failed = |source| BackupError::Database { path: path.to_owned(), source };
    if !path.is_file() {
        return Err(BackupError::NoDatabase(path.to_owned()));
    }
    let connection = open(path)?;
    let damaged = |first| BackupError::Damaged { path: path.to_owned(), first };
    let first: String = connection
        .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
        .map_err(|error| damaged(error.to_string()))?;
    if first != "ok" {
        return Err(damaged(first));
    }
    let records = |source| BackupError::Records { path: path.to_owned(), source };
    let schema = db::schema(&connection).map_err(records)?;
    if schema == 0 {
        return Err(BackupError::NotABackup(path.to_owned()));
    }
    let state: State = db::load(&connection).map_err(records)?;
    let is_backup: bool = connection
        .query_row("SELECT count(*) FROM sqlite_master WHERE name = 'backup'", [], |row| row.get::<_, i64>(0))
        .map_err(failed)?
        == 1;
    let made = match is_backup {
        true => Some(connection.query_row("SELECT made FROM backup", [], |row| row.get(0)).map_err(failed)?),
        false => None,
    };
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(failed);
    check_key(&connection, &state, path, is_backup)?;
    let tables: &[HistoryTable] = match schema {
        ..db::HISTORY_SCHEMA => &[],
        schema if schema as usize <= db::SPLIT_HISTORY_MIGRATION => &[HistoryTable::Work],
        _ => &HistoryTable::ALL,
    };
    let mut history = 0;
    for table in tables {
        history += count(&format!("SELECT count(*) FROM {}", table.sql_name()))? as u64;
    }
    Ok(Contents {
        made: made.map(Timestamp::from_millis),
        schema,
        records: count("SELECT count(*) FROM records WHERE kind <> 'reserve'")? as usize,
        jobs: state.jobs.len(),
        unfinished_jobs: state.jobs.values().filter(|job| !job.state().is_terminal()).count(),
        history,
    })
}

/// Checks that the master key decrypts the database. The key is inside a backup, or beside a database in use.
fn check_key(connection: &Connection, state: &State, path: &Path, is_backup: bool) -> Result<(), BackupError> {
    let Some(instance) = state.instance_record() else { return Ok(()) };
    let database = path.to_owned();
    let failed = |source| BackupError::Database { path: path.to_owned(), source };
    let key = if is_backup { path.join(MASTER_KEY) } else { path.with_file_name(MASTER_KEY) };
    let bytes: Option<Vec<u8>> = if is_backup {
        let query = "SELECT body FROM backup_files WHERE name = ?1";
        connection.query_row(query, [MASTER_KEY], |row| row.get(0)).optional().map_err(failed)?
    } else {
        match std::fs::read(&key) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            read => Some(read.map_err(|source| BackupError::File { path: key.clone(), source })?),
        }
    };
    let Some(bytes) = bytes else { return Err(BackupError::NoKey { database, key }) };
    let opened = Vault::with_key(&bytes).and_then(|vault| instance.open_token_key(&vault));
    opened.map(|_| ()).map_err(|source| BackupError::WrongKey { database, key, source })
}

/// Stores the small files and the time in the copy.
fn put_files(data: &Path, copy: &Path, now: Timestamp) -> Result<(), BackupError> {
    let failed = |source| BackupError::Database { path: copy.to_owned(), source };
    let connection = Connection::open(copy).map_err(failed)?;
    // Keeps the rollback journal in memory, so that no second file remains beside a partial file.
    connection.execute_batch("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = FULL").map_err(failed)?;
    connection
        .execute_batch(
            "CREATE TABLE backup (made INTEGER NOT NULL);
             CREATE TABLE backup_files (name TEXT PRIMARY KEY, body BLOB NOT NULL)",
        )
        .map_err(failed)?;
    connection.execute("INSERT INTO backup VALUES (?1)", [now.millis()]).map_err(failed)?;
    for name in BACKED_UP_FILES {
        let path = data.join(name);
        let body = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && name != MASTER_KEY => continue,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(BackupError::NoKey { database: data.join(DATABASE), key: path });
            }
            read => read.map_err(|source| BackupError::File { path, source })?,
        };
        connection.execute("INSERT INTO backup_files VALUES (?1, ?2)", params![name, body]).map_err(failed)?;
    }
    Ok(())
}

/// Database opened for reading, with the lock of its directory.
struct LockedConnection {
    connection: Connection,
    /// Keeps a server from starting meanwhile. `None` if a server is running, or if the file is not in a data
    /// directory.
    _lock: Option<SharedDirLock>,
}

impl std::ops::Deref for LockedConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

/// Opens a database for reading. If no server runs, the files are inspected first and left unchanged. A running server
/// has already done that.
fn open(path: &Path) -> Result<LockedConnection, BackupError> {
    let failed = |source| BackupError::Database { path: path.to_owned(), source };
    let io_failed = |source| BackupError::File { path: path.to_owned(), source };
    let is_data = path.file_name().is_some_and(|name| name == DATABASE);
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let lock = if is_data { SharedDirLock::acquire(dir).map_err(io_failed)? } else { None };
    if is_data && lock.is_none() {
        // Not opened read-only, because it uses the shared memory of the running server.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        return Ok(LockedConnection { connection, _lock: None });
    }
    db::inspect(path).map_err(|error| match error {
        StoreError::DatabaseFiles(DatabaseFileError::NotADatabase(path)) if !is_data => BackupError::NotABackup(path),
        StoreError::DatabaseFiles(refusal) => BackupError::DatabaseFiles(refusal),
        source => BackupError::Records { path: path.to_owned(), source },
    })?;
    let connection = db::open_unchanging(path).map_err(failed)?;
    Ok(LockedConnection { connection, _lock: lock })
}

/// Renames existing files to a free name, with the files that SQLite keeps beside a database.
fn move_aside<'a>(data: &Path, names: impl Iterator<Item = &'a str> + Clone) -> Result<(), BackupError> {
    let aside = |name: &str, number: u32| data.join(format!("{name}.replaced-{number}"));
    let taken = |number: &u32| names.clone().any(|name| aside(name, *number).exists());
    let number = (1..).find(|number| !taken(number)).unwrap_or_default();
    for name in names.clone() {
        for beside in ["", "-wal", "-shm", "-journal"] {
            let path = data.join(format!("{name}{beside}"));
            let mut to = aside(name, number).into_os_string();
            to.push(beside);
            match std::fs::rename(&path, to) {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    return Err(BackupError::File { path, source });
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// File under a temporary name in its final directory, mode 0600. Removed on drop unless it was persisted.
struct PartialFile {
    path: PathBuf,
    persisted: bool,
}

impl PartialFile {
    fn create(final_path: &Path) -> Result<Self, BackupError> {
        let failed = |source| BackupError::File { path: final_path.to_owned(), source };
        let name =
            final_path.file_name().ok_or_else(|| failed(std::io::Error::other("it is not the name of a file")))?;
        let path = final_path.with_file_name(format!(".{}.{}.draft", name.to_string_lossy(), std::process::id()));
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
        Ok(Self { path, persisted: false })
    }

    fn write(&self, body: &[u8]) -> Result<(), BackupError> {
        let failed = |source| BackupError::File { path: self.path.clone(), source };
        OpenOptions::new().write(true).open(&self.path).and_then(|mut file| file.write_all(body)).map_err(failed)
    }

    /// Syncs the file to disk, then renames it to its final name, which must be free.
    fn persist(mut self, final_path: &Path) -> Result<(), BackupError> {
        let failed = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::AlreadyExists => BackupError::Exists(final_path.to_owned()),
            _ => BackupError::File { path: final_path.to_owned(), source },
        };
        File::open(&self.path).and_then(|file| file.sync_all()).map_err(failed)?;
        renameat_with(CWD, &self.path, CWD, final_path, RenameFlags::NOREPLACE)
            .map_err(|errno| failed(errno.into()))?;
        self.persisted = true;
        atomic_file::sync_parent(final_path).map_err(failed)
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.persisted {
            // Best effort: a partial file that cannot be removed stays.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
