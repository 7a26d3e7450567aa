//! Properties of things in a share: read and set through the same door as their content. Setting
//! them is a modification like any other: time and ETag move on. Noting one is not.

use std::{fs::File, time::SystemTime};

use rustix::fs::{Mode, OFlags};

use crate::{Properties, Share, ShareError, SharePath, Stat, beneath, keeping};

impl Share {
    /// What is known of a file or directory, and what was kept with it.
    pub fn describe(&self, path: &SharePath) -> Result<(Stat, Properties), ShareError> {
        let thing = self.open_any(path)?;
        Ok((Stat::of_handle(&thing, path)?, self.properties_of(&thing)))
    }

    /// What was kept with a file or directory opened from this share.
    pub fn properties_of(&self, thing: &File) -> Properties {
        keeping::read(&self.common, thing)
    }

    /// Changes what is kept with a file or directory.
    pub fn change_properties(
        &self,
        path: &SharePath,
        change: impl FnOnce(&mut Properties),
    ) -> Result<Stat, ShareError> {
        self.change_properties_at(path, |kept, _, _| change(kept))
    }

    /// As [`Share::change_properties`]. The change is told what the thing was before, and the time of modification that
    /// it will have.
    pub fn change_properties_at(
        &self,
        path: &SharePath,
        change: impl FnOnce(&mut Properties, &Stat, SystemTime),
    ) -> Result<Stat, ShareError> {
        let thing = self.open_any(path)?;
        let _turn = self.common.turns.take(&thing);
        let (mut properties, at) = (self.properties_of(&thing), SystemTime::now());
        change(&mut properties, &Stat::of_handle(&thing, path)?, at);
        self.keep(&thing, path, &properties)?;
        // For a thing that is someone else's and only writable to us this is not allowed; then its
        // ETag stays, which is the lesser harm.
        let _ = thing.set_modified(at);
        Stat::of_handle(&thing, path)
    }

    /// Changes what is kept, if `change` agrees; times and ETag stay.
    pub fn note_properties<T, E: From<ShareError>>(
        &self,
        path: &SharePath,
        change: impl FnOnce(&mut Properties, &Stat) -> Result<T, E>,
    ) -> Result<(Stat, T), E> {
        let thing = self.open_any(path)?;
        let _turn = self.common.turns.take(&thing);
        let (mut properties, stat) = (self.properties_of(&thing), Stat::of_handle(&thing, path)?);
        let changed = change(&mut properties, &stat)?;
        self.keep(&thing, path, &properties)?;
        Ok((stat, changed))
    }

    /// Replaces what is kept; the thing's times stay.
    pub(crate) fn keep(&self, thing: &File, path: &SharePath, properties: &Properties) -> Result<(), ShareError> {
        keeping::write(&self.common, thing, properties).map_err(|source| ShareError::Io {
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
