//! Storage of properties: in an extended attribute of the file, so that they move and disappear with it, whatever
//! program moves or deletes it. If the file system has no extended attributes, or no space in them, in a sidecar file
//! beside the accounts, named by device, inode and birth time, so that a later file at the same path does not inherit
//! them.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::{fd::AsFd, unix::fs::MetadataExt},
    sync::atomic::Ordering,
    time::{SystemTime, UNIX_EPOCH},
};

use corro_base::atomic_file::AtomicFile;
use rustix::{
    fs::{
        AtFlags, Mode, OFlags, ResolveFlags, XattrFlags, fgetxattr, fremovexattr, fsetxattr, mkdirat, openat2, statat,
        unlinkat,
    },
    io::Errno,
};

use crate::{MAX_PROPERTIES, Properties, PropertyStorage, shared_state::common::Common, tree::dirs::open_child};

const ATTRIBUTE: &str = "user.corro.properties";
/// Beside the accounts, which cannot have a dot in their name.
const SIDECARS: &str = ".properties";
const TYPICAL_BYTES: usize = 512;

/// Properties of an open file or directory; empty if they cannot be read.
pub(crate) fn read(common: &Common, file: &File) -> Properties {
    read_attribute(file, common.property_storage)
        .or_else(|| read_sidecar(&common.root, file).ok())
        .map(|bytes| Properties::from_bytes(&bytes))
        .unwrap_or_default()
}

/// Like [`read`], without waiting for a disk; `None` if there may be a sidecar file.
pub(crate) fn read_nonblocking(common: &Common, file: &File) -> Option<Properties> {
    match read_attribute(file, common.property_storage) {
        Some(bytes) => Some(Properties::from_bytes(&bytes)),
        None => (!common.has_sidecars.load(Ordering::Acquire)).then(Properties::default),
    }
}

/// Whether a root may have sidecar files.
pub(crate) fn has_sidecars(root: &File) -> bool {
    !matches!(statat(root, SIDECARS, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
}

fn read_attribute(file: &File, storage: PropertyStorage) -> Option<Vec<u8>> {
    if storage == PropertyStorage::SidecarsOnly {
        return None;
    }
    // Most are small, and large buffers are costly.
    let mut bytes = Vec::with_capacity(TYPICAL_BYTES);
    match fgetxattr(file, ATTRIBUTE, rustix::buffer::spare_capacity(&mut bytes)) {
        Err(Errno::RANGE) => {
            bytes = Vec::with_capacity(MAX_PROPERTIES * 2);
            fgetxattr(file, ATTRIBUTE, rustix::buffer::spare_capacity(&mut bytes)).ok()?;
        }
        read => {
            read.ok()?;
        }
    }
    Some(bytes)
}

/// Replaces the properties of an open file or directory.
pub(crate) fn write(common: &Common, file: &File, properties: &Properties) -> io::Result<()> {
    let root = &common.root;
    let mut in_attribute = false;
    if common.property_storage == PropertyStorage::ExtendedAttributes {
        in_attribute = match properties.is_empty() {
            true => {
                ignore_absent(fremovexattr(file, ATTRIBUTE))?;
                true
            }
            false => match fsetxattr(file, ATTRIBUTE, &properties.to_bytes(), XattrFlags::empty()) {
                Ok(()) => true,
                // No extended attributes, or no space for this one.
                Err(Errno::OPNOTSUPP | Errno::TOOBIG | Errno::NOSPC | Errno::RANGE) => {
                    ignore_absent(fremovexattr(file, ATTRIBUTE))?;
                    false
                }
                Err(errno) => return Err(errno.into()),
            },
        };
    }
    let name = sidecar_name(file)?;
    match (in_attribute || properties.is_empty(), open_child(root, SIDECARS)) {
        (true, Ok(sidecars)) => ignore_absent(unlinkat(&sidecars, &name, AtFlags::empty())),
        (true, Err(_)) => Ok(()),
        (false, _) => {
            common.has_sidecars.store(true, Ordering::Release);
            write_sidecar(root, &name, &properties.to_bytes())
        }
    }
}

fn read_sidecar(root: &File, file: &File) -> io::Result<Vec<u8>> {
    let sidecars = open_child(root, SIDECARS)?;
    let file = open_in(&sidecars, &sidecar_name(file)?, OFlags::RDONLY)?;
    let mut bytes = Vec::new();
    file.take(MAX_PROPERTIES as u64 * 2).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn write_sidecar(root: &File, name: &str, bytes: &[u8]) -> io::Result<()> {
    match mkdirat(root, SIDECARS, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let sidecars = open_child(root, SIDECARS)?;
    // Two concurrent writers: the last one wins, as with an attribute.
    let file = AtomicFile::create_in(sidecars.into(), name, 0o600)?;
    file.file().write_all(bytes)?;
    file.commit_unsynced()
}

fn open_in(directory: &File, name: &str, flags: OFlags) -> Result<File, Errno> {
    let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o600) } else { Mode::empty() };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(directory.as_fd(), name, flags | OFlags::CLOEXEC, mode, resolve).map(File::from)
}

fn sidecar_name(file: &File) -> io::Result<String> {
    let metadata = file.metadata()?;
    let born = metadata.created().unwrap_or(SystemTime::UNIX_EPOCH);
    let born = born.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    Ok(format!("{:x}-{:x}-{born:x}", metadata.dev(), metadata.ino()))
}

fn ignore_absent(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
