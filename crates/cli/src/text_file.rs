//! Small text files that are read and replaced as a whole. A new file is readable by its owner only.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::error::CliError;
use corro_base::atomic_file::AtomicFile;

/// The text of a file; `None` if it does not exist.
pub fn read_optional(path: &Path) -> Result<Option<String>, CliError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CliError::new(format!("cannot read {}", path.display())).cause(error)),
    }
}

pub fn write_error(path: &Path, error: &io::Error) -> CliError {
    CliError::new(format!("cannot write {}", path.display())).cause(error)
}

pub fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Replaces a file atomically: a temporary file, `fsync`, then `rename`. A new file gets mode 0600. A file that belongs to another user, has hard
/// links or cannot be replaced (a bind mount) is overwritten in place and keeps owner and mode.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let existing = path.metadata().ok();
    let is_replaceable = existing.as_ref().is_none_or(|meta| {
        meta.nlink() == 1 && meta.uid() == rustix::process::geteuid().as_raw() && !meta.permissions().readonly()
    });
    let overwrite = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    if !is_replaceable {
        return overwrite();
    }
    let write_and_rename = || {
        let file = AtomicFile::create(path, 0o600)?;
        file.file().write_all(text.as_bytes())?;
        if let Some(existing) = &existing {
            file.file().set_permissions(existing.permissions())?;
        }
        file.commit()
    };
    write_and_rename().or_else(|error| {
        // Overwriting on a full disk would leave half a file.
        if error.kind() == io::ErrorKind::StorageFull { Err(error) } else { overwrite() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacing_keeps_mode_symlinks_and_hard_links() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a temp dir");
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        replace(&file, "1").expect("written");
        let mode = || fs::metadata(&file).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("changed");
        std::os::unix::fs::symlink(&file, &link).expect("linked");
        replace(&link, "2").expect("written");
        assert_eq!((mode(), fs::read_to_string(&file).expect("there").as_str()), (0o644, "2"));
        assert!(link.is_symlink());
        let other = dir.path().join("other");
        fs::hard_link(&file, &other).expect("linked");
        replace(&file, "3").expect("written");
        assert_eq!(fs::read_to_string(&other).expect("there"), "3");
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 3, "no temporary file is left");
    }
}
