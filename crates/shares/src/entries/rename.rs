//! Renames files and directories within a share, atomically and with their properties.

use rustix::{
    fs::{RenameFlags, renameat_with},
    io::Errno,
};

use crate::{Kind, Share, ShareError, SharePath, Stat, tree::beneath};

impl Share {
    /// Renames `from`, which must be of that kind, to `to`. A symbolic link counts as a file and is renamed itself.
    /// With `replace` a file replaces a file and a directory replaces an empty one.
    pub fn rename(&self, from: &SharePath, to: &SharePath, kind: Kind, replace: bool) -> Result<Stat, ShareError> {
        let (source, name) = beneath::open_parent(&self.root, from)?;
        if (self.lstat(from)?.kind == Kind::Directory) != (kind == Kind::Directory) {
            return Err(ShareError::WrongKind(from.clone()));
        }
        let (target, new_name) = beneath::open_parent(&self.root, to).map_err(|error| error.for_creation(to))?;
        let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        renameat_with(&source, name, &target, new_name, flags).map_err(|errno| match errno {
            Errno::NOTDIR => ShareError::WrongKind(to.clone()),
            Errno::INVAL => ShareError::IntoItself(to.clone()),
            Errno::NOENT => ShareError::NotFound(from.clone()),
            errno => ShareError::at("rename to", to, errno),
        })?;
        self.lstat(to)
    }
}
