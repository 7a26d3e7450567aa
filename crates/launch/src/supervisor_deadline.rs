//! Deadline after which guards kill their process tree unless the launcher renews it. Covers a frozen launcher, which holds its sockets open and looks
//! alive. The deadline is a time in a memfd, which the launcher writes and every guard reads. While none is written, guards have no deadline.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create, open};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stdout, stdout};
use rustix::time::{ClockId, clock_gettime};

/// The launcher's side.
#[derive(Debug, Default)]
pub struct DeadlineWriter {
    file: OnceLock<File>,
}

impl DeadlineWriter {
    /// Sets the deadline of all processes; `None` removes it.
    pub fn set(&self, at: Option<Instant>) -> io::Result<()> {
        let remaining = at.map(|at| at.saturating_duration_since(Instant::now()));
        let time = remaining.map_or(0, |remaining| nanos(monotonic_now() + remaining).max(1));
        self.file()?.write_all_at(&time.to_le_bytes(), 0)
    }

    /// A descriptor of the memfd, which becomes the standard output of a fork server.
    pub fn file_for_fork_server(&self) -> io::Result<OwnedFd> {
        Ok(self.file()?.try_clone()?.into())
    }

    fn file(&self) -> io::Result<&File> {
        if self.file.get().is_none() {
            // If two threads create one at the same time, both use the first.
            let _ = self.file.set(memfd_create("corro-lease", MemfdFlags::CLOEXEC)?.into());
        }
        Ok(self.file.get().expect("just created"))
    }
}

/// A guard's side.
pub struct DeadlineReader {
    file: Option<File>,
}

impl DeadlineReader {
    /// Takes the memfd from standard output, which becomes `/dev/null`. Called once, in a fork server before its first fork.
    pub fn take_from_stdout() -> DeadlineReader {
        let file = fcntl_dupfd_cloexec(stdout(), 3).ok().map(File::from);
        if let Ok(null) = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
            let _ = dup2_stdout(&null);
        }
        DeadlineReader { file }
    }

    /// Time until the deadline; `None` without one.
    pub fn remaining(&self) -> Option<Duration> {
        let mut time = [0; 8];
        self.file.as_ref()?.read_exact_at(&mut time, 0).ok()?;
        let time = u64::from_le_bytes(time);
        (time > 0).then(|| Duration::from_nanos(time.saturating_sub(nanos(monotonic_now()))))
    }
}

/// CLOCK_MONOTONIC, the clock of `Instant`, which is the same in every process of the machine.
fn monotonic_now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_read_until_it_is_removed() {
        let writer = DeadlineWriter::default();
        let file = writer.file_for_fork_server().expect("a memfd");
        let reader = DeadlineReader { file: Some(File::from(file)) };
        assert_eq!(reader.remaining(), None, "none is set");
        writer.set(Some(Instant::now() + Duration::from_secs(3600))).expect("it can be written");
        let remaining = reader.remaining().expect("one is set");
        assert!(remaining > Duration::from_secs(3000) && remaining <= Duration::from_secs(3600), "{remaining:?}");
        writer.set(Some(Instant::now())).expect("it can be written");
        assert_eq!(reader.remaining(), Some(Duration::ZERO));
        writer.set(None).expect("it can be written");
        assert_eq!(reader.remaining(), None);
        assert_eq!(DeadlineReader { file: File::open("/dev/null").ok() }.remaining(), None, "without a memfd");
    }
}
