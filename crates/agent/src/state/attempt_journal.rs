//! What an agent must know after a crash: which attempt it had begun, where its leftovers are, and how it ended. Written
//! before anything of the attempt starts. Entered by the driver only.
//!
//! One file is written over and over, because an overwritten block reaches the disk several times faster than a new file
//! does. The begun attempt lies at its beginning and survives a power failure; the end lies behind it and survives the
//! agent: after a power failure an end that nobody was told is an interruption. A record is its length, its check sum
//! and its text. One that was cut short by a power failure does not check, and belongs to an attempt that never began.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use corro_model::AttemptId;
use corro_model::node::{ObservedTask, TaskOrder};

use crate::fs::atomic_file;
use crate::isolation::shared_userns;
use crate::storage::directories::{Directories, JobName, remove_shared_temp};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptRecord {
    pub attempt: AttemptId,
    pub job: JobName,
    /// To be removed with the job; only the master does.
    pub shared_temp: Option<PathBuf>,
    /// How it ended, so that the truth can be told again.
    #[serde(skip)]
    pub ended: Option<ObservedTask>,
}

impl AttemptRecord {
    pub fn new(order: &TaskOrder) -> AttemptRecord {
        AttemptRecord {
            attempt: order.attempt.clone(),
            job: JobName::from(order),
            shared_temp: order.shared_temp.clone().filter(|_| order.is_master()),
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

/// The open file.
#[derive(Debug)]
pub struct AttemptJournal {
    file: File,
}

const FILE: &str = "attempt";
/// Where the end lies. Names and a path fit before it.
const END_OFFSET: u64 = 16 * 1024;
/// Length and check sum.
const HEADER_BYTES: usize = 12;

impl AttemptJournal {
    /// Has there been an agent of this node before?
    pub fn exists(root: &Path) -> bool {
        root.join(FILE).exists()
    }

    /// With what an earlier agent of this node wrote down.
    pub fn open(root: &Path) -> io::Result<(AttemptJournal, Option<AttemptRecord>)> {
        let path = root.join(FILE);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        if file.metadata()?.len() < END_OFFSET {
            // All of its blocks are there from now on, so that later writes change nothing but their content.
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

    /// Afterwards it is on the disk.
    pub fn write_begin(&self, begun: &AttemptRecord) -> io::Result<()> {
        let encoded = encode_record(begun)?;
        if encoded.len() as u64 > END_OFFSET {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the names of the job are too long to write down"));
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

    /// The node is no more.
    pub fn remove(root: &Path) -> io::Result<()> {
        atomic_file::remove(&root.join(FILE))
    }

    /// `None` when there is nothing, or nothing whole.
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

/// FNV-1a: it tells a torn record from a whole one, nothing more.
fn checksum(text: &[u8]) -> [u8; 8] {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    text.iter().fold(0xcbf2_9ce4_8422_2325, step).to_le_bytes()
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
    fn an_attempt_is_remembered_until_it_is_forgotten() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let (journal, begun) = AttemptJournal::open(root.path()).expect("a new one");
        assert_eq!(begun, None);
        let begun = AttemptRecord::new(&testing::order(1));
        journal.write_begin(&begun).expect("it can be written");
        assert_eq!(again(root.path()), Some(begun.clone()));
        let phase = TaskPhase::Ended { failure: None };
        let ended = ObservedTask { attempt: begun.attempt.clone(), phase, exits: Vec::new() };
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
    fn a_torn_record_is_none() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let (journal, _) = AttemptJournal::open(root.path()).expect("a new one");
        journal.write_begin(&AttemptRecord::new(&testing::order(1))).expect("it can be written");
        journal.file.write_all_at(b"#", HEADER_BYTES as u64 + 7).expect("it can be damaged");
        assert_eq!(again(root.path()), None);
    }
}
