//! Files of a share: create, write, resize, data ranges, deletion. Readers use the handle from [`Share::open_file`] and
//! `pread`, so a reader never blocks a writer.

use std::{fs::File, io::IoSlice, time::SystemTime};

use rustix::{
    fs::{AtFlags, FallocateFlags, Mode, OFlags, SeekFrom, fallocate, ftruncate, seek, unlinkat},
    io::{Errno, pwritev},
};

use crate::{Kind, Properties, Share, ShareError, SharePath, Stat, tree::beneath};

/// After this many ranges the rest of the file counts as data: a list of ranges may include too much but must be
/// bounded.
const MAX_RANGES: usize = 100_000;
/// `IOV_MAX` of the kernel.
const MAX_SLICES: usize = 1024;
/// Bytes per write. The page cache keeps the data of one write in one large folio, and ext4 scans the whole folio on
/// each small write into it later: after writes of 4 MiB a write of 4 KiB takes six times as long as after these, which
/// are not slower themselves.
const WRITE_CHUNK_BYTES: usize = 128 << 10;

impl Share {
    /// Creates a sparse file of `len` zero bytes, or replaces an existing file's content.
    pub fn create_file(&self, path: &SharePath, len: u64) -> Result<Stat, ShareError> {
        self.create_file_with(path, len, &Properties::default())
    }

    /// Like [`Share::create_file`], with these properties.
    pub fn create_file_with(&self, path: &SharePath, len: u64, properties: &Properties) -> Result<Stat, ShareError> {
        self.create_file_as(path, len, true, |_, _| properties.clone())
    }

    /// Like [`Share::create_file`]; fails if the file exists unless `replace`. `describe` gets the old properties and
    /// the new attributes, and returns the new properties.
    pub fn create_file_as(
        &self,
        path: &SharePath,
        len: u64,
        replace: bool,
        describe: impl FnOnce(&Properties, &Stat) -> Properties,
    ) -> Result<Stat, ShareError> {
        let flags = OFlags::RDWR | OFlags::CREATE;
        let flags = if replace { flags } else { flags | OFlags::EXCL };
        let (file, old) = beneath::open_file(&self.root, path, flags).map_err(|error| error.for_creation(path))?;
        if !replace && len == 0 {
            // A new, empty file has no content to truncate and no properties to remove.
            let properties = describe(&Properties::default(), &old);
            if !properties.is_empty() {
                let _lock = self.common.inode_locks.lock(&file);
                self.write_properties(&file, path, &properties)?;
            }
            return Ok(old);
        }
        let _lock = self.common.inode_locks.lock(&file);
        if old.len > 0 {
            set_len(&file, path, 0)?;
        }
        set_len(&file, path, len)?;
        let stat = Stat::from_file(&file, path)?;
        self.write_properties(&file, path, &describe(&self.read_properties(&file), &stat))?;
        Ok(stat)
    }

    /// Writes within the file's length; never extends the file.
    pub fn write_range(&self, path: &SharePath, offset: u64, bytes: &[u8]) -> Result<Stat, ShareError> {
        self.write_range_vectored(path, offset, &mut [IoSlice::new(bytes)])
    }

    /// Like [`Share::write_range`], from several buffers, which are consumed.
    pub fn write_range_vectored(
        &self,
        path: &SharePath,
        offset: u64,
        buffers: &mut [IoSlice<'_>],
    ) -> Result<Stat, ShareError> {
        let (file, stat) = beneath::open_file(&self.root, path, OFlags::WRONLY)?;
        let len = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        check_within(path, offset, len, stat.len)?;
        write_all_at(&file, offset, buffers).map_err(|errno| ShareError::at("write to", path, errno))?;
        Stat::from_file(&file, path)
    }

    /// Like [`Share::write_range_vectored`], but extends the file if needed.
    pub fn write_growing(
        &self,
        path: &SharePath,
        offset: u64,
        buffers: &mut [IoSlice<'_>],
    ) -> Result<Stat, ShareError> {
        let (file, _) = beneath::open_file(&self.root, path, OFlags::WRONLY)?;
        write_all_at(&file, offset, buffers).map_err(|errno| ShareError::at("write to", path, errno))?;
        Stat::from_file(&file, path)
    }

    /// Like [`Share::write_growing`], for several ranges.
    pub fn write_ranges(&self, path: &SharePath, ranges: &mut [(u64, Vec<IoSlice<'_>>)]) -> Result<Stat, ShareError> {
        let (file, _) = beneath::open_file(&self.root, path, OFlags::WRONLY)?;
        for (offset, buffers) in ranges {
            write_all_at(&file, *offset, buffers).map_err(|errno| ShareError::at("write to", path, errno))?;
        }
        Stat::from_file(&file, path)
    }

    /// Returns when the content of a file, or the entries of a directory, are on disk (`fsync`).
    pub fn sync(&self, path: &SharePath) -> Result<Stat, ShareError> {
        let (handle, stat) = self.open_for_sync(path)?;
        handle.sync_all().map_err(|source| ShareError::Io { attempt: "flush", path: path.clone(), source })?;
        if let (Kind::File, Some((parent, _))) = (stat.kind, path.split()) {
            // The directory entry must survive a crash too.
            let _ = beneath::open_dir(&self.root, &parent).and_then(|parent| {
                parent.sync_all().map_err(|source| ShareError::Io { attempt: "flush", path: path.clone(), source })
            });
        }
        Ok(stat)
    }

    /// Sets the mtime.
    pub fn set_modified(&self, path: &SharePath, modified: SystemTime) -> Result<Stat, ShareError> {
        let (handle, _) = self.open_for_sync(path)?;
        handle.set_modified(modified).map_err(|source| ShareError::Io {
            attempt: "set the time of",
            path: path.clone(),
            source,
        })?;
        Stat::from_file(&handle, path)
    }

    fn open_for_sync(&self, path: &SharePath) -> Result<(File, Stat), ShareError> {
        let handle = beneath::open(&self.root, path, OFlags::RDONLY, Mode::empty())
            .map_err(|errno| ShareError::at("open", path, errno))?;
        let stat = Stat::from_file(&handle, path)?;
        Ok((handle, stat))
    }

    /// Zeroes bytes within the file's length and frees their space (`FALLOC_FL_PUNCH_HOLE`).
    pub fn clear_range(&self, path: &SharePath, offset: u64, len: u64) -> Result<Stat, ShareError> {
        let (file, stat) = beneath::open_file(&self.root, path, OFlags::RDWR)?;
        check_within(path, offset, len, stat.len)?;
        if len > 0 {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            match fallocate(&file, hole, offset, len) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(&file, offset, len),
                other => other,
            }
            .map_err(|errno| ShareError::at("clear a range of", path, errno))?;
        }
        Stat::from_file(&file, path)
    }

    /// A handle for reading by offset, and the attributes at the time of opening.
    pub fn open_file(&self, path: &SharePath) -> Result<(File, Stat), ShareError> {
        beneath::open_file(&self.root, path, OFlags::RDONLY)
    }

    pub fn resize(&self, path: &SharePath, len: u64) -> Result<Stat, ShareError> {
        let (file, _) = beneath::open_file(&self.root, path, OFlags::RDWR)?;
        set_len(&file, path, len)?;
        Stat::from_file(&file, path)
    }

    /// Ranges that have data, as first and last byte; the rest reads as zero. For a link, those of its content (see
    /// [`Share::open_content`]).
    pub fn data_ranges(&self, path: &SharePath) -> Result<(Vec<(u64, u64)>, Stat), ShareError> {
        let (file, stat) = self.open_content(path)?;
        let mut ranges = Vec::new();
        let mut position = 0;
        while position < stat.len {
            let start = match seek(&file, SeekFrom::Data(position)) {
                Ok(start) if start < stat.len => start,
                Ok(_) | Err(Errno::NXIO) => break,
                Err(errno) => return Err(ShareError::at("find the data of", path, errno)),
            };
            let end = match seek(&file, SeekFrom::Hole(start)) {
                _ if ranges.len() + 1 == MAX_RANGES => stat.len,
                Ok(end) => end.min(stat.len),
                Err(Errno::NXIO) => break, // truncated meanwhile
                Err(errno) => return Err(ShareError::at("find the data of", path, errno)),
            };
            ranges.push((start, end - 1));
            position = end;
        }
        Ok((ranges, stat))
    }

    /// Removes a file; for a symbolic link the link, not its target.
    pub fn delete_file(&self, path: &SharePath) -> Result<(), ShareError> {
        let (parent, name) = beneath::open_parent(&self.root, path)?;
        unlinkat(&parent, name, AtFlags::empty()).map_err(|errno| ShareError::at("delete the file", path, errno))
    }
}

fn check_within(path: &SharePath, start: u64, len: u64, file_len: u64) -> Result<(), ShareError> {
    match start.checked_add(len) {
        Some(end) if end <= file_len => Ok(()),
        end => Err(ShareError::OutOfRange {
            path: path.clone(),
            start,
            end: end.unwrap_or(u64::MAX).saturating_sub(1),
            len: file_len,
        }),
    }
}

fn set_len(file: &File, path: &SharePath, len: u64) -> Result<(), ShareError> {
    ftruncate(file, len).map_err(|errno| ShareError::at("set the length of", path, errno))
}

fn write_all_at(file: &File, mut offset: u64, mut buffers: &mut [IoSlice<'_>]) -> Result<(), Errno> {
    IoSlice::advance_slices(&mut buffers, 0); // skips empty buffers
    while !buffers.is_empty() {
        let written = pwritev(
            file,
            &first_bytes(buffers, WRITE_CHUNK_BYTES - (offset % WRITE_CHUNK_BYTES as u64) as usize),
            offset,
        );
        match written {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                offset += written as u64;
                IoSlice::advance_slices(&mut buffers, written);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The first `bytes` bytes of the buffers.
fn first_bytes<'a>(buffers: &'a [IoSlice<'_>], mut bytes: usize) -> Vec<IoSlice<'a>> {
    let mut slices = Vec::with_capacity(buffers.len().min(8));
    for buffer in buffers.iter().take(MAX_SLICES) {
        let part = &buffer[..buffer.len().min(bytes)];
        slices.push(IoSlice::new(part));
        bytes -= part.len();
        if bytes == 0 {
            break;
        }
    }
    slices
}

fn write_zeros(file: &File, mut offset: u64, mut len: u64) -> Result<(), Errno> {
    static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
    while len > 0 {
        let chunk = len.min(ZEROS.len() as u64);
        write_all_at(file, offset, &mut [IoSlice::new(&ZEROS[..chunk as usize])])?;
        offset += chunk;
        len -= chunk;
    }
    Ok(())
}
