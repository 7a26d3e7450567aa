//! Asks the launcher, on a thread of its own, whether the ranks of a generation shall ask for another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corro_collectives::elastic::{ElasticProcess, PlaceError};

pub struct UpdateWatch {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    has_changed: AtomicBool,
    is_over: AtomicBool,
}

/// Length of a long poll; bounds how long the thread outlives its watch.
const POLL_TIME: Duration = Duration::from_secs(2);

impl UpdateWatch {
    pub fn start(process: &ElasticProcess, generation: u64) -> UpdateWatch {
        let shared = Arc::new(Shared::default());
        let (process, of_thread) = (process.clone(), shared.clone());
        let work = move || of_thread.run(&process, generation);
        // Without the thread, the ranks change when one of them ends.
        let _ = std::thread::Builder::new().name("changes".to_owned()).spawn(work);
        UpdateWatch { shared }
    }

    pub fn has_changed(&self) -> bool {
        self.shared.has_changed.load(Ordering::Relaxed)
    }
}

impl Drop for UpdateWatch {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn run(&self, process: &ElasticProcess, generation: u64) {
        while !self.is_over.load(Ordering::Relaxed) {
            match process.wait_for_update(generation, POLL_TIME) {
                Ok(Some(_)) => return self.has_changed.store(true, Ordering::Relaxed),
                Ok(None) => {}
                Err(PlaceError::Over { .. }) => return,
                // The launcher may answer again.
                Err(_) => std::thread::sleep(POLL_TIME),
            }
        }
    }
}
