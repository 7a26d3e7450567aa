//! The process of a server on this machine, found by the lock of its data directory. The kernel says who holds the lock (`/proc/locks` and
//! `/proc/PID/fdinfo`), and the process is signalled through a pidfd that was opened before its lock was checked: another process is never
//! signalled, even if a process id was reused. Only processes of this user can be found, by root all.

use std::fs;
use std::io::{self, ErrorKind::NotADirectory, ErrorKind::NotFound};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::park_timeout;
use std::time::Duration;

use corro_base::procfs;
use corro_server::dir_lock::SharedDirLock;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// File in a data directory that a server locks beside the directory itself.
const LOCK_FILE: &str = "lock";
/// A server may end or start between the question whether there is one and the question which one.
const MAX_LOOKS: u32 = 20;
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A running server process.
#[derive(Debug)]
pub struct ServerProcess {
    pid: u32,
    process: OwnedFd,
}

#[derive(Debug, thiserror::Error)]
pub enum FindServerError {
    #[error("cannot check whether a server runs on {}", path.display())]
    Lock { path: PathBuf, source: io::Error },
    #[error("a process that cannot be identified has locked {}", path.display())]
    Unidentified { path: PathBuf },
}

impl ServerProcess {
    /// The process that holds the lock of a data directory. `None`: no server runs on it. Blocks for a fraction of a second at most.
    pub fn find(data: &Path) -> Result<Option<ServerProcess>, FindServerError> {
        for _ in 0..MAX_LOOKS {
            match SharedDirLock::acquire(data) {
                Ok(Some(_)) => return Ok(None),
                Err(error) if [NotFound, NotADirectory].contains(&error.kind()) => return Ok(None),
                Err(source) => return Err(FindServerError::Lock { path: data.to_owned(), source }),
                Ok(None) => {}
            }
            if let Some(process) = find_holder(data) {
                return Ok(Some(process));
            }
            park_timeout(LOOK_INTERVAL);
        }
        Err(FindServerError::Unidentified { path: data.to_owned() })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Start in clock ticks since boot, which together with the process id belongs to one process only.
    pub fn start_ticks(&self) -> Option<u64> {
        procfs::Stat::read(i32::try_from(self.pid).ok()?).map(|stat| stat.start_ticks)
    }

    /// Sends a signal. A process that has ended gets none, which is no error.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.process, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns when the process has ended. Its lock is released then.
    pub async fn wait_for_end(&self) -> io::Result<()> {
        // SAFETY: the descriptor is borrowed from `self`, which outlives this future; it stays open and the same, and the `AsyncFd` only borrows it.
        let process = unsafe { AsyncFd::register_with_interest(self.process.as_fd(), Interest::READABLE)? };
        process.readable().await.map(drop)
    }
}

/// The holder of the lock, among the processes that hold any exclusive `flock`.
fn find_holder(data: &Path) -> Option<ServerProcess> {
    // Older versions lock the file alone.
    let inodes: Vec<(u64, u64)> = [inode(data), inode(&data.join(LOCK_FILE))].into_iter().flatten().collect();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    lock_owners(&locks).into_iter().find_map(|pid| {
        let process = pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()?;
        has_locked(pid, &inodes).then_some(ServerProcess { pid, process })
    })
}

/// Whether the process has one of these inodes open with an exclusive `flock` on it. The device numbers of `/proc/locks` are not compared, since some
/// file systems show others there than in `stat`.
fn has_locked(pid: u32, inodes: &[(u64, u64)]) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let mut numbers = open.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    numbers.any(|number| {
        let is_ours = |fdinfo: String| {
            // Only descriptors with a lock are looked at further: a file of a network share that hangs has none.
            let path = format!("/proc/{pid}/fd/{number}");
            has_exclusive_flock(&fdinfo) && inode(Path::new(&path)).is_some_and(|inode| inodes.contains(&inode))
        };
        fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).is_ok_and(is_ours)
    })
}

/// Device and inode of a file.
fn inode(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Process ids of the owners of exclusive `flock` locks in `/proc/locks`, whose lines are `1: FLOCK  ADVISORY  WRITE 4515 fe:00:5416292 0 EOF`. Waiting
/// processes have `->` in the second column.
fn lock_owners(locks: &str) -> Vec<u32> {
    let owner = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_exclusive = words.get(1) == Some(&"FLOCK") && words.get(3) == Some(&"WRITE");
        words.get(4)?.parse().ok().filter(|pid| is_exclusive && *pid > 0)
    };
    let mut owners: Vec<u32> = locks.lines().filter_map(owner).collect();
    owners.sort_unstable();
    owners.dedup();
    owners
}

/// Whether `/proc/PID/fdinfo/FD` has a line `lock: 1: FLOCK  ADVISORY  WRITE ...`.
fn has_exclusive_flock(fdinfo: &str) -> bool {
    let locks = fdinfo.lines().filter_map(|line| line.strip_prefix("lock:"));
    locks.into_iter().any(|lock| !lock_owners(lock).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_dir::DataDir;

    #[test]
    fn owners_of_exclusive_locks_are_read() {
        let locks = "1: FLOCK  ADVISORY  WRITE 4515 fe:00:5416292 0 EOF\n\
                     1: -> FLOCK  ADVISORY  WRITE 9 fe:00:5416292 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 7 fe:00:1 0 EOF\n\
                     3: FLOCK  ADVISORY  READ  8 fe:00:1 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 12 fe:00:2 0 EOF\n\
                     5: FLOCK  ADVISORY  WRITE 4515 fe:00:3 0 EOF\n\
                     6: FLOCK  ADVISORY  WRITE 0 fe:00:4 0 EOF\n";
        assert_eq!(lock_owners(locks), [12, 4515]);
        let fdinfo = "pos:\t0\nflags:\t0100000\nmnt_id:\t29\nlock:\t1: FLOCK  ADVISORY  WRITE 1 fe:00:5 0 EOF\n";
        assert!(has_exclusive_flock(fdinfo));
        assert!(!has_exclusive_flock(&fdinfo.replace("WRITE", "READ ")));
        assert!(!has_exclusive_flock("pos:\t0\nflags:\t0100000\n"));
    }

    #[test]
    fn the_holder_of_the_lock_is_found_whatever_the_lock_file_says() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let missing = dir.path().join("none");
        assert!(ServerProcess::find(&missing).expect("asked").is_none() && !missing.exists());
        assert!(ServerProcess::find(dir.path()).expect("asked").is_none());
        let data = DataDir::lock(dir.path()).expect("free");
        fs::write(dir.path().join(LOCK_FILE), "process 1, http://127.0.0.1:1\n").expect("written");
        let found = ServerProcess::find(dir.path()).expect("asked").expect("it is locked");
        assert_eq!(found.pid(), std::process::id());
        assert!(found.start_ticks().is_some());
        drop(data);
        assert!(ServerProcess::find(dir.path()).expect("asked").is_none());
    }

    #[tokio::test]
    async fn a_process_that_has_ended_gets_no_signal() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().expect("started");
        let pid = child.id();
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("a pidfd");
        let process = ServerProcess { pid, process };
        process.signal(Signal::TERM).expect("sent");
        process.wait_for_end().await.expect("it ended");
        child.wait().expect("reaped");
        process.signal(Signal::TERM).expect("there is nobody");
        process.wait_for_end().await.expect("it has ended");
    }
}
