//! Atomic file replacement that survives a crash of the process or the machine: writes to a temporary file in the same
//! directory, syncs it, then renames it.

use std::path::Path;

use corro_base::atomic_file;

use super::WriteError;

/// Replaces the file atomically and durably. On failure nothing is changed.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    atomic_file::replace(path, bytes, 0o644).map_err(|source| WriteError::Disk { path: path.to_owned(), source })
}

/// The final name of a temporary file that a crash left behind, also of earlier versions (`.model.h5.partial`).
pub fn final_name(temporary: &str) -> Option<&str> {
    atomic_file::final_name(temporary).or_else(|| temporary.strip_prefix('.')?.strip_suffix(".partial"))
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        assert_eq!(final_name(".model.h5.12-0.partial"), Some("model.h5"));
        assert_eq!(final_name(".model.h5.partial"), Some("model.h5"));
        assert_eq!(final_name("model.h5"), None);
    }
}
