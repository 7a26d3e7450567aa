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
pub struct Begun {
    pub attempt: AttemptId,
    pub job: JobName,
    /// To be removed with the job; only the master does.
    pub shared_temp: Option<PathBuf>,
    /// How it ended, so that the truth can be told again.
    #[serde(skip)]
    pub ended: Option<ObservedTask>,
}

impl Begun {
    pub fn new(order: &TaskOrder) -> Begun {
        Begun {
            attempt: order.attempt.clone(),
            job: JobName::from(order),
            shared_temp: order.shared_temp.clone().filter(|_| order.is_master()),
            ended: None,
        }
    }

    /// Removes the job's directories. Blocks on the disk.
    pub fn clean(&self, directories: &Directories) -> io::Result<()> {
        directories.remove_job(&self.job)?;
        let Some(shared) = self.shared_temp.as_deref() else { return Ok(()) };
        remove_shared_temp(shared).and(shared_userns::forget(shared))
    }
}

/// The open file.
#[derive(Debug)]
pub struct Memory {
    file: File,
}

const FILE: &str = "attempt";
/// Where the end lies. Names and a path fit before it.
const END_AT: u64 = 16 * 1024;
/// Length and check sum.
const HEAD: usize = 12;

impl Memory {
    /// Has there been an agent of this node before?
    pub fn is_there(root: &Path) -> bool {
        root.join(FILE).exists()
    }

    /// With what an earlier agent of this node wrote down.
    pub fn open(root: &Path) -> io::Result<(Memory, Option<Begun>)> {
        let path = root.join(FILE);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        if file.metadata()?.len() < END_AT {
            // All of its blocks are there from now on, so that later writes change nothing but their content.
            file.write_all_at(&vec![0; END_AT as usize], 0)?;
            file.sync_all()?;
            File::open(root)?.sync_all()?;
        }
        let memory = Memory { file };
        let mut begun: Option<Begun> = memory.read(0)?;
        if let Some(begun) = &mut begun {
            let ended: Option<ObservedTask> = memory.read(END_AT)?;
            begun.ended = ended.filter(|ended| ended.attempt == begun.attempt);
        }
        Ok((memory, begun))
    }

    /// Afterwards it is on the disk.
    pub fn begin(&self, begun: &Begun) -> io::Result<()> {
        let record = record(begun)?;
        if record.len() as u64 > END_AT {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the names of the job are too long to write down"));
        }
        self.file.write_all_at(&record, 0)?;
        self.file.sync_data()
    }

    pub fn end(&self, ended: &ObservedTask) -> io::Result<()> {
        self.file.write_all_at(&record(ended)?, END_AT)
    }

    pub fn forget(&self) -> io::Result<()> {
        self.file.write_all_at(&[0; HEAD], 0)
    }

    /// The node is no more.
    pub fn remove(root: &Path) -> io::Result<()> {
        atomic_file::remove(&root.join(FILE))
    }

    /// `None` when there is nothing, or nothing whole.
    fn read<T: DeserializeOwned>(&self, at: u64) -> io::Result<Option<T>> {
        let mut head = [0; HEAD];
        if self.file.metadata()?.len() < at + HEAD as u64 {
            return Ok(None);
        }
        self.file.read_exact_at(&mut head, at)?;
        let (length, sum) = head.split_at(4);
        let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as u64;
        if length == 0 || self.file.metadata()?.len() < at + HEAD as u64 + length {
            return Ok(None);
        }
        let mut text = vec![0; length as usize];
        self.file.read_exact_at(&mut text, at + HEAD as u64)?;
        Ok(if sum == check_sum(&text) { serde_json::from_slice(&text).ok() } else { None })
    }
}

fn record<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let text = serde_json::to_vec(value)?;
    let length = u32::try_from(text.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    Ok([&length.to_le_bytes()[..], &check_sum(&text), &text].concat())
}

/// FNV-1a: it tells a torn record from a whole one, nothing more.
fn check_sum(text: &[u8]) -> [u8; 8] {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    text.iter().fold(0xcbf2_9ce4_8422_2325, step).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use corro_model::node::TaskPhase;

    use super::*;
    use crate::testing;

    fn again(root: &Path) -> Option<Begun> {
        Memory::open(root).expect("it opens").1
    }

    #[test]
    fn an_attempt_is_remembered_until_it_is_forgotten() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let (memory, begun) = Memory::open(root.path()).expect("a new one");
        assert_eq!(begun, None);
        let begun = Begun::new(&testing::order(1));
        memory.begin(&begun).expect("it can be written");
        assert_eq!(again(root.path()), Some(begun.clone()));
        let phase = TaskPhase::Ended { failure: None };
        let ended = ObservedTask { attempt: begun.attempt.clone(), phase, exits: Vec::new() };
        memory.end(&ended).expect("it can be written");
        assert_eq!(again(root.path()), Some(Begun { ended: Some(ended), ..begun.clone() }));
        let mut next = begun.clone();
        next.attempt.number += 1;
        memory.begin(&next).expect("it can be written");
        assert_eq!(again(root.path()), Some(next), "the end was another attempt's");
        memory.forget().expect("it can be written");
        assert_eq!(again(root.path()), None);
    }

    #[test]
    fn a_torn_record_is_none() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let (memory, _) = Memory::open(root.path()).expect("a new one");
        memory.begin(&Begun::new(&testing::order(1))).expect("it can be written");
        memory.file.write_all_at(b"#", HEAD as u64 + 7).expect("it can be damaged");
        assert_eq!(again(root.path()), None);
    }
}
