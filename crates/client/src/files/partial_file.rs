//! Hidden file beside a download's destination that receives the bytes. Replaces only a regular file, and never
//! writes through a symbolic link of another user.
//!
//! Hand-written instead of `tempfile`: ranges are written out of order from several tasks, and an existing destination
//! keeps its permissions, its link and, to append, its content.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::ClientError;

/// Destination of a download.
#[derive(Clone, Copy, Debug)]
pub struct Destination<'a> {
    /// Plain file, link to one, or a new path.
    pub path: &'a Path,
    /// Append to the existing content.
    pub append: bool,
}

/// Removed on drop unless `finish` was called.
pub(super) struct PartialFile {
    file: Arc<File>,
    path: PathBuf,
    destination: PathBuf,
    /// Bytes of the destination that are kept.
    base: u64,
    finished: bool,
}

impl PartialFile {
    pub(super) fn new(to: Destination<'_>) -> Result<PartialFile, ClientError> {
        let fail = |source: io::Error| ClientError::WriteFile { path: to.path.to_owned(), source };
        let (destination, existing) = resolve(to.path)?;
        let path = hidden_path(&destination).map_err(fail)?;
        // A process that died may have had the same pid.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
            _ => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(fail)?;
        let mut draft = PartialFile { file: Arc::new(file), path, destination, base: 0, finished: false };
        if let Some(existing) = existing {
            draft.continue_from(&existing, to.append).map_err(fail)?;
        }
        Ok(draft)
    }

    /// Copies the permissions of the existing file and, to append, its content.
    fn continue_from(&mut self, existing: &Metadata, append: bool) -> io::Result<()> {
        if append {
            self.base = io::copy(&mut File::open(&self.destination)?, &mut &*self.file)?;
        }
        self.file.set_permissions(existing.permissions())
    }

    /// Writes the pieces consecutively from `at`.
    pub(super) async fn write(&self, pieces: Vec<Bytes>, at: u64) -> Result<(), ClientError> {
        let file = self.file.clone();
        let mut at = self.base + at;
        let write = move || {
            pieces.iter().try_for_each(|piece| {
                file.write_all_at(piece, at)?;
                at += piece.len() as u64;
                Ok(())
            })
        };
        let written: io::Result<()> = tokio::task::spawn_blocking(write).await.expect("writing a file does not panic");
        written.map_err(|source| ClientError::WriteFile { path: self.destination.clone(), source })
    }

    pub(super) fn finish(mut self, length: u64) -> Result<(), ClientError> {
        let place = || -> io::Result<()> {
            self.file.set_len(self.base + length)?;
            // Not synced: a download can be repeated, and fsync would cost a fifth of its time.
            fs::rename(&self.path, &self.destination)
        };
        place().map_err(|source| ClientError::WriteFile { path: self.destination.clone(), source })?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.finished {
            // Best effort: the download's own error is the one to report.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Resolves `destination` through links, with the metadata of an existing file.
fn resolve(destination: &Path) -> Result<(PathBuf, Option<Metadata>), ClientError> {
    let fail = |source: io::Error| ClientError::WriteFile { path: destination.to_owned(), source };
    let target = match fs::canonicalize(destination) {
        Ok(target) => target,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return match fs::symlink_metadata(destination) {
                // Dangling link: its target may be on a file system that is not mounted.
                Ok(_) => Err(ClientError::NotAPlainFile { path: destination.to_owned() }),
                Err(_) => Ok((destination.to_owned(), None)),
            };
        }
        Err(error) => return Err(fail(error)),
    };
    let metadata = fs::metadata(&target).map_err(fail)?;
    if !metadata.is_file() {
        return Err(ClientError::NotAPlainFile { path: destination.to_owned() });
    }
    Ok((target, Some(metadata)))
}

fn hidden_path(destination: &Path) -> io::Result<PathBuf> {
    let name = destination.file_name().ok_or_else(|| io::Error::other("it is not the path of a file"))?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".corro-{}", std::process::id()));
    Ok(destination.with_file_name(hidden))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    async fn place(path: &Path, append: bool, content: &'static [u8]) -> Result<(), ClientError> {
        let draft = PartialFile::new(Destination { path, append })?;
        draft.write(vec![Bytes::from_static(content)], 0).await?;
        draft.finish(content.len() as u64)
    }

    #[tokio::test]
    async fn a_link_stays_and_its_target_is_replaced() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        fs::write(&real, "old and longer").expect("written");
        fs::set_permissions(&real, fs::Permissions::from_mode(0o600)).expect("set");
        symlink(&real, &link).expect("linked");
        place(&link, false, b"new").await.expect("placed");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(fs::read(&real).expect("there"), b"new");
        assert_eq!(fs::metadata(&real).expect("there").permissions().mode() & 0o777, 0o600);
        place(&link, true, b"er").await.expect("placed");
        assert_eq!(fs::read(&real).expect("there"), b"newer");
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 2, "no draft is left");
    }

    #[tokio::test]
    async fn what_is_no_plain_file_is_left_alone() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (folder, dangling) = (dir.path().join("folder"), dir.path().join("dangling"));
        fs::create_dir(&folder).expect("made");
        symlink(dir.path().join("nowhere"), &dangling).expect("linked");
        for path in [Path::new("/dev/null"), &folder, &dangling] {
            let error = place(path, false, b"new").await.expect_err("refused");
            assert!(matches!(error, ClientError::NotAPlainFile { .. }), "{path:?}: {error:?}");
        }
        assert!(folder.is_dir() && fs::symlink_metadata(&dangling).expect("there").is_symlink());
    }

    #[tokio::test]
    async fn a_stale_draft_is_removed_and_a_link_in_its_place_is_not_followed() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (destination, precious) = (dir.path().join("f"), dir.path().join("precious"));
        fs::write(&precious, "keep").expect("written");
        symlink(&precious, hidden_path(&destination).expect("a name")).expect("linked");
        place(&destination, false, b"new").await.expect("placed");
        assert_eq!(fs::read(&precious).expect("there"), b"keep");
        assert_eq!(fs::read(&destination).expect("there"), b"new");
        assert!(!fs::symlink_metadata(&destination).expect("there").is_symlink());
    }
}
