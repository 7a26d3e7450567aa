//! Atomic replacement of a file: a reader sees the old content or the new, whole, also after a crash. The bytes go to a
//! temporary file of the same directory, to the disk, and then to the final name by `rename`; then the directory is
//! synchronised.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

/// Replaces the file `path` by one with these bytes and this mode (as far as the umask allows). On success it is on the
/// disk; on failure nothing has changed.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let file = AtomicFile::create(path, mode)?;
    (&file.file).write_all(bytes)?;
    file.commit()
}

/// A file under a temporary name that becomes visible with [`AtomicFile::commit`]. Dropped before, it is removed.
#[derive(Debug)]
pub struct AtomicFile {
    directory: OwnedFd,
    temporary: String,
    name: std::ffi::OsString,
    file: File,
    is_committed: bool,
}

impl AtomicFile {
    /// Beside `path`, which need not exist yet.
    pub fn create(path: &Path, mode: u32) -> io::Result<AtomicFile> {
        let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = openat(CWD, parent, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        AtomicFile::create_in(directory, name, mode)
    }

    /// In a directory that is open for reading.
    pub fn create_in(directory: OwnedFd, name: impl AsRef<std::ffi::OsStr>, mode: u32) -> io::Result<AtomicFile> {
        let name = name.as_ref().to_owned();
        let temporary = temporary_name(&name.to_string_lossy());
        // A process that died may have had the same id; its file may be a symbolic link of another user.
        match unlinkat(&directory, &temporary, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(&directory, &temporary, flags, Mode::from_raw_mode(mode))?);
        Ok(AtomicFile { directory, temporary, name, file, is_committed: false })
    }

    /// The temporary file, open for writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its name. On success content and name are on the disk.
    pub fn commit(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        self.rename()?;
        sync_directory(&self.directory)
    }

    /// Gives the file its name without waiting for the disk: atomic for readers, not across a crash of the machine.
    pub fn commit_unsynced(mut self) -> io::Result<()> {
        self.rename()
    }

    fn rename(&mut self) -> io::Result<()> {
        renameat(&self.directory, &self.temporary, &self.directory, &self.name)?;
        self.is_committed = true;
        Ok(())
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.is_committed {
            // A full disk stays no fuller than it was. The error that matters has been returned already.
            let _ = unlinkat(&self.directory, &self.temporary, AtFlags::empty());
        }
    }
}

/// Puts the names in a directory on the disk. Some network file systems refuse to synchronise directories and do it
/// without being asked: that is no error.
pub fn sync_directory(directory: impl AsFd) -> io::Result<()> {
    match rustix::fs::fsync(directory) {
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
        synced => Ok(synced?),
    }
}

/// The same for the directory that contains `path`.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    sync_directory(File::open(parent)?)
}

const SUFFIX: &str = ".partial";

/// Distinct for every call in this process and for every process that runs, so concurrent writers do not mix.
fn temporary_name(name: &str) -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!(".{name}.{}-{number}{SUFFIX}", std::process::id())
}

/// The final name of a temporary file that a crash left behind; `None` for any other name.
pub fn final_name(temporary: &str) -> Option<&str> {
    let (name, unique) = temporary.strip_prefix('.')?.strip_suffix(SUFFIX)?.rsplit_once('.')?;
    let (pid, number) = unique.split_once('-')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (!name.is_empty() && is_number(pid) && is_number(number)).then_some(name)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(directory: &Path) -> usize {
        fs::read_dir(directory).expect("a directory").count()
    }

    #[test]
    fn a_file_is_replaced_with_its_mode_and_nothing_else_stays() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("model.h5");
        replace(&path, b"one", 0o644).expect("written");
        replace(&path, b"two", 0o600).expect("replaced");
        assert_eq!(fs::read(&path).expect("it is there"), b"two");
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
        assert_eq!(names(directory.path()), 1);
    }

    #[test]
    fn a_failure_and_a_dropped_file_change_nothing() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("model.h5");
        fs::create_dir(&path).expect("a directory, which no file can replace");
        replace(&path, b"one", 0o600).expect_err("not written");
        drop(AtomicFile::create(&directory.path().join("other"), 0o600).expect("created"));
        assert_eq!(names(directory.path()), 1);
        assert_eq!(replace(Path::new("/"), b"", 0o600).expect_err("no name").kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn concurrent_writers_each_leave_a_whole_file() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("shared");
        std::thread::scope(|scope| {
            for content in [vec![b'a'; 100_000], vec![b'b'; 100_000]] {
                let path = &path;
                scope.spawn(move || (0..20).for_each(|_| replace(path, &content, 0o600).expect("written")));
            }
        });
        let found = fs::read(&path).expect("it is there");
        assert!(found.len() == 100_000 && found.iter().all(|byte| *byte == found[0]));
        assert_eq!(names(directory.path()), 1);
    }

    #[test]
    fn temporary_names_lead_back_to_the_final_one() {
        assert_eq!(final_name(&temporary_name("model.h5")), Some("model.h5"));
        for other in ["model.h5", ".model.h5.partial", "..1-2.partial", ".a.1-x.partial"] {
            assert_eq!(final_name(other), None, "{other}");
        }
    }
}
