//! Small JSON files that are written atomically and survive a crash: credentials, keys and records. Readable by their
//! owner only.

use std::io;
use std::path::Path;

use corro_base::atomic_file;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Replaces the file by rename, after fsync of the new content; then fsyncs the directory.
pub fn write<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    atomic_file::replace(path, &serde_json::to_vec(value)?, 0o600)
}

/// Reads the file; `None` if it does not exist.
pub fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes the file. No error if it does not exist.
pub fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_atomically_and_private() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("a.json");
        assert_eq!(read::<u32>(&path).expect("missing is no error"), None);
        write(&path, &1).expect("it can be written");
        write(&path, &2).expect("it can be replaced");
        assert_eq!(read::<u32>(&path).expect("it can be read"), Some(2));
        let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 1);
        remove(&path).expect("it can be removed");
        remove(&path).expect("twice");
    }
}
