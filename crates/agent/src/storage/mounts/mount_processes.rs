//! The mounts of a node that mount processes serve: who keeps each, and how they end. Several that end begin together, so that nobody waits for
//! longer than for the slowest; those of a node that is given up have one deadline in all.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// More than a mount process takes to bring away what was written.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(25);

#[derive(Debug, Default)]
pub struct MountProcesses {
    mounts: Mutex<HashMap<PathBuf, MountEntry>>,
    deadline: EndDeadline,
}

/// Dropping the sender begins to end the mount.
#[derive(Debug)]
struct MountEntry {
    keep_alive: Option<Sender<()>>,
    supervisor: JoinHandle<()>,
}

/// By when all of them are to have ended; never before the node is given up.
#[derive(Clone, Debug, Default)]
pub struct EndDeadline(Arc<OnceLock<Instant>>);

impl MountProcesses {
    pub fn insert(&self, at: &Path, keep_alive: Sender<()>, supervisor: JoinHandle<()>) {
        self.lock().insert(at.to_owned(), MountEntry { keep_alive: Some(keep_alive), supervisor });
    }

    /// Is something of ours mounted in this directory?
    pub fn any_below(&self, directory: &Path) -> bool {
        self.lock().keys().any(|at| at.starts_with(directory))
    }

    pub fn deadline(&self) -> EndDeadline {
        self.deadline.clone()
    }

    /// The node is given up: whatever is mounted has one deadline from now on, not one each.
    pub fn set_final_deadline(&self) {
        let _ = self.deadline.0.set(Instant::now() + UNMOUNT_TIMEOUT);
    }

    /// Begins to unmount at all these places; whoever then ends one after the other waits for the slowest only.
    pub fn begin_unmount(&self, mount_points: &[PathBuf]) {
        let mut mounts = self.lock();
        for at in mount_points {
            mounts.get_mut(at).map(|entry| entry.keep_alive.take());
        }
    }

    /// Unmounts, and returns when the mount process is gone. False when nothing of ours was mounted there.
    pub fn unmount(&self, at: &Path) -> bool {
        let mounts = self.lock().remove(at);
        let Some(MountEntry { keep_alive, supervisor }) = mounts else { return false };
        drop(keep_alive);
        let _ = supervisor.join();
        true
    }

    pub fn unmount_all(&self) {
        let all: Vec<MountEntry> = self.lock().drain().map(|(_, mounts)| mounts).collect();
        // All at once, then each is waited for.
        let keepers: Vec<_> =
            all.into_iter().map(|MountEntry { keep_alive, supervisor }| (drop(keep_alive), supervisor).1).collect();
        keepers.into_iter().for_each(|supervisor| drop(supervisor.join()));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, MountEntry>> {
        self.mounts.lock().expect("no one panics while holding the mounts")
    }
}

impl EndDeadline {
    /// Waits until a mount process that was told to end has done so. What it could not bring to the server in time is lost;
    /// its watcher unmounts.
    pub fn wait_for(&self, child: &mut Child) {
        let own = Instant::now() + UNMOUNT_TIMEOUT;
        let deadline = || self.0.get().map_or(own, |all| own.min(*all));
        while Instant::now() < deadline() && matches!(child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(5));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::Barrier;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn several_end_at_the_same_time() {
        let (processes, both) = (MountProcesses::default(), Arc::new(Barrier::new(2)));
        let mount_points = ["/a", "/b"].map(PathBuf::from);
        for at in &mount_points {
            let ((keep_alive, closed), both) = (mpsc::channel::<()>(), Arc::clone(&both));
            let supervisor = thread::spawn(move || {
                let _ = closed.recv();
                // Neither ends before the other has begun to.
                both.wait();
            });
            processes.insert(at, keep_alive, supervisor);
        }
        processes.begin_unmount(&mount_points);
        assert!(
            processes.unmount(&mount_points[0])
                && processes.unmount(&mount_points[1])
                && !processes.unmount(&mount_points[0])
        );
    }

    #[test]
    fn nobody_waits_beyond_the_end_of_all() {
        let processes = MountProcesses::default();
        processes.deadline.0.set(Instant::now()).expect("it was not given up yet");
        processes.set_final_deadline();
        let mut child = Command::new("sleep").arg("600").spawn().expect("it starts");
        processes.deadline().wait_for(&mut child);
        assert!(child.try_wait().expect("it is ours").is_some());
    }
}
