//! Properties of things in a share: read and set through the same door as their content. Setting
//! them is a modification like any other: time and ETag move on. Noting one is not.

use std::{fs::File, time::SystemTime};

use rustix::fs::{Mode, OFlags};

use crate::{Properties, Share, ShareError, SharePath, Stat, beneath, property_store};

impl Share {
    /// What is known of a file or directory, and what was kept with it.
    pub fn describe(&self, path: &SharePath) -> Result<(Stat, Properties), ShareError> {
        let handle = self.open_any(path)?;
        Ok((Stat::from_file(&handle, path)?, self.read_properties(&handle)))
    }

    /// What was kept with a file or directory opened from this share.
    pub fn read_properties(&self, handle: &File) -> Properties {
        property_store::read(&self.common, handle)
    }

    /// Changes what is kept with a file or directory.
    pub fn change_properties(
        &self,
        path: &SharePath,
        change: impl FnOnce(&mut Properties),
    ) -> Result<Stat, ShareError> {
        self.change_properties_with(path, |kept, _, _| change(kept))
    }

    /// As [`Share::change_properties`]. The change is told what the handle was before, and the time of modification that
    /// it will have.
    pub fn change_properties_with(
        &self,
        path: &SharePath,
        change: impl FnOnce(&mut Properties, &Stat, SystemTime),
    ) -> Result<Stat, ShareError> {
        let handle = self.open_any(path)?;
        let _lock = self.common.inode_locks.lock(&handle);
        let (mut properties, at) = (self.read_properties(&handle), SystemTime::now());
        change(&mut properties, &Stat::from_file(&handle, path)?, at);
        self.write_properties(&handle, path, &properties)?;
        // For a handle that is someone else's and only writable to us this is not allowed; then its
        // ETag stays, which is the lesser harm.
        let _ = handle.set_modified(at);
        Stat::from_file(&handle, path)
    }

    /// Changes what is kept, if `change` agrees; times and ETag stay.
    pub fn change_properties_keep_mtime<T, E: From<ShareError>>(
        &self,
        path: &SharePath,
        change: impl FnOnce(&mut Properties, &Stat) -> Result<T, E>,
    ) -> Result<(Stat, T), E> {
        let handle = self.open_any(path)?;
        let _lock = self.common.inode_locks.lock(&handle);
        let (mut properties, stat) = (self.read_properties(&handle), Stat::from_file(&handle, path)?);
        let changed = change(&mut properties, &stat)?;
        self.write_properties(&handle, path, &properties)?;
        Ok((stat, changed))
    }

    /// Replaces what is kept; the handle's times stay.
    pub(crate) fn write_properties(
        &self,
        handle: &File,
        path: &SharePath,
        properties: &Properties,
    ) -> Result<(), ShareError> {
        property_store::write(&self.common, handle, properties).map_err(|source| ShareError::Io {
            attempt: "keep the properties of",
            path: path.clone(),
            source,
        })
    }

    fn open_any(&self, path: &SharePath) -> Result<File, ShareError> {
        beneath::open(&self.root, path, OFlags::RDONLY, Mode::empty())
            .map_err(|errno| ShareError::at("open", path, errno))
    }
}
