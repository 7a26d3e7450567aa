//! Directory handle of a volume that untrusted programs write to, and the file operations that an agent performs
//! beneath it on behalf of a job. The kernel resolves every path beneath the handle (`openat2` with `RESOLVE_BENEATH`
//! and `RESOLVE_NO_MAGICLINKS`): a symbolic link that stays inside the volume works as a directory, one that leads out
//! is an error. The last component of a file is never a link: an opened file is a regular file, or an error. Never
//! blocks on a FIFO, never removes through a link.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, mkdirat, openat2, symlinkat, unlinkat};
use rustix::io::Errno;

use crate::{SharePath, tree::beneath};

/// An open directory. Paths given to its methods are relative to it.
#[derive(Debug)]
pub struct VolumeDir {
    root: OwnedFd,
}

impl VolumeDir {
    /// Opens a directory by a path that no job can change.
    pub fn open(path: &Path) -> io::Result<VolumeDir> {
        let root = openat2(CWD, path, DIRECTORY, Mode::empty(), ResolveFlags::NO_MAGICLINKS)?;
        Ok(VolumeDir { root })
    }

    /// The directory at `path`. Links that stay inside are followed.
    pub fn open_dir(&self, path: &SharePath) -> io::Result<VolumeDir> {
        let opened = beneath::open(&self.root, path, DIRECTORY, Mode::empty());
        Ok(VolumeDir { root: opened.map_err(|errno| explain(errno, path))?.into() })
    }

    /// The directory at `path`. Missing directories are created with mode 0777 less the umask.
    pub fn make_dirs(&self, path: &SharePath) -> io::Result<VolumeDir> {
        match self.open_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        // Each from the volume's handle, not from its parent's: a link in the middle may lead to a sibling of its
        // parent.
        for prefix in path.prefixes() {
            let (parent, name) = prefix.split().expect("a prefix has a last name");
            match mkdirat(&self.open_dir(&parent)?, name, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(explain(errno, &prefix)),
            }
        }
        self.open_dir(path)
    }

    /// Opens a regular file for reading. Links that stay inside are followed.
    pub fn read_file(&self, path: &SharePath) -> io::Result<File> {
        let file =
            beneath::open(&self.root, path, OFlags::RDONLY, Mode::empty()).map_err(|errno| explain(errno, path))?;
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(refused("it is not a regular file")),
        }
    }

    /// Opens a regular file for appending. Creates the file, but not its directory.
    pub fn append_file(&self, path: &SharePath) -> io::Result<File> {
        self.open_regular(path, OFlags::RDWR | OFlags::APPEND | OFlags::CREATE, 0o666)
    }

    /// Creates a new file at `path`. Replaces any existing entry except a directory that is not empty.
    pub fn replace_file(&self, path: &SharePath, mode: u32) -> io::Result<File> {
        self.remove_entry(path)?;
        self.open_regular(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, mode)
    }

    /// Creates a symbolic link to `target` at `path`. Replaces an existing entry like [`VolumeDir::replace_file`].
    pub fn replace_link(&self, target: &Path, path: &SharePath) -> io::Result<()> {
        self.remove_entry(path)?;
        let (parent, name) = path.split().ok_or(io::ErrorKind::InvalidInput)?;
        symlinkat(target, &self.open_dir(&parent)?, name).map_err(|errno| explain(errno, path))
    }

    /// Current path of the directory, without links.
    pub fn path(&self) -> io::Result<PathBuf> {
        std::fs::read_link(self.magic_path())
    }

    /// Path of the handle in `/proc`, valid in this process even if the directory is moved.
    pub fn magic_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.root.as_raw_fd()))
    }

    /// Removes a file, a link or an empty directory; a missing entry is no error.
    fn remove_entry(&self, path: &SharePath) -> io::Result<()> {
        let (parent, name) = path.split().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = self.open_dir(&parent)?;
        let removed = match unlinkat(&parent, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => unlinkat(&parent, name, AtFlags::REMOVEDIR),
            other => other,
        };
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(explain(errno, path)),
        }
    }

    fn open_regular(&self, path: &SharePath, flags: OFlags, mode: u32) -> io::Result<File> {
        let opened = beneath::open(&self.root, path, flags | OFlags::NOFOLLOW, Mode::from_raw_mode(mode));
        let file = opened.map_err(|errno| match errno {
            Errno::LOOP => refused("it is a symbolic link, or one on the way to it leads in circles: remove it"),
            Errno::NXIO => refused(NOT_A_FILE),
            Errno::ISDIR => refused("a directory has its name: remove it"),
            errno => explain(errno, path),
        })?;
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(refused(NOT_A_FILE)),
        }
    }
}

impl From<OwnedFd> for VolumeDir {
    fn from(root: OwnedFd) -> VolumeDir {
        VolumeDir { root }
    }
}

impl AsFd for VolumeDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

/// `O_PATH`: resolving paths needs no permission to list the directory.
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const NOT_A_FILE: &str = "it is not a regular file (a pipe, a socket or a device has its name): remove it";

fn explain(errno: Errno, path: &SharePath) -> io::Error {
    match errno {
        Errno::XDEV => {
            refused(&format!("a symbolic link on the way to '{}' leads out of the volume: remove it", path.as_str()))
        }
        errno => errno.into(),
    }
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use rustix::fs::{FileType, mknodat};
    use tempfile::TempDir;

    use super::*;

    fn path(text: &str) -> SharePath {
        SharePath::parse(text).expect("a good path")
    }

    /// A volume, and a directory beside it that must not change.
    fn volume() -> (TempDir, VolumeDir, TempDir) {
        let (inside, outside) = (tempfile::tempdir().expect("a volume"), tempfile::tempdir().expect("a directory"));
        fs::write(outside.path().join("key"), "secret").expect("a file");
        let handle = VolumeDir::open(inside.path()).expect("a handle");
        (inside, handle, outside)
    }

    #[test]
    fn output_is_written_beneath_the_volume() {
        let (inside, volume, _outside) = volume();
        volume.make_dirs(&path("a/b")).expect("made");
        volume.make_dirs(&path("a/b")).expect("twice is no error");
        for line in ["one\n", "two\n"] {
            volume
                .append_file(&path("a/b/log"))
                .and_then(|mut file| file.write_all(line.as_bytes()))
                .expect("appended");
        }
        assert_eq!(fs::read_to_string(inside.path().join("a/b/log")).expect("a file"), "one\ntwo\n");
        assert!(volume.append_file(&path("none/log")).is_err(), "directories are made by their own function");
        assert_eq!(volume.path().expect("a path"), inside.path().canonicalize().expect("a path"));
    }

    #[test]
    fn links_that_lead_out_are_refused_and_those_that_stay_inside_work() {
        let (inside, volume, outside) = volume();
        symlink(outside.path(), inside.path().join("absolute")).expect("a link");
        symlink("..", inside.path().join("up")).expect("a link");
        symlink("/proc/self/root", inside.path().join("magic")).expect("a link");
        volume.make_dirs(&path("real/deep")).expect("made");
        symlink("../real", inside.path().join("real/near")).expect("a link");
        for link in ["absolute", "up", "magic"] {
            let error = volume.make_dirs(&path(&format!("{link}/x"))).expect_err(link);
            assert!(error.to_string().contains("leads out of the volume"), "{error}");
            assert!(volume.append_file(&path(&format!("{link}/key"))).is_err(), "{link}");
            assert!(volume.open_dir(&path(link)).is_err(), "{link}");
            assert!(volume.replace_file(&path(&format!("{link}/key")), 0o600).is_err(), "{link}");
        }
        volume.make_dirs(&path("real/near/new")).expect("a link inside the volume is a directory");
        assert!(inside.path().join("real/new").is_dir());
        assert_eq!(fs::read_to_string(outside.path().join("key")).expect("it stays"), "secret");
        assert_eq!(fs::read_dir(outside.path()).expect("a directory").count(), 1);
    }

    #[test]
    fn only_regular_files_are_opened() {
        let (inside, volume, outside) = volume();
        symlink(outside.path().join("key"), inside.path().join("link")).expect("a link");
        symlink("plain", inside.path().join("inner")).expect("a link");
        fs::write(inside.path().join("plain"), "x").expect("a file");
        fs::create_dir(inside.path().join("directory")).expect("a directory");
        mknodat(CWD, inside.path().join("pipe"), FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
        // Has a reader, so that opening it for writing succeeds at once.
        mknodat(CWD, inside.path().join("open-pipe"), FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
        let _reader = fs::File::options().read(true).write(true).open(inside.path().join("open-pipe")).expect("opened");
        for (name, why) in [
            ("link", "symbolic link"),
            ("inner", "symbolic link"),
            ("directory", "directory"),
            ("pipe", "regular file"),
            ("open-pipe", "regular file"),
        ] {
            let error = volume.append_file(&path(name)).expect_err(name);
            assert!(error.to_string().contains(why), "{name}: {error}");
        }
        for (name, can_be_read) in
            [("plain", true), ("inner", true), ("link", false), ("directory", false), ("pipe", false)]
        {
            assert_eq!(volume.read_file(&path(name)).is_ok(), can_be_read, "{name}");
        }
        assert_eq!(fs::read_to_string(outside.path().join("key")).expect("it stays"), "secret");
    }

    #[test]
    fn replacing_a_link_keeps_its_target() {
        let (inside, volume, outside) = volume();
        symlink(outside.path().join("key"), inside.path().join("script")).expect("a link");
        let mut file = volume.replace_file(&path("script"), 0o600).expect("made");
        file.write_all(b"echo").expect("written");
        symlink(outside.path().join("key"), inside.path().join("tool")).expect("a link");
        volume.replace_link(Path::new("/bin/true"), &path("tool")).expect("made");
        assert_eq!(fs::read_link(inside.path().join("tool")).expect("a link"), Path::new("/bin/true"));
        assert_eq!(fs::read_to_string(inside.path().join("script")).expect("a file"), "echo");
        assert_eq!(fs::read_to_string(outside.path().join("key")).expect("it stays"), "secret");
    }
}
