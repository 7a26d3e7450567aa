//! Slow work that a pass starts and a later pass finds done: removing files, ending agents. Each chore runs at most once at
//! a time, on a thread that may block; a pass never waits for one.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// A chore that did not succeed is begun again after this.
const PAUSE: Duration = Duration::from_millis(250);
/// The longest pause of chores whose pauses grow.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Chores of one kind, by what they are about.
pub struct Chores<K> {
    running: HashMap<K, Chore>,
    /// Rung when one ends.
    news: Arc<Notify>,
    max_pause: Duration,
}

enum Chore {
    /// With the pause that follows when it fails.
    Running(JoinHandle<bool>, Duration),
    Failed(Instant, Duration),
}

impl<K: Clone + Eq + Hash + Ord + Send + 'static> Chores<K> {
    /// Chores of which "not yet" is an ordinary answer: always begun again after the same pause.
    pub fn new(news: Arc<Notify>) -> Self {
        Self { running: HashMap::new(), news, max_pause: PAUSE }
    }

    /// Chores that fail for a reason: pauses double.
    pub fn backing_off(news: Arc<Notify>) -> Self {
        Self { max_pause: MAX_PAUSE, ..Self::new(news) }
    }

    /// Those that have succeeded since the last look, which are then forgotten.
    pub async fn done(&mut self) -> BTreeSet<K> {
        let mut done = BTreeSet::new();
        for (key, chore) in &mut self.running {
            let Chore::Running(handle, pause) = chore else { continue };
            let pause = *pause;
            if handle.is_finished() {
                match handle.await {
                    Ok(true) => _ = done.insert(key.clone()),
                    _ => *chore = Chore::Failed(Instant::now(), pause),
                }
            }
        }
        self.running.retain(|key, _| !done.contains(key));
        done
    }

    /// Begins the chore unless it runs or has just failed. `work` says whether it succeeded.
    pub fn begin(&mut self, key: K, work: impl FnOnce() -> bool + Send + 'static) {
        let pause = match self.running.get(&key) {
            Some(Chore::Running(..)) => return,
            Some(Chore::Failed(at, pause)) if at.elapsed() < *pause => return,
            Some(Chore::Failed(_, pause)) => (*pause * 2).min(self.max_pause),
            None => PAUSE,
        };
        let news = self.news.clone();
        let handle = tokio::task::spawn_blocking(move || {
            let succeeded = work();
            news.notify_one();
            succeeded
        });
        self.running.insert(key, Chore::Running(handle, pause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_chore_runs_once_and_is_tried_again_when_it_failed() {
        let news = Arc::new(Notify::new());
        let mut chores = Chores::new(news.clone());
        let (hold, held) = std::sync::mpsc::channel::<bool>();
        chores.begin("a", move || held.recv().expect("the test sends"));
        chores.begin("a", || panic!("it runs already"));
        hold.send(true).expect("it waits");
        news.notified().await;
        let mut done = BTreeSet::new();
        while done.is_empty() {
            done = chores.done().await;
            tokio::task::yield_now().await;
        }
        assert_eq!(done, BTreeSet::from(["a"]));
        chores.begin("b", || false);
        news.notified().await;
        assert!(chores.done().await.is_empty());
    }
}
