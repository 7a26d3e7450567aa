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
const END_WITHIN: Duration = Duration::from_secs(25);

#[derive(Debug, Default)]
pub struct Lives {
    held: Mutex<HashMap<PathBuf, Held>>,
    end_by: EndBy,
}

/// Dropping the sender begins to end the mount.
#[derive(Debug)]
struct Held {
    open: Option<Sender<()>>,
    keeper: JoinHandle<()>,
}

/// By when all of them are to have ended; never before the node is given up.
#[derive(Clone, Debug, Default)]
pub struct EndBy(Arc<OnceLock<Instant>>);

impl Lives {
    pub fn hold(&self, at: &Path, open: Sender<()>, keeper: JoinHandle<()>) {
        self.lock().insert(at.to_owned(), Held { open: Some(open), keeper });
    }

    /// Is something of ours mounted in this directory?
    pub fn any_in(&self, directory: &Path) -> bool {
        self.lock().keys().any(|at| at.starts_with(directory))
    }

    pub fn end_by(&self) -> EndBy {
        self.end_by.clone()
    }

    /// The node is given up: whatever is mounted has one deadline from now on, not one each.
    pub fn give_up(&self) {
        let _ = self.end_by.0.set(Instant::now() + END_WITHIN);
    }

    /// Begins to unmount at all these places; whoever then ends one after the other waits for the slowest only.
    pub fn begin_to_end(&self, places: &[PathBuf]) {
        let mut held = self.lock();
        for at in places {
            held.get_mut(at).map(|held| held.open.take());
        }
    }

    /// Unmounts, and returns when the mount process is gone. False when nothing of ours was mounted there.
    pub fn end(&self, at: &Path) -> bool {
        let held = self.lock().remove(at);
        let Some(Held { open, keeper }) = held else { return false };
        drop(open);
        let _ = keeper.join();
        true
    }

    pub fn end_all(&self) {
        let all: Vec<Held> = self.lock().drain().map(|(_, held)| held).collect();
        // All at once, then each is waited for.
        let keepers: Vec<_> = all.into_iter().map(|Held { open, keeper }| (drop(open), keeper).1).collect();
        keepers.into_iter().for_each(|keeper| drop(keeper.join()));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, Held>> {
        self.held.lock().expect("no one panics while holding the mounts")
    }
}

impl EndBy {
    /// Waits until a mount process that was told to end has done so. What it could not bring to the server in time is lost;
    /// its watcher unmounts.
    pub fn wait_for(&self, child: &mut Child) {
        let own = Instant::now() + END_WITHIN;
        let by = || self.0.get().map_or(own, |all| own.min(*all));
        while Instant::now() < by() && matches!(child.try_wait(), Ok(None)) {
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
        let (lives, both) = (Lives::default(), Arc::new(Barrier::new(2)));
        let places = ["/a", "/b"].map(PathBuf::from);
        for at in &places {
            let ((open, closed), both) = (mpsc::channel::<()>(), Arc::clone(&both));
            let keeper = thread::spawn(move || {
                let _ = closed.recv();
                // Neither ends before the other has begun to.
                both.wait();
            });
            lives.hold(at, open, keeper);
        }
        lives.begin_to_end(&places);
        assert!(lives.end(&places[0]) && lives.end(&places[1]) && !lives.end(&places[0]));
    }

    #[test]
    fn nobody_waits_beyond_the_end_of_all() {
        let lives = Lives::default();
        lives.end_by.0.set(Instant::now()).expect("it was not given up yet");
        lives.give_up();
        let mut child = Command::new("sleep").arg("600").spawn().expect("it starts");
        lives.end_by().wait_for(&mut child);
        assert!(child.try_wait().expect("it is ours").is_some());
    }
}
