//! Registry of the node's mount processes and how they end. Unmounts begin together, so that the total wait is that of
//! the slowest. When the node is given up, all share one deadline.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time limit of an unmount; longer than a mount process needs to write back its data.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(25);

/// All mounts of this node that mount processes serve, by mount point.
#[derive(Debug, Default)]
pub struct MountProcesses {
    mounts: Mutex<HashMap<PathBuf, MountEntry>>,
    deadline: EndDeadline,
}

/// A registered mount. Dropping `keep_alive` makes its supervisor unmount it.
#[derive(Debug)]
struct MountEntry {
    keep_alive: Option<Sender<()>>,
    supervisor: JoinHandle<()>,
}

/// Common deadline of all unmounts, set when the node is given up.
#[derive(Clone, Debug, Default)]
pub struct EndDeadline(Arc<OnceLock<Instant>>);

impl MountProcesses {
    pub fn insert(&self, at: &Path, keep_alive: Sender<()>, supervisor: JoinHandle<()>) {
        self.lock().insert(at.to_owned(), MountEntry { keep_alive: Some(keep_alive), supervisor });
    }

    /// Whether one of the mounts is below this directory.
    pub fn any_below(&self, directory: &Path) -> bool {
        self.lock().keys().any(|at| at.starts_with(directory))
    }

    pub fn deadline(&self) -> EndDeadline {
        self.deadline.clone()
    }

    /// Sets one deadline for all mounts, when the node is given up.
    pub fn set_final_deadline(&self) {
        let _ = self.deadline.0.set(Instant::now() + UNMOUNT_TIMEOUT);
    }

    /// Begins to unmount all of these, so that ending them one by one waits for the slowest only.
    pub fn begin_unmount(&self, mount_points: &[PathBuf]) {
        let mut mounts = self.lock();
        for at in mount_points {
            mounts.get_mut(at).map(|entry| entry.keep_alive.take());
        }
    }

    /// Unmounts and returns when the mount process has ended. False if no mount is registered there.
    pub fn unmount(&self, at: &Path) -> bool {
        let mounts = self.lock().remove(at);
        let Some(MountEntry { keep_alive, supervisor }) = mounts else { return false };
        drop(keep_alive);
        let _ = supervisor.join();
        true
    }

    pub fn unmount_all(&self) {
        let all: Vec<MountEntry> = self.lock().drain().map(|(_, mounts)| mounts).collect();
        // Begin all unmounts, then wait for each.
        let supervisors: Vec<_> =
            all.into_iter().map(|MountEntry { keep_alive, supervisor }| (drop(keep_alive), supervisor).1).collect();
        supervisors.into_iter().for_each(|supervisor| drop(supervisor.join()));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, MountEntry>> {
        self.mounts.lock().expect("no one panics while holding the mounts")
    }
}

impl EndDeadline {
    /// Waits until a mount process that was asked to end has ended, and kills it at the deadline. Data that it could not
    /// write back by then is lost; its watchdog unmounts.
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
    fn unmounts_run_concurrently() {
        let (processes, both) = (MountProcesses::default(), Arc::new(Barrier::new(2)));
        let mount_points = ["/a", "/b"].map(PathBuf::from);
        for at in &mount_points {
            let ((keep_alive, closed), both) = (mpsc::channel::<()>(), Arc::clone(&both));
            let supervisor = thread::spawn(move || {
                let _ = closed.recv();
                // Neither ends before both have begun.
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
    fn the_final_deadline_bounds_every_unmount() {
        let processes = MountProcesses::default();
        processes.deadline.0.set(Instant::now()).expect("it was not given up yet");
        processes.set_final_deadline();
        let mut child = Command::new("sleep").arg("600").spawn().expect("it starts");
        processes.deadline().wait_for(&mut child);
        assert!(child.try_wait().expect("it is ours").is_some());
    }
}
