//! Journal of the current attempt, read after a crash: which attempt was begun, which directories it may have left, and
//! how it ended. Written before anything of the attempt starts.
//!
//! It is a single file that is overwritten in place, because an overwritten block reaches the disk several times faster
//! than a new file. The begun attempt is at the start of the file and is synced, so it survives a power failure. The
//! end is at a fixed offset and is not synced: it survives a crash of the agent. After a power failure an end that was
//! not reported counts as an interruption. A record consists of its length, a checksum and JSON. A record torn by a
//! power failure fails the checksum and belongs to an attempt that never began.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use corro_base::fnv::fnv1a_64;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use corro_model::AttemptId;
use corro_model::node::{ObservedTask, TaskOrder};

use crate::fs::json_file;
use crate::isolation::shared_userns;
use crate::storage::directories::{Directories, JobName, remove_shared_temp};

/// A begun attempt as the journal stores it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptRecord {
    pub attempt: AttemptId,
    pub job: JobName,
    /// Directory shared by the job's nodes, removed with the job. Set on the master only. The server removes that of an elastic
    /// job, which any node may leave before its end.
    pub shared_temp: Option<PathBuf>,
    /// How the attempt ended, so that it can be reported again.
    #[serde(skip)]
    pub ended: Option<ObservedTask>,
}

impl AttemptRecord {
    pub fn new(order: &TaskOrder) -> AttemptRecord {
        AttemptRecord {
            attempt: order.attempt.clone(),
            job: JobName::from(order),
            shared_temp: order.shared_temp.clone().filter(|_| order.is_master() && !order.elastic),
            ended: None,
        }
    }

    /// Removes the job's directories. Blocks on the disk.
    pub fn remove_directories(&self, directories: &Directories) -> io::Result<()> {
        directories.remove_job(&self.job)?;
        let Some(shared) = self.shared_temp.as_deref() else { return Ok(()) };
        remove_shared_temp(shared).and(shared_userns::forget(shared))
    }
}

/// The open journal file.
#[derive(Debug)]
pub struct AttemptJournal {
    file: File,
}

const FILE: &str = "attempt";
/// Offset of the end record. The names and the path of the begin record fit before it.
const END_OFFSET: u64 = 16 * 1024;
/// Length (4 bytes) and checksum (8 bytes) of a record.
const HEADER_BYTES: usize = 12;

impl AttemptJournal {
    /// Whether the journal exists, which is whether this node had an agent before.
    pub fn exists(root: &Path) -> bool {
        root.join(FILE).exists()
    }

    /// Opens the journal and returns the record of an earlier agent.
    pub fn open(root: &Path) -> io::Result<(AttemptJournal, Option<AttemptRecord>)> {
        let path = root.join(FILE);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        if file.metadata()?.len() < END_OFFSET {
            // Allocates all blocks now, so that later writes change content only.
            file.write_all_at(&vec![0; END_OFFSET as usize], 0)?;
            file.sync_all()?;
            File::open(root)?.sync_all()?;
        }
        let journal = AttemptJournal { file };
        let mut begun: Option<AttemptRecord> = journal.read(0)?;
        if let Some(begun) = &mut begun {
            let ended: Option<ObservedTask> = journal.read(END_OFFSET)?;
            begun.ended = ended.filter(|ended| ended.attempt == begun.attempt);
        }
        Ok((journal, begun))
    }

    /// Writes the begin record and syncs it to disk.
    pub fn write_begin(&self, begun: &AttemptRecord) -> io::Result<()> {
        let encoded = encode_record(begun)?;
        if encoded.len() as u64 > END_OFFSET {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the names of the job are too long for the journal",
            ));
        }
        self.file.write_all_at(&encoded, 0)?;
        self.file.sync_data()
    }

    pub fn write_end(&self, ended: &ObservedTask) -> io::Result<()> {
        self.file.write_all_at(&encode_record(ended)?, END_OFFSET)
    }

    pub fn clear(&self) -> io::Result<()> {
        self.file.write_all_at(&[0; HEADER_BYTES], 0)
    }

    /// Deletes the journal of a retired node.
    pub fn remove(root: &Path) -> io::Result<()> {
        json_file::remove(&root.join(FILE))
    }

    /// Reads a record; `None` if there is none or it is torn.
    fn read<T: DeserializeOwned>(&self, at: u64) -> io::Result<Option<T>> {
        let mut head = [0; HEADER_BYTES];
        if self.file.metadata()?.len() < at + HEADER_BYTES as u64 {
            return Ok(None);
        }
        self.file.read_exact_at(&mut head, at)?;
        let (length, sum) = head.split_at(4);
        let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as u64;
        if length == 0 || self.file.metadata()?.len() < at + HEADER_BYTES as u64 + length {
            return Ok(None);
        }
        let mut text = vec![0; length as usize];
        self.file.read_exact_at(&mut text, at + HEADER_BYTES as u64)?;
        Ok(if sum == checksum(&text) { serde_json::from_slice(&text).ok() } else { None })
    }
}

fn encode_record<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let text = serde_json::to_vec(value)?;
    let length = u32::try_from(text.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    Ok([&length.to_le_bytes()[..], &checksum(&text), &text].concat())
}

/// FNV-1a. Detects torn records only.
fn checksum(text: &[u8]) -> [u8; 8] {
    fnv1a_64(text).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use corro_model::node::TaskPhase;

    use super::*;
    use crate::testing;

    fn again(root: &Path) -> Option<AttemptRecord> {
        AttemptJournal::open(root).expect("it opens").1
    }

    #[test]
    fn an_attempt_stays_in_the_journal_until_it_is_cleared() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let (journal, begun) = AttemptJournal::open(root.path()).expect("a new one");
        assert_eq!(begun, None);
        let begun = AttemptRecord::new(&testing::order(1));
        journal.write_begin(&begun).expect("it can be written");
        assert_eq!(again(root.path()), Some(begun.clone()));
        let phase = TaskPhase::Ended { failure: None };
        let ended = ObservedTask { attempt: begun.attempt.clone(), phase, exits: Vec::new(), elastic: None };
        journal.write_end(&ended).expect("it can be written");
        assert_eq!(again(root.path()), Some(AttemptRecord { ended: Some(ended), ..begun.clone() }));
        let mut next = begun.clone();
        next.attempt.number += 1;
        journal.write_begin(&next).expect("it can be written");
        assert_eq!(again(root.path()), Some(next), "the end was another attempt's");
        journal.clear().expect("it can be written");
        assert_eq!(again(root.path()), None);
    }

    #[test]
    fn a_torn_record_is_ignored() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let (journal, _) = AttemptJournal::open(root.path()).expect("a new one");
        journal.write_begin(&AttemptRecord::new(&testing::order(1))).expect("it can be written");
        journal.file.write_all_at(b"#", HEADER_BYTES as u64 + 7).expect("it can be damaged");
        assert_eq!(again(root.path()), None);
    }
}
