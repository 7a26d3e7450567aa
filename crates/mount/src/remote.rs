//! Interface of a mounted share to its server, and its errors. `service` implements it with the file service; tests use
//! a fake in memory. Every operation is one request; `retry` repeats them.

use std::fmt;
use std::time::SystemTime;

use bytes::Bytes;

use crate::inodes::Kind;
use crate::writeback::DirtyRange;

/// Attributes of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub kind: Kind,
    pub length: u64,
    pub modified: SystemTime,
    /// Changes with the content; empty if unknown.
    pub etag: String,
}

impl Status {
    /// Whether both describe the same content, as far as known.
    pub fn is_same(&self, other: &Status) -> bool {
        match self.etag.is_empty() || other.etag.is_empty() {
            true => (self.length, self.modified) == (other.length, other.modified),
            false => self.etag == other.etag,
        }
    }
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub status: Status,
}

/// A page of a directory listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub entries: Vec<Entry>,
    /// Marker of the next page.
    pub next: Option<String>,
}

/// Used bytes and quota of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceInfo {
    pub used: u64,
    pub quota: Option<u64>,
}

/// A block to append to a file exactly once.
#[derive(Clone, Debug)]
pub struct AppendBlock {
    pub content: Bytes,
    /// The file of this mount; `number` counts its blocks.
    pub file: u64,
    pub number: u64,
    /// For a retry: the block is not before this offset.
    pub retry_from: Option<u64>,
}

/// Error of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteError {
    /// The server's final answer.
    Permanent { errno: i32, why: String },
    /// No answer, or a temporary error. The request may have been carried out.
    Transient { why: String },
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RemoteError::Permanent { why, .. } | RemoteError::Transient { why } => f.write_str(why),
        }
    }
}

/// Result of a request.
pub type RemoteResult<T> = Result<T, RemoteError>;

/// A share. Paths are relative to its root, without leading or trailing slashes; the root is empty.
pub trait Remote: Send + Sync + 'static {
    fn stat(&self, path: &str) -> impl Future<Output = RemoteResult<Status>> + Send;
    fn list(&self, path: &str, from: &str) -> impl Future<Output = RemoteResult<Page>> + Send;
    /// Returns fewer bytes at the end of the file.
    fn read(&self, path: &str, offset: u64, length: u64) -> impl Future<Output = RemoteResult<Bytes>> + Send;
    /// Writes non-overlapping ranges. The file grows as needed.
    fn write(&self, path: &str, batch: &[DirtyRange]) -> impl Future<Output = RemoteResult<()>> + Send;
    /// Offset of the block, and the file's status afterwards.
    fn append(&self, path: &str, block: &AppendBlock) -> impl Future<Output = RemoteResult<(u64, Status)>> + Send;
    /// Creates an empty file; fails if the path exists.
    fn create(&self, path: &str) -> impl Future<Output = RemoteResult<()>> + Send;
    /// Creates a file with this content; fails if the path exists. False if the server cannot do both in one request.
    fn create_with(&self, path: &str, batch: &[DirtyRange]) -> impl Future<Output = RemoteResult<bool>> + Send;
    fn create_directory(&self, path: &str) -> impl Future<Output = RemoteResult<()>> + Send;
    /// Target text of a symlink, unresolved.
    fn read_link(&self, path: &str) -> impl Future<Output = RemoteResult<Vec<u8>>> + Send;
    /// Creates a symlink with this text; fails if the path exists.
    fn create_link(&self, path: &str, text: &[u8]) -> impl Future<Output = RemoteResult<()>> + Send;
    /// Removes the entry itself; a symlink is not followed.
    fn remove(&self, path: &str, kind: Kind) -> impl Future<Output = RemoteResult<()>> + Send;
    fn rename(&self, from: &str, to: &str, kind: Kind, replace: bool) -> impl Future<Output = RemoteResult<()>> + Send;
    fn resize(&self, path: &str, length: u64) -> impl Future<Output = RemoteResult<()>> + Send;
    fn set_modified(&self, path: &str, modified: SystemTime) -> impl Future<Output = RemoteResult<()>> + Send;
    /// Returns when the file is on the server's disk.
    fn sync(&self, path: &str) -> impl Future<Output = RemoteResult<()>> + Send;
    fn space_info(&self) -> impl Future<Output = RemoteResult<SpaceInfo>> + Send;
}
