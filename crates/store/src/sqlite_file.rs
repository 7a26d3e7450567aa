//! Inspection of a database's files before SQLite opens them. SQLite creates a missing database and drops a write-ahead
//! log that it cannot read. Both destroy data that an operator could still restore.
//!
//! [`inspect`] reads the files; [`decide`] is pure. Neither changes a byte.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::data_dir::MASTER_KEY;
use crate::sqlite_header::{PageOne, next_commit_number, sibling};
use crate::wal::{self, Wal, WalDamage};

/// Reason why a database is not opened. No file is changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatabaseFileError {
    #[error(
        "{beside} exists, but its database {database} is missing or empty: put it back, or restore a backup with \
         'corro admin restore' (to start over, move {beside} away)"
    )]
    DatabaseLost { database: PathBuf, beside: PathBuf },
    #[error(
        "{0} is not an SQLite database: replace it with the correct file, or restore a backup with 'corro admin \
         restore'"
    )]
    NotADatabase(PathBuf),
    #[error(
        "cannot use the write-ahead log {wal}: {damage}. It has the latest commits: replace it with the correct \
         file, or restore a backup with 'corro admin restore' (to continue with the older state in {database}, move \
         {wal} away)"
    )]
    WalDamaged { database: PathBuf, wal: PathBuf, damage: WalDamage },
    #[error(
        "the write-ahead log {wal} does not belong to the database {database}: put back the two files that belong \
         together, or restore a backup with 'corro admin restore' (to continue with the state in {database}, move \
         {wal} away)"
    )]
    WalForeign { database: PathBuf, wal: PathBuf },
}

/// State of a database before it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatabaseStatus {
    /// No database, or the remains of an interrupted creation.
    New,
    Existing {
        schema: u32,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DatabaseFile {
    /// Missing or empty.
    Absent,
    Unreadable,
    Present {
        page_size: u32,
        page_one: PageOne,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InspectedFiles {
    database: DatabaseFile,
    /// Bytes of the log.
    wal_len: u64,
    wal: Wal,
    /// A rollback journal exists. SQLite uses one only while it creates the database.
    has_journal: bool,
    has_key: bool,
}

/// Inspects the files at and beside `database`.
pub(crate) fn inspect(database: &Path) -> io::Result<Result<DatabaseStatus, DatabaseFileError>> {
    let there = |path: &Path| match path.metadata() {
        Ok(meta) => Ok(meta.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    };
    let wal = sibling(database, "-wal");
    let wal_len = there(&wal)?;
    let (file, found) = match there(database)? {
        0 => (None, DatabaseFile::Absent),
        _ => {
            let file = File::open(database)?;
            let found = read_header(&file)?;
            (Some(file), found)
        }
    };
    let log = match (file, File::open(&wal)) {
        (Some(database), Ok(wal)) => wal::read(&wal, &database)?,
        (_, Err(error)) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => Wal::Empty,
    };
    let has_journal = there(&sibling(database, "-journal"))? > 0;
    let has_key = database.with_file_name(MASTER_KEY).exists();
    Ok(decide(database, &InspectedFiles { database: found, wal_len, wal: log, has_journal, has_key }))
}

/// Decides whether the database may be opened with these files.
pub(crate) fn decide(database: &Path, found: &InspectedFiles) -> Result<DatabaseStatus, DatabaseFileError> {
    let (path, wal) = (database.to_owned(), sibling(database, "-wal"));
    let (page_size, page_one) = match found.database {
        DatabaseFile::Absent if found.has_key => {
            return Err(DatabaseFileError::DatabaseLost {
                database: path,
                beside: database.with_file_name(MASTER_KEY),
            });
        }
        DatabaseFile::Absent if found.wal_len > 0 => {
            return Err(DatabaseFileError::DatabaseLost { database: path, beside: wal });
        }
        DatabaseFile::Absent => return Ok(DatabaseStatus::New),
        // The first page was being written; the journal rolls it back.
        DatabaseFile::Unreadable if found.has_journal && !found.has_key && found.wal_len == 0 => {
            return Ok(DatabaseStatus::New);
        }
        DatabaseFile::Unreadable => return Err(DatabaseFileError::NotADatabase(path)),
        DatabaseFile::Present { page_size, page_one } => (page_size, page_one),
    };
    match &found.wal {
        Wal::Empty => Ok(DatabaseStatus::Existing { schema: page_one.schema }),
        Wal::Damaged(damage) => Err(DatabaseFileError::WalDamaged { database: path, wal, damage: *damage }),
        Wal::Commits(commits) => {
            let number = page_one.commit_number;
            // A log without the first page is from an older version and cannot be matched.
            let follows = commits.first.is_none_or(|first| first.commit_number == next_commit_number(number));
            let belongs = commits.page_size == page_size && (follows || commits.numbers.contains(&number));
            match belongs {
                true => Ok(DatabaseStatus::Existing { schema: commits.last.unwrap_or(page_one).schema }),
                false => Err(DatabaseFileError::WalForeign { database: path, wal }),
            }
        }
    }
}

fn read_header(file: &File) -> io::Result<DatabaseFile> {
    let mut head = [0; 100];
    match file.read_exact_at(&mut head, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(DatabaseFile::Unreadable),
        read => read?,
    }
    let page_size = match u16::from_be_bytes([head[16], head[17]]) {
        1 => 65_536,
        size => u32::from(size),
    };
    Ok(match (head.starts_with(b"SQLite format 3\0"), PageOne::parse(&head)) {
        (true, Some(page_one)) => DatabaseFile::Present { page_size, page_one },
        _ => DatabaseFile::Unreadable,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::Commits;

    fn page_one(commit_number: u32) -> PageOne {
        PageOne { schema: 4, commit_number }
    }

    fn present(commit_number: u32) -> DatabaseFile {
        DatabaseFile::Present { page_size: 4096, page_one: page_one(commit_number) }
    }

    fn commits(numbers: &[u32]) -> Wal {
        let at = |idx: Option<&u32>| idx.map(|number| page_one(*number));
        let numbers_set = numbers.iter().copied().collect();
        Wal::Commits(Commits {
            page_size: 4096,
            first: at(numbers.first()),
            last: at(numbers.last()),
            numbers: numbers_set,
        })
    }

    #[test]
    fn a_database_is_made_only_where_nothing_speaks_of_another() {
        let check = |database, wal_len, [has_journal, has_key]: [bool; 2]| {
            let found = InspectedFiles { database, wal_len, wal: Wal::Empty, has_journal, has_key };
            match decide(Path::new("d/corro.db"), &found) {
                Ok(DatabaseStatus::New) => "new".to_owned(),
                Ok(DatabaseStatus::Existing { .. }) => "existing".to_owned(),
                Err(DatabaseFileError::DatabaseLost { beside, .. }) => beside.display().to_string(),
                Err(refusal) => format!("{refusal:?}"),
            }
        };
        use DatabaseFile::{Absent, Unreadable};
        assert_eq!(check(Absent, 0, [false, false]), "new");
        assert_eq!(check(Absent, 0, [true, false]), "new");
        assert_eq!(check(Absent, 0, [false, true]), "d/master.key");
        assert_eq!(check(Absent, 99, [false, true]), "d/master.key");
        assert_eq!(check(Absent, 1, [false, false]), "d/corro.db-wal");
        assert_eq!(check(Unreadable, 0, [true, false]), "new");
        assert_eq!(check(Unreadable, 0, [true, true]), "NotADatabase(\"d/corro.db\")");
        assert_eq!(check(Unreadable, 0, [false, false]), "NotADatabase(\"d/corro.db\")");
        assert_eq!(check(present(0), 0, [false, true]), "existing");
    }

    #[test]
    fn a_log_belongs_to_the_database_whose_commits_it_continues() {
        let belongs = |database: u32, wal: Wal| {
            let found =
                InspectedFiles { database: present(database), wal_len: 1, wal, has_journal: false, has_key: true };
            decide(Path::new("corro.db"), &found).is_ok()
        };
        // Started from this state; checkpointed in part or completely; from an older version.
        assert!(belongs(7, commits(&[8, 900, 901])));
        assert!(belongs(900, commits(&[8, 900, 901])) && belongs(901, commits(&[8, 900, 901])));
        assert!(belongs(0, commits(&[0, 0])) && belongs(0, commits(&[1, 900])) && belongs(5, commits(&[])));
        assert!(belongs(u32::MAX, commits(&[1, 77])));
        // From another database, or older or newer than this one.
        assert!(!belongs(6, commits(&[8, 900, 901])));
        assert!(!belongs(902, commits(&[8, 900, 901])));
        assert!(!belongs(0, commits(&[8])));
        let other_pages = Wal::Commits(Commits { page_size: 8192, ..Commits::default() });
        assert!(!belongs(5, other_pages));
        assert!(!belongs(5, Wal::Damaged(WalDamage::NotALog)));
    }
}
