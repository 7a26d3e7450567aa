//! How long guards believe in their launcher without a word from it. One that is frozen holds its sockets open and looks alive; whoever has promised
//! somebody else that its processes end in time says so here, again and again. A moment in a small file of memory, which the launcher writes and
//! every guard reads; nothing is written where nothing was promised, and then guards wait for ever.

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
pub struct Lease {
    file: OnceLock<File>,
}

impl Lease {
    /// From now on, all processes end at this moment unless another one is written before. `None`: they do not.
    pub fn ends(&self, at: Option<Instant>) -> io::Result<()> {
        let left = at.map(|at| at.saturating_duration_since(Instant::now()));
        let moment = left.map_or(0, |left| nanos(since_boot() + left).max(1));
        self.file()?.write_all_at(&moment.to_le_bytes(), 0)
    }

    /// For a warden, which takes it for its standard output.
    pub fn for_warden(&self) -> io::Result<OwnedFd> {
        Ok(self.file()?.try_clone()?.into())
    }

    fn file(&self) -> io::Result<&File> {
        if self.file.get().is_none() {
            // Should two make one at once, both go on with the first.
            let _ = self.file.set(memfd_create("corro-lease", MemfdFlags::CLOEXEC)?.into());
        }
        Ok(self.file.get().expect("just made"))
    }
}

/// A guard's side.
pub struct Watched {
    file: Option<File>,
}

impl Watched {
    /// To be called once, in a warden, before it has forked: its output becomes what nobody reads.
    pub fn take() -> Watched {
        let file = fcntl_dupfd_cloexec(stdout(), 3).ok().map(File::from);
        if let Ok(null) = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
            let _ = dup2_stdout(&null);
        }
        Watched { file }
    }

    /// How much is left of it; `None` without one.
    pub fn left(&self) -> Option<Duration> {
        let mut moment = [0; 8];
        self.file.as_ref()?.read_exact_at(&mut moment, 0).ok()?;
        let moment = u64::from_le_bytes(moment);
        (moment > 0).then(|| Duration::from_nanos(moment.saturating_sub(nanos(since_boot()))))
    }
}

/// The clock of `Instant`, which is the same in every process of the machine.
fn since_boot() -> Duration {
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
    fn what_is_written_is_read_until_it_is_taken_back() {
        let lease = Lease::default();
        let watched = Watched { file: Some(File::from(lease.for_warden().expect("a file of memory"))) };
        assert_eq!(watched.left(), None, "nothing was promised");
        lease.ends(Some(Instant::now() + Duration::from_secs(3600))).expect("it can be written");
        let left = watched.left().expect("it was promised");
        assert!(left > Duration::from_secs(3000) && left <= Duration::from_secs(3600), "{left:?}");
        lease.ends(Some(Instant::now())).expect("it can be written");
        assert_eq!(watched.left(), Some(Duration::ZERO));
        lease.ends(None).expect("it can be written");
        assert_eq!(watched.left(), None);
        assert_eq!(Watched { file: File::open("/dev/null").ok() }.left(), None, "a warden that nobody gave one");
    }
}
