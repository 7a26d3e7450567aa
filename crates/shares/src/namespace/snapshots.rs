//! Snapshots of shares: read-only copies in `ROOT/{account}/.snapshots/{share}/`, named by their time. With reflinks a
//! snapshot takes no space. Not atomic: a file that is being written is copied as it is at that moment.

use std::{
    fs::{File, Permissions},
    os::unix::fs::PermissionsExt,
};

use corro_model::Timestamp;
use rustix::{
    fs::{OFlags, RenameFlags, readlinkat, renameat_with, symlinkat},
    io::Errno,
};

use crate::{
    Properties, Removal, Share, ShareError, SharePath, Shares, Stat,
    content::copy,
    tree::{
        beneath,
        dirs::{SNAPSHOTS, check_names, ensure_dir, names_in, open_child, share_io},
        removal,
        walk::WalkEntry,
    },
};

/// Name of a snapshot, the time of its creation: `2018-06-07T22:21:55.0000000Z`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotId(String);

impl SnapshotId {
    /// `None` unless the text has Azure's format.
    pub fn parse(text: &str) -> Option<Self> {
        let shape = |(idx, byte): (usize, u8)| match idx {
            4 | 7 => byte == b'-',
            10 => byte == b'T',
            13 | 16 => byte == b':',
            19 => byte == b'.',
            27 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        };
        (text.len() == 28 && text.bytes().enumerate().all(shape)).then(|| SnapshotId(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The `tick`th snapshot of a second.
    fn at(seconds: i64, tick: u32) -> Self {
        let whole = Timestamp::from_millis(seconds.saturating_mul(1000)).whole_seconds();
        SnapshotId(format!("{}.{tick:07}Z", whole.trim_end_matches('Z')))
    }
}

impl Shares {
    /// Copies the share. `properties` are those of the snapshot itself; `now` is in Unix seconds.
    pub fn create_snapshot(
        &self,
        account: &str,
        share: &str,
        properties: &Properties,
        now: i64,
    ) -> Result<SnapshotId, ShareError> {
        let source = self.share(account, share)?;
        let failed = |errno| share_io("create the snapshot of", share, errno);
        let dir = self.ensure_snapshots(account, share).map_err(failed)?;
        // Under a name that is removed at the next start if this process dies before the copy is complete.
        let temporary = removal::temporary_name();
        ensure_dir(&dir, &temporary).map_err(failed)?;
        let root = open_child(&dir, &temporary).map_err(failed)?;
        let copied = copy_tree(&source, &Share { root, common: self.common.clone() }, properties);
        let named = copied.and_then(|()| {
            for tick in 0.. {
                let id = SnapshotId::at(now, tick);
                match renameat_with(&dir, &temporary, &dir, id.as_str(), RenameFlags::NOREPLACE) {
                    Ok(()) => return Ok(id),
                    Err(Errno::EXIST) => {}
                    Err(errno) => return Err(failed(errno)),
                }
            }
            Err(failed(Errno::EXIST))
        });
        if named.is_err() {
            let _ = removal::rename_and_remove(&dir, &temporary);
        }
        named
    }

    /// The snapshot, for reading.
    pub fn snapshot(&self, account: &str, share: &str, id: &SnapshotId) -> Result<Share, ShareError> {
        check_names(account, share)?;
        match self.open_snapshots(account, share).and_then(|dir| open_child(dir, id.as_str())) {
            Ok(root) => Ok(Share { root, common: self.common.clone() }),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Err(not_found(id)),
            Err(errno) => Err(share_io("open a snapshot of", share, errno)),
        }
    }

    /// Oldest first.
    pub fn list_snapshots(&self, account: &str, share: &str) -> Result<Vec<SnapshotId>, ShareError> {
        check_names(account, share)?;
        let failed = |errno| share_io("list the snapshots of", share, errno);
        let dir = match self.open_snapshots(account, share) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            opened => opened.map_err(failed)?,
        };
        let names = names_in(&dir).map_err(failed)?;
        let mut ids: Vec<_> = names.iter().filter_map(|name| SnapshotId::parse(name)).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    pub fn delete_snapshot(&self, account: &str, share: &str, id: &SnapshotId) -> Result<Removal, ShareError> {
        check_names(account, share)?;
        let dir = self.open_snapshots(account, share);
        match dir.and_then(|dir| removal::rename_and_remove(&dir, id.as_str())) {
            Ok(left) => Ok(Removal::new(share, left)),
            Err(Errno::NOENT) => Err(not_found(id)),
            Err(errno) => Err(share_io("delete a snapshot of", share, errno)),
        }
    }

    /// Deletes all snapshots of a share; none is no error.
    pub fn delete_snapshots(&self, account: &str, share: &str) -> Result<Removal, ShareError> {
        check_names(account, share)?;
        let snapshots = open_child(&self.common.root, account).and_then(|account| open_child(account, SNAPSHOTS));
        match snapshots.and_then(|snapshots| removal::rename_and_remove(&snapshots, share)) {
            Ok(left) => Ok(Removal::new(share, left)),
            Err(Errno::NOENT) => Ok(Removal { leftover: None }),
            Err(errno) => Err(share_io("delete the snapshots of", share, errno)),
        }
    }

    fn open_snapshots(&self, account: &str, share: &str) -> Result<File, Errno> {
        open_child(open_child(open_child(&self.common.root, account)?, SNAPSHOTS)?, share)
    }

    fn ensure_snapshots(&self, account: &str, share: &str) -> Result<File, Errno> {
        let account = open_child(&self.common.root, account)?;
        ensure_dir(&account, SNAPSHOTS)?;
        let snapshots = open_child(account, SNAPSHOTS)?;
        ensure_dir(&snapshots, share)?;
        open_child(snapshots, share)
    }
}

/// Copies all entries with properties and times, and makes them read-only.
fn copy_tree(from: &Share, to: &Share, of_root: &Properties) -> Result<(), ShareError> {
    let mut directories = vec![(SharePath::ROOT, from.stat(&SharePath::ROOT)?)];
    let copied = from.walk(|path, found| {
        let copied = match found {
            WalkEntry::Directory(stat) => {
                directories.push((path.clone(), stat.clone()));
                to.create_dir(path).map(drop)
            }
            WalkEntry::File(stat) => copy_entry(from, to, path, stat),
            WalkEntry::Link => copy_link(from, to, path),
        };
        match copied {
            // Deleted since it was listed.
            Err(ShareError::NotFound(missing)) if missing == *path => Ok(()),
            other => other,
        }
    });
    copied?;
    // Last, because each new entry changes the mtime of its directory; innermost first, because a read-only directory
    // accepts no more changes below it.
    for (path, stat) in directories.iter().rev() {
        let target = beneath::open_dir(&to.root, path)?;
        match path.is_root() {
            true => to.write_properties(&target, path, of_root)?,
            // Deleted meanwhile: the copy stays.
            false => to.write_properties(
                &target,
                path,
                &from.describe(path).map(|(_, properties)| properties).unwrap_or_default(),
            )?,
        }
        finish(&target, path, stat, 0o555)?;
    }
    Ok(())
}

fn copy_entry(from: &Share, to: &Share, path: &SharePath, stat: &Stat) -> Result<(), ShareError> {
    let (source, _) = from.open_file(path)?;
    let (target, _) = beneath::open_file(&to.root, path, OFlags::RDWR | OFlags::CREATE)?;
    copy::copy_bytes(&source, &target, stat.len, &|| true).map_err(|errno| ShareError::at("copy", path, errno))?;
    to.write_properties(&target, path, &from.read_properties(&source))?;
    finish(&target, path, stat, 0o444)
}

fn copy_link(from: &Share, to: &Share, path: &SharePath) -> Result<(), ShareError> {
    let (source, name) = beneath::open_parent(&from.root, path)?;
    let failed = |errno| ShareError::at("copy the link", path, errno);
    let link_target = readlinkat(&source, name, Vec::new()).map_err(failed)?;
    let (target, name) = beneath::open_parent(&to.root, path)?;
    symlinkat(link_target.as_c_str(), &target, name).map_err(failed)
}

fn finish(target: &File, path: &SharePath, stat: &Stat, mode: u32) -> Result<(), ShareError> {
    let done = target.set_modified(stat.modified).and_then(|()| target.set_permissions(Permissions::from_mode(mode)));
    done.map_err(|source| ShareError::Io { attempt: "copy the times of", path: path.clone(), source })
}

fn not_found(id: &SnapshotId) -> ShareError {
    ShareError::SnapshotNotFound(id.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_ids_are_times_in_one_format() {
        assert_eq!(SnapshotId::at(1_528_410_115, 3).as_str(), "2018-06-07T22:21:55.0000003Z");
        assert!(SnapshotId::parse("2018-06-07T22:21:55.0000003Z").is_some());
        for text in ["", "..", "2018-06-07T22:21:55Z", "2018-06-07T22:21:55.000000/Z", "2018/06-07T22:21:55.0000003Z"] {
            assert_eq!(SnapshotId::parse(text), None, "{text}");
        }
    }
}
