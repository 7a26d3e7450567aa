//! Moving files and directories within a share. One step of the disk: whoever looks sees the thing at
//! its old place or at its new one, with all that is kept with it.

use rustix::{
    fs::{RenameFlags, renameat_with},
    io::Errno,
};

use crate::{Kind, Share, ShareError, SharePath, Stat, beneath};

impl Share {
    /// Moves what is at `from`, which must be of that kind, to `to`. Of a link, which is of the kind of files here, the link is moved. With `replace` a file takes the place of a file that
    /// is there, and a directory that of an empty one.
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
