//! Reads and changes properties of entries by path. A change updates mtime and ETag, like a change of the content,
//! unless the function says otherwise.

use std::{fs::File, time::SystemTime};

use rustix::fs::{Mode, OFlags};

use crate::{Properties, Share, ShareError, SharePath, Stat, properties::property_store, tree::beneath};

impl Share {
    /// Attributes and properties of a file or directory.
    pub fn describe(&self, path: &SharePath) -> Result<(Stat, Properties), ShareError> {
        let handle = self.open_any(path)?;
        Ok((Stat::from_file(&handle, path)?, self.read_properties(&handle)))
    }

    /// Properties of an open file or directory of this share.
    pub fn read_properties(&self, handle: &File) -> Properties {
        property_store::read(&self.common, handle)
    }

    /// Changes properties, and updates the mtime.
    pub fn change_properties(
        &self,
        path: &SharePath,
        change: impl FnOnce(&mut Properties),
    ) -> Result<Stat, ShareError> {
        self.change_properties_with(path, |properties, _, _| change(properties))
    }

    /// Like [`Share::change_properties`]. `change` also gets the old attributes and the new mtime.
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
        // Not permitted for a file of another user that is only writable. The ETag stays the same then, which is the
        // lesser harm.
        let _ = handle.set_modified(at);
        Stat::from_file(&handle, path)
    }

    /// Changes properties if `change` succeeds. Keeps mtime and ETag.
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

    /// Replaces all properties. Keeps the mtime.
    pub(crate) fn write_properties(
        &self,
        handle: &File,
        path: &SharePath,
        properties: &Properties,
    ) -> Result<(), ShareError> {
        property_store::write(&self.common, handle, properties).map_err(|source| ShareError::Io {
            attempt: "write the properties of",
            path: path.clone(),
            source,
        })
    }

    fn open_any(&self, path: &SharePath) -> Result<File, ShareError> {
        beneath::open(&self.root, path, OFlags::RDONLY, Mode::empty())
            .map_err(|errno| ShareError::at("open", path, errno))
    }
}
