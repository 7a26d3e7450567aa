//! Slow work that a pass starts and a later pass finds finished: removing files, ending agents. At most one run per key at a time,
//! on a blocking thread. A pass never waits for it.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Pause before failed work is started again.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Longest pause with backoff.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Work of one kind, by key.
pub struct BackgroundWork<K> {
    running: HashMap<K, WorkState>,
    /// Notified when a run ends.
    finished: Arc<Notify>,
    max_pause: Duration,
}

enum WorkState {
    /// With the pause to make if it fails.
    Running(JoinHandle<bool>, Duration),
    Failed(Instant, Duration),
}

impl<K: Clone + Eq + Hash + Ord + Send + 'static> BackgroundWork<K> {
    /// Work for which "not yet" is an ordinary result: always retried after the same pause.
    pub fn new(finished: Arc<Notify>) -> Self {
        Self { running: HashMap::new(), finished, max_pause: FIRST_PAUSE }
    }

    /// Work whose failures have a cause: the pause doubles.
    pub fn with_backoff(finished: Arc<Notify>) -> Self {
        Self { max_pause: MAX_PAUSE, ..Self::new(finished) }
    }

    /// Removes and returns the keys whose work succeeded since the last call.
    pub async fn take_finished(&mut self) -> BTreeSet<K> {
        let mut done = BTreeSet::new();
        for (key, item) in &mut self.running {
            let WorkState::Running(handle, pause) = item else { continue };
            let pause = *pause;
            if handle.is_finished() {
                match handle.await {
                    Ok(true) => _ = done.insert(key.clone()),
                    _ => *item = WorkState::Failed(Instant::now(), pause),
                }
            }
        }
        self.running.retain(|key, _| !done.contains(key));
        done
    }

    /// Starts the work unless it is running or pausing. `work` returns whether it succeeded.
    pub fn start(&mut self, key: K, work: impl FnOnce() -> bool + Send + 'static) {
        let pause = match self.running.get(&key) {
            Some(WorkState::Running(..)) => return,
            Some(WorkState::Failed(at, pause)) if at.elapsed() < *pause => return,
            Some(WorkState::Failed(_, pause)) => (*pause * 2).min(self.max_pause),
            None => FIRST_PAUSE,
        };
        let finished = self.finished.clone();
        let handle = tokio::task::spawn_blocking(move || {
            let succeeded = work();
            finished.notify_one();
            succeeded
        });
        self.running.insert(key, WorkState::Running(handle, pause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_runs_once_and_is_retried_when_it_failed() {
        let finished = Arc::new(Notify::new());
        let mut work = BackgroundWork::new(finished.clone());
        let (hold, held) = std::sync::mpsc::channel::<bool>();
        work.start("a", move || held.recv().expect("the test sends"));
        work.start("a", || panic!("it runs already"));
        hold.send(true).expect("it waits");
        finished.notified().await;
        let mut done = BTreeSet::new();
        while done.is_empty() {
            done = work.take_finished().await;
            tokio::task::yield_now().await;
        }
        assert_eq!(done, BTreeSet::from(["a"]));
        work.start("b", || false);
        finished.notified().await;
        assert!(work.take_finished().await.is_empty());
    }
}
