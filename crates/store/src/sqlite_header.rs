//! Fields of SQLite's first page that Corro uses, and the names of the files that SQLite keeps beside a database.

use std::path::{Path, PathBuf};

/// Fields of a database's first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageOne {
    /// SQLite's `user_version`.
    pub schema: u32,
    /// SQLite's `application_id`, which every commit changes (see `db`): a log that continues this number belongs to
    /// the database. 0 in databases of older versions.
    pub commit_number: u32,
}

impl PageOne {
    pub fn parse(page: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_be_bytes(page.get(at..at + 4)?.try_into().ok()?));
        Some(Self { schema: word(60)?, commit_number: word(68)? })
    }
}

/// Commit number after `number`.
pub(crate) fn next_commit_number(number: u32) -> u32 {
    // 0 means that there is none.
    number.wrapping_add(1).max(1)
}

/// Path of a file that SQLite keeps beside a database.
pub(crate) fn sibling(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
