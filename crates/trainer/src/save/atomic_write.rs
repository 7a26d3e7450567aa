//! Atomic file replacement that survives a crash of the process or the machine: writes to a temporary file in the same
//! directory, syncs it, then renames it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::WriteError;

/// Replaces the file atomically and durably. On failure nothing is changed.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    let fresh = temporary(path);
    let written = replace(&fresh, path, bytes);
    if written.is_err() {
        // Do not leave a partial file on a full disk. The first error is the one to report.
        let _ = fs::remove_file(&fresh);
    }
    written.map_err(|source| WriteError::Disk { path: path.to_owned(), source })
}

/// The temporary name of a file.
pub fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}{PARTIAL_SUFFIX}"))
}

/// The final name of a file with that temporary name.
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

/// Makes the rename durable. Some network file systems reject fsync on a directory and do not need it.
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
    fn a_file_is_replaced_and_no_temporary_remains() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("model.h5");
        write(&path, b"one").expect("it can be written");
        write(&path, b"two").expect("it can be replaced");
        assert_eq!(fs::read(&path).expect("it is there"), b"two");
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1);
    }

    #[test]
    fn a_failure_names_the_file_and_leaves_no_temporary() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        // A directory with that name cannot be replaced by a file.
        let path = directory.path().join("model.h5");
        fs::create_dir(&path).expect("a directory");
        let error = write(&path, b"one").expect_err("it cannot be written");
        assert_eq!(error.to_string(), format!("cannot write {}", path.display()));
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1);
    }

    #[test]
    fn temporary_names_are_reversible() {
        assert_eq!(temporary(Path::new("a/model.h5")), Path::new("a/.model.h5.partial"));
        assert_eq!(final_name(".model.h5.partial"), Some("model.h5"));
        assert_eq!(final_name("model.h5"), None);
    }
}
