//! Staging files: content that must appear atomically. It is written to `ACCOUNT/.drafts/CONTAINER/` and renamed into
//! place when complete, so readers see the old content or all of the new. Also holds uncommitted blocks of blobs until
//! a block list commits them.

use std::{
    fs::File,
    io::{IoSlice, Write},
    time::{Duration, SystemTime},
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, RenameFlags, openat, renameat_with, unlinkat},
    io::Errno,
};

use crate::{
    Kind, Properties, Share, ShareError, SharePath, Shares, Stat,
    content::copy::copy_range,
    tree::{
        beneath,
        dirs::{STAGING, check_names, ensure_dir, names_in, open_child, share_io},
        removal::{self, temporary_name},
    },
};

const BLOCKS_PREFIX: &str = "blocks-";
/// Retention of uncommitted blocks, as in Azure.
const BLOCK_RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

/// A file that is being written. Removed on drop unless it was published.
#[derive(Debug)]
pub struct StagedFile {
    dir: File,
    name: String,
    file: File,
    len: u64,
}

/// An uncommitted block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// In hexadecimal.
    pub id: String,
    pub len: u64,
}

impl Shares {
    /// Creates an empty staging file for a container.
    pub fn stage_file(&self, account: &str, container: &str) -> Result<StagedFile, ShareError> {
        let failed = |errno| share_io("create a staging file for", container, errno);
        let dir = self.ensure_staging(account, container).map_err(failed)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        loop {
            let name = temporary_name();
            match openat(&dir, name.as_str(), flags, Mode::from_raw_mode(0o666)) {
                Ok(file) => return Ok(StagedFile { dir, name, file: file.into(), len: 0 }),
                Err(Errno::EXIST) => {} // from an earlier process with the same pid
                Err(errno) => return Err(failed(errno)),
            }
        }
    }

    /// Stores a staging file as a block of the blob at `path`; replaces one with the same id.
    pub fn store_block(
        &self,
        (account, container): (&str, &str),
        path: &SharePath,
        id: &str,
        staged: StagedFile,
    ) -> Result<(), ShareError> {
        let failed = |errno| ShareError::at("store a block of", path, errno);
        let dir = self.ensure_staging(account, container).map_err(failed)?;
        let name = blocks_dir_name(path);
        ensure_dir(&dir, &name).map_err(failed)?;
        let blocks = open_child(&dir, &name).map_err(failed)?;
        renameat_with(&staged.dir, staged.name.as_str(), &blocks, id, RenameFlags::empty()).map_err(failed)
    }

    /// Uncommitted blocks of the blob at `path`, sorted by id.
    pub fn list_blocks(&self, account: &str, container: &str, path: &SharePath) -> Result<Vec<Block>, ShareError> {
        let failed = |errno| ShareError::at("list the blocks of", path, errno);
        let Some(blocks) = self.open_blocks(account, container, path).map_err(failed)? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for id in names_in(&blocks).map_err(failed)? {
            let Ok(file) = openat(&blocks, id.as_str(), READ_FLAGS, Mode::empty()) else { continue };
            let len = File::from(file).metadata().map_or(0, |metadata| metadata.len());
            found.push(Block { id, len });
        }
        found.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(found)
    }

    /// Opens an uncommitted block; `None` if there is none with that id.
    pub fn open_block(
        &self,
        (account, container): (&str, &str),
        path: &SharePath,
        id: &str,
    ) -> Result<Option<File>, ShareError> {
        let failed = |errno| ShareError::at("open a block of", path, errno);
        let Some(blocks) = self.open_blocks(account, container, path).map_err(failed)? else { return Ok(None) };
        match openat(&blocks, id, READ_FLAGS, Mode::empty()) {
            Ok(file) => Ok(Some(file.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Removes the uncommitted blocks of a blob that was committed or deleted.
    pub fn discard_blocks(&self, account: &str, container: &str, path: &SharePath) -> Result<(), ShareError> {
        let failed = |errno| ShareError::at("discard the blocks of", path, errno);
        let dir = match self.open_staging(account, container) {
            Err(Errno::NOENT) => return Ok(()),
            opened => opened.map_err(failed)?,
        };
        match removal::rename_and_remove(&dir, &blocks_dir_name(path)) {
            // Leftovers are removed at the next start.
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Removes all staging files and blocks of a deleted container.
    pub(crate) fn delete_staging(&self, account: &str, container: &str) {
        let account = open_child(&self.common.root, account);
        if let Ok(staging) = account.and_then(|account| open_child(account, STAGING)) {
            let _ = removal::rename_and_remove(&staging, container);
        }
    }

    fn open_blocks(&self, account: &str, container: &str, path: &SharePath) -> Result<Option<File>, Errno> {
        match self.open_staging(account, container).and_then(|dir| open_child(dir, &blocks_dir_name(path))) {
            Ok(blocks) => Ok(Some(blocks)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn open_staging(&self, account: &str, container: &str) -> Result<File, Errno> {
        check_names(account, container).map_err(|_| Errno::NOENT)?;
        let account = open_child(&self.common.root, account)?;
        open_child(open_child(account, STAGING)?, container)
    }

    fn ensure_staging(&self, account: &str, container: &str) -> Result<File, Errno> {
        check_names(account, container).map_err(|_| Errno::NOENT)?;
        let account = open_child(&self.common.root, account)?;
        ensure_dir(&account, STAGING)?;
        let staging = open_child(account, STAGING)?;
        ensure_dir(&staging, container)?;
        open_child(staging, container)
    }
}

const READ_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// Removes uncommitted blocks that are a week old.
pub(crate) fn remove_stale_blocks(container_dir: &File, now: SystemTime) -> Result<(), Errno> {
    for name in names_in(container_dir)?.iter().filter(|name| name.starts_with(BLOCKS_PREFIX)) {
        let Ok(blocks) = open_child(container_dir, name) else { continue };
        let modified = blocks.metadata().and_then(|metadata| metadata.modified()).unwrap_or(now);
        if now.duration_since(modified).is_ok_and(|age| age > BLOCK_RETENTION) {
            let _ = removal::rename_and_remove(container_dir, name);
        }
    }
    Ok(())
}

/// Name of the directory with the blocks of one blob. Two paths with the same name would share blocks, so it holds the
/// whole digest.
fn blocks_dir_name(path: &SharePath) -> String {
    // 128-bit FNV. Not cryptographic: paths are no secret, and a caller that can write one blob of a container can
    // write the others too.
    let step = |sum: u128, byte: u8| (sum ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013B);
    let sum = path.as_str().bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, step);
    format!("{BLOCKS_PREFIX}{sum:032x}")
}

impl StagedFile {
    pub fn append(&mut self, buffers: &mut [IoSlice<'_>]) -> Result<(), ShareError> {
        let failed =
            |source| ShareError::at("write to", &SharePath::ROOT, Errno::from_io_error(&source).unwrap_or(Errno::IO));
        let mut buffers = buffers;
        IoSlice::advance_slices(&mut buffers, 0);
        while !buffers.is_empty() {
            let written = match (&self.file).write_vectored(buffers) {
                Ok(0) => return Err(failed(std::io::ErrorKind::WriteZero.into())),
                Ok(written) => written,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(failed(error)),
            };
            self.len += written as u64;
            IoSlice::advance_slices(&mut buffers, written);
        }
        Ok(())
    }

    /// Appends `len` bytes of a file from `start` on; `false` if it has fewer.
    pub fn append_from(&mut self, file: &File, start: u64, len: u64) -> Result<bool, ShareError> {
        let copied = copy_range(file, start, &self.file, self.len, len)
            .map_err(|errno| ShareError::at("copy to", &SharePath::ROOT, errno))?;
        self.len += copied;
        Ok(copied == len)
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Renames the file into place with its properties, and creates missing parent directories. With `replace` an
    /// existing file is replaced; a directory only if it contains no files.
    pub fn publish(
        self,
        share: &Share,
        path: &SharePath,
        replace: bool,
        properties: &Properties,
    ) -> Result<Stat, ShareError> {
        share.write_properties(&self.file, path, properties)?;
        if let Some((parent, _)) = path.split() {
            share.make_dirs(&parent).map_err(|error| as_path_conflict(error, path))?;
        }
        let (parent, name) = beneath::open_parent(&share.root, path)?;
        let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        let rename = || renameat_with(&self.dir, self.name.as_str(), &parent, name, flags);
        let renamed = match rename() {
            Err(Errno::ISDIR | Errno::EXIST | Errno::NOTEMPTY) if share.lstat(path).is_ok_and(is_directory) => {
                share.remove_empty_tree(path).map_err(|_| ShareError::WrongKind(path.clone()))?;
                rename()
            }
            other => other,
        };
        renamed.map_err(|errno| ShareError::at("write", path, errno))?;
        Stat::from_file(&self.file, path)
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        // Fails if it was published.
        let _ = unlinkat(&self.dir, self.name.as_str(), AtFlags::empty());
    }
}

impl Share {
    /// Removes a directory that contains only directories; a link is not one.
    fn remove_empty_tree(&self, path: &SharePath) -> Result<(), ShareError> {
        let directory = beneath::open_dir(&self.root, path)?;
        for name in names_in(&directory).map_err(|errno| ShareError::at("list", path, errno))? {
            let child = path.child(&name)?;
            if !self.lstat(&child).is_ok_and(is_directory) {
                return Err(ShareError::WrongKind(child));
            }
            self.remove_empty_tree(&child)?;
        }
        self.delete_dir(path)
    }
}

fn is_directory(stat: Stat) -> bool {
    stat.kind == Kind::Directory
}

/// A file is in the place of a directory.
fn as_path_conflict(error: ShareError, path: &SharePath) -> ShareError {
    match error {
        ShareError::NotFound(_) | ShareError::ParentNotFound(_) | ShareError::WrongKind(_) => {
            ShareError::WrongKind(path.clone())
        }
        other => other,
    }
}
