//! The connections of a listener as tasks of bounded number. At the bound, the oldest one whose peer has not proved itself gives
//! way to the new one, so that peers that say nothing keep nobody out; where all have, the listener waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::{AbortHandle, JoinSet};

/// Dropping it ends every connection.
pub struct ConnectionSet {
    tasks: JoinSet<()>,
    /// In the order of their arrival; those that ended or were proved since are removed when it matters.
    unproven: VecDeque<(AbortHandle, Proof)>,
    capacity: usize,
    /// Aborted, and not reaped yet.
    n_aborted: usize,
}

/// With this a connection's task says that its peer has proved itself, or has asked for something complete.
#[derive(Clone, Default)]
pub struct Proof(Arc<AtomicBool>);

impl Proof {
    pub fn give(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_given(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl ConnectionSet {
    pub fn new(capacity: usize) -> Self {
        ConnectionSet { tasks: JoinSet::new(), unproven: VecDeque::new(), capacity, n_aborted: 0 }
    }

    /// Whether one more can be taken; if not, wait for [`Self::ended`].
    pub fn has_space(&mut self) -> bool {
        self.n_running() < self.capacity || self.forget_proven()
    }

    /// Starts the task of a new connection.
    pub fn spawn<F: Future<Output = ()> + Send + 'static>(&mut self, serve: impl FnOnce(Proof) -> F) {
        if self.n_running() >= self.capacity
            && self.forget_proven()
            && let Some((oldest, _)) = self.unproven.pop_front()
        {
            oldest.abort();
            self.n_aborted += 1;
        }
        let proof = Proof::default();
        let task = self.tasks.spawn(serve(proof.clone()));
        self.unproven.push_back((task, proof));
        if self.unproven.len() > 2 * self.capacity {
            self.forget_proven();
        }
    }

    /// Returns when a connection has ended; never where there is none.
    pub async fn ended(&mut self) {
        match self.tasks.join_next().await {
            Some(ended) => self.n_aborted -= usize::from(ended.is_err_and(|error| error.is_cancelled())),
            None => std::future::pending().await,
        }
    }

    /// Waits for all of them.
    pub async fn finish(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    fn n_running(&self) -> usize {
        self.tasks.len() - self.n_aborted
    }

    /// Whether any is left.
    fn forget_proven(&mut self) -> bool {
        self.unproven.retain(|(task, proof)| !task.is_finished() && !proof.is_given());
        !self.unproven.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    /// Says who it was when it ends, however that happens.
    struct Tells(usize, mpsc::UnboundedSender<usize>);

    impl Drop for Tells {
        fn drop(&mut self) {
            let _ = self.1.send(self.0);
        }
    }

    #[tokio::test]
    async fn the_oldest_unproven_gives_way_and_the_proven_stay() {
        let (sender, mut over) = mpsc::unbounded_channel();
        let mut set = ConnectionSet::new(3);
        let start = |set: &mut ConnectionSet, number: usize, is_proven: bool| {
            let tells = Tells(number, sender.clone());
            set.spawn(move |proof| async move {
                if is_proven {
                    proof.give();
                }
                let _tells = tells;
                std::future::pending::<()>().await;
            });
        };
        for number in 0..3 {
            assert!(set.has_space());
            start(&mut set, number, number == 0);
            tokio::task::yield_now().await;
        }
        for (number, gives_way) in [(3, 1), (4, 2)] {
            assert!(set.has_space());
            start(&mut set, number, true);
            assert_eq!(over.recv().await, Some(gives_way));
            set.ended().await;
        }
        tokio::task::yield_now().await;
        assert!(!set.has_space(), "all that are left have proved themselves");
        drop(set);
        let mut left: Vec<usize> = vec![over.recv().await.expect("one"), over.recv().await.expect("two")];
        left.push(over.recv().await.expect("three"));
        left.sort_unstable();
        assert_eq!(left, [0, 3, 4]);
    }
}
