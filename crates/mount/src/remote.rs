//! What a mounted share needs of the server that has it, and what can go wrong with that. `service` is the file service; tests have
//! one in memory. Every operation is one request; `patience` repeats.

use std::fmt;
use std::time::SystemTime;

use bytes::Bytes;

use crate::inodes::Kind;
use crate::writeback::DirtyRange;

/// What lies at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub kind: Kind,
    pub length: u64,
    pub modified: SystemTime,
    /// The same as long as the content is; empty where that is not known.
    pub etag: String,
}

impl Status {
    /// Whether this is, as far as can be told, the content that `other` is about.
    pub fn is_same(&self, other: &Status) -> bool {
        match self.etag.is_empty() || other.etag.is_empty() {
            true => (self.length, self.modified) == (other.length, other.modified),
            false => self.etag == other.etag,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub status: Status,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub entries: Vec<Entry>,
    /// Where the next one begins.
    pub next: Option<String>,
}

/// In bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceInfo {
    pub used: u64,
    pub quota: Option<u64>,
}

/// A block that is to be at the end of a file, once.
#[derive(Clone, Debug)]
pub struct AppendBlock {
    pub content: Bytes,
    /// Which file of this mount it goes to, and which of the blocks for it this is.
    pub file: u64,
    pub number: u64,
    /// For a second try: the block lies nowhere before this offset.
    pub retry_from: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteError {
    /// The server's answer, for good.
    Permanent { errno: i32, why: String },
    /// Nobody answered, or with something that passes. The request may have been carried out.
    Transient { why: String },
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RemoteError::Permanent { why, .. } | RemoteError::Transient { why } => f.write_str(why),
        }
    }
}

pub type RemoteResult<T> = Result<T, RemoteError>;

/// A share. Paths are relative to its root, without a slash at either end; the root is empty.
pub trait Remote: Send + Sync + 'static {
    fn stat(&self, path: &str) -> impl Future<Output = RemoteResult<Status>> + Send;
    fn list(&self, path: &str, from: &str) -> impl Future<Output = RemoteResult<Page>> + Send;
    /// Fewer bytes than asked for at the end of the file.
    fn read(&self, path: &str, offset: u64, length: u64) -> impl Future<Output = RemoteResult<Bytes>> + Send;
    /// All of a batch, apart from each other. A file that is too short grows.
    fn write(&self, path: &str, batch: &[DirtyRange]) -> impl Future<Output = RemoteResult<()>> + Send;
    /// Where the block begins, and what the file is then.
    fn append(&self, path: &str, block: &AppendBlock) -> impl Future<Output = RemoteResult<(u64, Status)>> + Send;
    /// An empty file, where nothing was.
    fn create(&self, path: &str) -> impl Future<Output = RemoteResult<()>> + Send;
    /// A file with this content, where nothing was. False where that cannot be done in one.
    fn create_with(&self, path: &str, batch: &[DirtyRange]) -> impl Future<Output = RemoteResult<bool>> + Send;
    fn create_directory(&self, path: &str) -> impl Future<Output = RemoteResult<()>> + Send;
    /// The text of a link, which is not resolved.
    fn read_link(&self, path: &str) -> impl Future<Output = RemoteResult<Vec<u8>>> + Send;
    /// A link with this text, where nothing was.
    fn create_link(&self, path: &str, text: &[u8]) -> impl Future<Output = RemoteResult<()>> + Send;
    /// Of a link the link, and never what it leads to.
    fn remove(&self, path: &str, kind: Kind) -> impl Future<Output = RemoteResult<()>> + Send;
    fn rename(&self, from: &str, to: &str, kind: Kind, replace: bool) -> impl Future<Output = RemoteResult<()>> + Send;
    fn resize(&self, path: &str, length: u64) -> impl Future<Output = RemoteResult<()>> + Send;
    fn set_modified(&self, path: &str, modified: SystemTime) -> impl Future<Output = RemoteResult<()>> + Send;
    /// Returns when it is on the disk.
    fn sync(&self, path: &str) -> impl Future<Output = RemoteResult<()>> + Send;
    fn space_info(&self) -> impl Future<Output = RemoteResult<SpaceInfo>> + Send;
}
