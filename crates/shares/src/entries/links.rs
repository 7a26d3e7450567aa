//! Symbolic links of a share. A link is an entry of its own: it is listed, renamed and deleted as a link, and walks
//! never descend into it. A named path is resolved through links beneath the share's root, and a read of a link to a
//! regular file of the share returns that file. A read of any other link (to a directory, dangling, out of the share)
//! returns its target path, so that every entry listed as a file can be read with the listed length.
//!
//! Links have no properties: no metadata, no lease, no attributes.

use std::{
    fs::File,
    os::{
        fd::AsFd,
        unix::{ffi::OsStrExt, fs::FileExt},
    },
    time::{Duration, SystemTime},
};

use rustix::{
    fs::{AtFlags, MemfdFlags, Timespec, Timestamps, UTIME_OMIT, memfd_create, readlinkat, symlinkat, utimensat},
    io::Errno,
};

use crate::{Kind, Properties, Share, ShareError, SharePath, Stat, tree::beneath};

/// The kernel's limit (`PATH_MAX` without the terminating NUL).
pub const MAX_LINK_TEXT: usize = 4095;

/// A symbolic link in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Metadata of the link itself: kind [`Kind::Link`], length of the target path.
    pub stat: Stat,
    /// Target path, not resolved. Bytes that are not UTF-8 are replaced.
    pub text: String,
}

impl Share {
    /// Attributes of the entry itself: a link in the last component is not followed.
    pub fn lstat(&self, path: &SharePath) -> Result<Stat, ShareError> {
        let entry = beneath::open_entry(&self.root, path).map_err(|errno| ShareError::at("find", path, errno))?;
        Stat::from_file(&entry, path)
    }

    /// Target path of a link, unchanged; fails for any other entry.
    pub fn read_link(&self, path: &SharePath) -> Result<Vec<u8>, ShareError> {
        Ok(self.read_link_at(path)?.0)
    }

    /// Creates a link with this target path, which may be anything: whether a path through it is allowed is decided
    /// when that path is resolved.
    pub fn create_link(&self, path: &SharePath, text: &[u8]) -> Result<Stat, ShareError> {
        if text.is_empty() || text.len() > MAX_LINK_TEXT || text.contains(&0) {
            return Err(ShareError::LinkText(path.clone()));
        }
        let (parent, name) = beneath::open_parent(&self.root, path).map_err(|error| error.for_creation(path))?;
        symlinkat(std::ffi::OsStr::from_bytes(text), &parent, name)
            .map_err(|errno| ShareError::at("create the link", path, errno).for_creation(path))?;
        self.lstat(path)
    }

    /// Opens the content of an entry: a file, the file of the share that a link leads to, or the target path of another
    /// link (in a memfd; its kind is [`Kind::Link`]).
    pub fn open_content(&self, path: &SharePath) -> Result<(File, Stat), ShareError> {
        match self.open_file(path) {
            Err(error) if error.may_be_link() => {
                let Ok((text, stat)) = self.read_link_at(path) else { return Err(error) };
                let file = memfd_with(&text).map_err(|errno| ShareError::at("read the link", path, errno))?;
                Ok((file, stat))
            }
            opened => opened,
        }
    }

    /// Attributes and properties of the content; see [`Share::open_content`].
    pub fn describe_content(&self, path: &SharePath) -> Result<(Stat, Properties), ShareError> {
        let (file, stat) = self.open_content(path)?;
        let properties = match stat.kind {
            Kind::Link => Properties::default(),
            Kind::File | Kind::Directory => self.read_properties(&file),
        };
        Ok((stat, properties))
    }

    /// Sets the mtime; for a link that of the link itself.
    pub fn set_entry_modified(&self, path: &SharePath, modified: SystemTime) -> Result<Stat, ShareError> {
        if self.lstat(path)?.kind != Kind::Link {
            return self.set_modified(path, modified);
        }
        let since = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: since.as_secs() as i64, tv_nsec: i64::from(since.subsec_nanos()) },
        };
        let (parent, name) = beneath::open_parent(&self.root, path)?;
        utimensat(&parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| ShareError::at("set the time of", path, errno))?;
        self.lstat(path)
    }

    /// An entry for a listing: attributes of its content, and the link if it is one. `None` if it was just removed, and
    /// for FIFOs, sockets and devices.
    pub(crate) fn list_entry(&self, path: &SharePath) -> Option<(Stat, Option<Link>)> {
        let stat = self.lstat(path).ok()?;
        if stat.kind != Kind::Link {
            return Some((stat, None));
        }
        let text = String::from_utf8_lossy(&self.read_link(path).ok()?).into_owned();
        let content = self.stat_file(path).unwrap_or_else(|_| stat.clone());
        Some((content, Some(Link { stat, text })))
    }

    fn read_link_at(&self, path: &SharePath) -> Result<(Vec<u8>, Stat), ShareError> {
        let failed = |errno| ShareError::at("read the link", path, errno);
        let entry = beneath::open_entry(&self.root, path).map_err(failed)?;
        let stat = Stat::from_file(&entry, path)?;
        if stat.kind != Kind::Link {
            return Err(ShareError::WrongKind(path.clone()));
        }
        // An empty path reads the link that the handle refers to.
        let text = readlinkat(entry.as_fd(), "", Vec::new()).map_err(failed)?;
        Ok((text.into_bytes(), stat))
    }
}

impl ShareError {
    /// Whether an open that failed with this error may have met a link that does not lead to a file of the share.
    fn may_be_link(&self) -> bool {
        matches!(self, Self::NotFound(_) | Self::LeavesShare(_) | Self::WrongKind(_))
    }
}

fn memfd_with(text: &[u8]) -> Result<File, Errno> {
    let file = File::from(memfd_create("corro-link", MemfdFlags::CLOEXEC)?);
    file.write_all_at(text, 0).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(file)
}
