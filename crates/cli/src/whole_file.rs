//! Small files that are read whole and written whole or not at all. Entered by commands that change files which others read
//! too; a new file is for its owner alone.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::failure::Failure;

/// The text of a file; `None` when it is not there.
pub fn read(path: &Path) -> Result<Option<String>, Failure> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            Err(Failure { causes: vec![error.to_string()], ..Failure::new(format!("cannot read {}", path.display())) })
        }
    }
}

pub fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure { causes: vec![error.to_string()], ..Failure::new(format!("cannot write {}", path.display())) }
}

pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Writes a file, whole or not at all, for its owner alone when it is new. One that is somebody else's, has other names or
/// cannot be replaced (a mount) is written in its place, and keeps owner and mode.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let present = path.metadata().ok();
    let is_ours = present.as_ref().is_none_or(|meta| {
        meta.nlink() == 1 && meta.uid() == rustix::process::geteuid().as_raw() && !meta.permissions().readonly()
    });
    let in_place = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    if !is_ours {
        return in_place();
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = path.with_file_name(format!(".{name}.corro-draft"));
    let whole = || {
        remove(&draft)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(text.as_bytes())?;
        if let Some(present) = &present {
            file.set_permissions(present.permissions())?;
        }
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    whole().or_else(|error| {
        let _ = fs::remove_file(&draft);
        // A full disk would leave half a file.
        if error.kind() == io::ErrorKind::StorageFull { Err(error) } else { in_place() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_its_mode_and_its_other_names() {
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
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 3, "no draft is left");
    }
}
