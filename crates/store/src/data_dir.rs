//! Names of the files in a data directory that the store reads and writes.

/// SQLite database with all records and the history.
pub const DATABASE: &str = "corro.db";
/// Key of 32 bytes that encrypts secrets in the database; see [`encryption`](crate::encryption).
pub const MASTER_KEY: &str = "master.key";
