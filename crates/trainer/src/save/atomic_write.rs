//! A file that is there whole or not at all, whatever ends the process or the machine. The bytes go to a temporary name in the same
//! directory, to the disk, and only then to the final name.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::WriteError;

/// Replaces the file in one step; afterwards it is on the disk. Fails with nothing changed.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    let fresh = temporary(path);
    let written = replace(&fresh, path, bytes);
    if written.is_err() {
        // A full disk stays no fuller than it was. The error to tell is the first one.
        let _ = fs::remove_file(&fresh);
    }
    written.map_err(|source| WriteError::Disk { path: path.to_owned(), source })
}

/// The temporary name of a file of that name.
pub fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}{PARTIAL_SUFFIX}"))
}

/// The final name of a file of that temporary name.
pub fn final_name(temporary: &str) -> Option<&str> {
    temporary.strip_prefix('.')?.strip_suffix(PARTIAL_SUFFIX)
}

const PARTIAL_SUFFIX: &str = ".partial";

fn replace(fresh: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(fresh, path)?;
    sync_directory(path)
}

/// The name is on the disk too. Some network file systems cannot be asked that of a directory, and do it anyway.
fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match File::open(directory)?.sync_all() {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => Ok(()),
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_else_stays() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("model.h5");
        write(&path, b"one").expect("it can be written");
        write(&path, b"two").expect("it can be replaced");
        assert_eq!(fs::read(&path).expect("it is there"), b"two");
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1);
    }

    #[test]
    fn a_failure_names_the_file_and_leaves_nothing() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        // A directory of that name cannot be replaced by a file.
        let path = directory.path().join("model.h5");
        fs::create_dir(&path).expect("a directory");
        let error = write(&path, b"one").expect_err("it cannot be written");
        assert_eq!(error.to_string(), format!("cannot write {}", path.display()));
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1);
    }

    #[test]
    fn temporary_names_lead_back() {
        assert_eq!(temporary(Path::new("a/model.h5")), Path::new("a/.model.h5.partial"));
        assert_eq!(final_name(".model.h5.partial"), Some("model.h5"));
        assert_eq!(final_name("model.h5"), None);
    }
}
