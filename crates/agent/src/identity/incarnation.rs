//! The incarnation of a directory: a random id that identifies the processes, containers, cgroups and temporary files
//! on this machine that were started from it. Node ids cannot serve for that: a restored backup and a copied data
//! directory have nodes with the same ids as the original, which may be running on the same machine.
//!
//! The id is stored in the directory together with the directory's identity (device, inode, birth time) and its path. A
//! copy carries the original's record but is another directory, so it gets a new id and owns nothing. A directory that
//! was moved, or whose machine was rebooted, also gets a new id and keeps the former one as its own.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use corro_base::procfs;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use serde::{Deserialize, Serialize};

use corro_model::{AttemptId, NodeId};

use crate::fs::json_file;

/// The current id of a directory and the one before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incarnation {
    pub id: Arc<str>,
    former: Option<String>,
    origin: Origin,
}

/// Kind of record that the directory had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// No record: the directory is new, or was last used by a version that wrote none.
    Unrecorded,
    /// A record of this directory.
    Own,
    /// The record of the directory from which this one was copied.
    Copied,
}

/// Ids whose processes, containers and cgroups a directory may end. Empty for a copy, since the original may be
/// running.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedIds(Vec<String>);

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    id: String,
    /// The id of the same directory before this one.
    #[serde(default)]
    former: Option<String>,
    directory: DirectoryIdentity,
    path: PathBuf,
    /// The kernel's boot id when the record was written.
    boot: String,
}

/// Identity of a directory. Differs between a directory and every copy of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DirectoryIdentity {
    device: (u32, u32),
    inode: u64,
    /// Birth time in seconds and nanoseconds, if the file system stores it. Inode numbers are reused, possibly by a
    /// copy of a removed directory.
    birth: Option<(i64, u32)>,
}

/// Lifetime of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// Until reboot: for processes and containers, which do not survive one.
    Boot,
    /// Unlimited: for Slurm jobs and pods on other machines.
    Lasting,
}

const RECORD_FILE: &str = "incarnation";

/// Returns the incarnation of `directory`, creating or renewing the record as needed. The record is on disk on return.
/// The caller holds the directory's lock.
pub fn ensure(directory: &Path, validity: Validity) -> io::Result<Incarnation> {
    let found = read(directory)?;
    let here = Record::of(directory, String::new())?;
    let (former, origin) = match found {
        Some(record) if record.is_current(&here, validity) => {
            return Ok(Incarnation { id: record.id.into(), former: record.former, origin: Origin::Own });
        }
        Some(record) if record.is_of(&here) => (Some(record.id), Origin::Own),
        Some(_) => (None, Origin::Copied),
        None => (None, Origin::Unrecorded),
    };
    let record = Record { id: random_id()?, former: former.clone(), ..here };
    json_file::write(&directory.join(RECORD_FILE), &record)?;
    Ok(Incarnation { id: record.id.into(), former, origin })
}

/// Gives the directory a new id and no former one: it no longer owns anything started from it before.
pub fn renew(directory: &Path) -> io::Result<()> {
    json_file::write(&directory.join(RECORD_FILE), &Record::of(directory, random_id()?)?)
}

/// Records `id` as the directory's incarnation, for a directory in use since before there were incarnations.
pub fn adopt(directory: &Path, id: &str) -> io::Result<()> {
    json_file::write(&directory.join(RECORD_FILE), &Record::of(directory, id.to_owned())?)
}

/// Removes the record. Called when nothing that was started from the directory is left.
pub fn forget(directory: &Path) -> io::Result<()> {
    json_file::remove(&directory.join(RECORD_FILE))
}

/// Whether a record exists, of this directory or of the one it was copied from.
pub fn is_recorded(directory: &Path) -> bool {
    directory.join(RECORD_FILE).exists()
}

/// The ids that the directory owns. Empty if it has no record, or the record of another directory.
pub fn owned_ids(directory: &Path) -> OwnedIds {
    let record = read(directory).ok().flatten().zip(Record::of(directory, String::new()).ok());
    let own = record.filter(|(record, here)| record.is_of(here)).map(|(record, _)| record);
    OwnedIds(own.into_iter().flat_map(|own| [Some(own.id), own.former]).flatten().collect())
}

/// The current id of the directory; `None` if it has no record of its own.
pub fn current_id(directory: &Path) -> Option<String> {
    owned_ids(directory).0.into_iter().next()
}

/// Whether the directory was moved since an agent last started in it. The paths that this agent was given are then
/// wrong.
pub fn was_moved(directory: &Path) -> bool {
    let here = directory.canonicalize();
    read(directory).ok().flatten().is_some_and(|record| here.is_ok_and(|here| here != record.path))
}

impl Incarnation {
    /// Whether the directory was copied from another one, to which its credential and attempts belong.
    pub fn is_copy(&self) -> bool {
        self.origin == Origin::Copied
    }

    /// Whether the directory had no record before.
    pub fn is_first(&self) -> bool {
        self.origin == Origin::Unrecorded
    }

    pub fn owned_ids(&self) -> OwnedIds {
        OwnedIds([Some(self.id.to_string()), self.former.clone()].into_iter().flatten().collect())
    }
}

impl OwnedIds {
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a process with this tag was started from the directory.
    pub fn has_tag(&self, tag: &str) -> bool {
        incarnation_in(tag).is_some_and(|id| self.iter().any(|own| own == id))
    }
}

/// Prefix of the tags of all processes of a node: `NODE/INCARNATION/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagPrefix(Arc<str>);

impl TagPrefix {
    pub fn new(node: &NodeId, incarnation: &str) -> TagPrefix {
        TagPrefix(format!("{node}/{incarnation}/").into())
    }

    /// The prefix followed by `rest`: the tag of one process, or the prefix of several.
    pub fn with(&self, rest: &str) -> String {
        format!("{}{rest}", self.0)
    }

    /// Prefix of the tags of an attempt's processes.
    pub fn attempt_prefix(&self, attempt: &AttemptId) -> String {
        self.with(&format!("{attempt}/"))
    }
}

/// The incarnation in a tag; `None` for tags of agents older than incarnations (`NODE/ATTEMPT/PROCESS`).
pub fn incarnation_in(tag: &str) -> Option<&str> {
    tag.split('/').nth(1).filter(|id| id.len() == ID_LENGTH && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Hexadecimal digits of 16 random bytes: collisions are practically impossible.
const ID_LENGTH: usize = 32;

fn random_id() -> io::Result<String> {
    let mut bytes = [0u8; ID_LENGTH / 2];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Record {
    fn of(directory: &Path, id: String) -> io::Result<Record> {
        let path = directory.canonicalize()?;
        let boot = procfs::boot_id().unwrap_or_default();
        Ok(Record { id, former: None, directory: DirectoryIdentity::of(&path)?, path, boot })
    }

    /// Whether this is the record of the directory that `here` describes. Device numbers may change with a reboot.
    fn is_of(&self, here: &Record) -> bool {
        let (own, other) = (&self.directory, &here.directory);
        own.inode == other.inode && own.birth == other.birth && (own.device == other.device || self.boot != here.boot)
    }

    fn is_current(&self, here: &Record, validity: Validity) -> bool {
        let same_boot = self.boot == here.boot || validity == Validity::Lasting;
        self.is_of(here) && self.path == here.path && same_boot
    }
}

impl DirectoryIdentity {
    fn of(path: &Path) -> io::Result<DirectoryIdentity> {
        let found = statx(CWD, path, AtFlags::empty(), StatxFlags::INO | StatxFlags::BTIME)?;
        let has_birth = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
        let birth = has_birth.then_some((found.stx_btime.tv_sec, found.stx_btime.tv_nsec));
        Ok(DirectoryIdentity { device: (found.stx_dev_major, found.stx_dev_minor), inode: found.stx_ino, birth })
    }
}

/// Reads the record. A damaged record counts as none, so that nothing is ended because of it.
fn read(directory: &Path) -> io::Result<Option<Record>> {
    match json_file::read(&directory.join(RECORD_FILE)) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData || error.kind() == io::ErrorKind::UnexpectedEof => {
            Ok(None)
        }
        record => record,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn copy(from: &Path, to: &Path) {
        assert!(Command::new("cp").arg("-a").args([from, to]).status().expect("cp runs").success());
    }

    #[test]
    fn an_incarnation_stays_with_its_directory_and_not_with_a_copy() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let (original, twin) = (base.path().join("original"), base.path().join("twin"));
        std::fs::create_dir(&original).expect("a directory");
        assert!(owned_ids(&original).is_empty() && !is_recorded(&original));
        let first = ensure(&original, Validity::Boot).expect("made");
        assert!(!first.is_copy() && first.is_first());
        let again = ensure(&original, Validity::Boot).expect("found");
        assert!(again.id == first.id && !again.is_first());
        copy(&original, &twin);
        assert!(owned_ids(&twin).is_empty(), "a copy owns nothing");
        let second = ensure(&twin, Validity::Boot).expect("renewed");
        assert!(second.is_copy() && second.id != first.id);
        assert!(second.owned_ids().iter().all(|id| *id != *first.id));
        assert_eq!(owned_ids(&twin), second.owned_ids());
        assert_eq!(owned_ids(&original), first.owned_ids(), "the original keeps its own");
        // After the renewal the copy is an ordinary directory.
        assert!(!ensure(&twin, Validity::Boot).expect("found").is_copy());
    }

    #[test]
    fn a_moved_directory_gets_a_new_id_and_owns_the_former() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let (before, after) = (base.path().join("before"), base.path().join("after"));
        std::fs::create_dir(&before).expect("a directory");
        let first = ensure(&before, Validity::Boot).expect("made");
        std::fs::rename(&before, &after).expect("moved");
        assert!(was_moved(&after));
        let second = ensure(&after, Validity::Boot).expect("renewed");
        assert!(second.id != first.id && !second.is_copy() && !was_moved(&after));
        let prefix = TagPrefix::new(&crate::testing::node(1), &first.id);
        assert!(second.owned_ids().has_tag(&prefix.with("setup/task")));
        // A new directory at the same path is another directory.
        std::fs::create_dir(&before).expect("a directory");
        let other = ensure(&before, Validity::Boot).expect("made");
        assert!(!other.owned_ids().has_tag(&prefix.with("setup/task")));
    }

    #[test]
    fn a_reboot_renews_boot_records_and_keeps_lasting_ones() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let first = ensure(base.path(), Validity::Boot).expect("made");
        let mut record = read(base.path()).expect("read").expect("there");
        record.boot = "an earlier one".to_owned();
        record.directory.device = (99, 99);
        json_file::write(&base.path().join(RECORD_FILE), &record).expect("written");
        assert_eq!(ensure(base.path(), Validity::Lasting).expect("found").id, first.id);
        let second = ensure(base.path(), Validity::Boot).expect("renewed");
        assert!(second.id != first.id && !second.is_copy() && second.owned_ids().iter().any(|id| *id == *first.id));
    }

    #[test]
    fn a_renewed_directory_owns_nothing_from_before() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let first = ensure(base.path(), Validity::Lasting).expect("made");
        renew(base.path()).expect("renewed");
        let second = ensure(base.path(), Validity::Lasting).expect("found");
        assert!(second.owned_ids().iter().all(|id| *id != *first.id));
        std::fs::write(base.path().join(RECORD_FILE), "{").expect("damaged");
        assert!(owned_ids(base.path()).is_empty());
    }

    #[test]
    fn tags_without_an_incarnation_belong_to_no_directory() {
        let id = "0123456789abcdef0123456789abcdef";
        assert_eq!(incarnation_in(&format!("n/{id}/guid/1/rank-0")), Some(id));
        for old in ["n/guid-1/rank-0", "n/login/1", "n", ""] {
            assert_eq!(incarnation_in(old), None);
        }
    }
}
