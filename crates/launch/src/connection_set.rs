//! A bounded set of connection tasks of a listener. At capacity, the oldest unauthenticated connection is aborted for
//! a new one, so that silent peers do not exclude others; if all are authenticated, the listener waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::{AbortHandle, JoinSet};

/// Dropping it aborts all connections.
pub struct ConnectionSet {
    tasks: JoinSet<()>,
    /// In order of arrival. Entries of connections that have ended or authenticated are removed lazily.
    unauthenticated: VecDeque<(AbortHandle, AuthFlag)>,
    capacity: usize,
    /// Tasks that were aborted and not joined yet.
    n_aborted: usize,
}

/// Set by a connection's task when its peer has authenticated, or has sent a complete request.
#[derive(Clone, Default)]
pub struct AuthFlag(Arc<AtomicBool>);

impl AuthFlag {
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl ConnectionSet {
    pub fn new(capacity: usize) -> Self {
        ConnectionSet { tasks: JoinSet::new(), unauthenticated: VecDeque::new(), capacity, n_aborted: 0 }
    }

    /// Whether another connection can be accepted; if not, wait for [`Self::ended`].
    pub fn has_space(&mut self) -> bool {
        self.n_running() < self.capacity || self.drop_authenticated()
    }

    /// Starts the task of a new connection.
    pub fn spawn<F: Future<Output = ()> + Send + 'static>(&mut self, serve: impl FnOnce(AuthFlag) -> F) {
        if self.n_running() >= self.capacity
            && self.drop_authenticated()
            && let Some((oldest, _)) = self.unauthenticated.pop_front()
        {
            oldest.abort();
            self.n_aborted += 1;
        }
        let auth_flag = AuthFlag::default();
        let task = self.tasks.spawn(serve(auth_flag.clone()));
        self.unauthenticated.push_back((task, auth_flag));
        if self.unauthenticated.len() > 2 * self.capacity {
            self.drop_authenticated();
        }
    }

    /// Returns when a connection has ended; never if there is none.
    pub async fn ended(&mut self) {
        match self.tasks.join_next().await {
            Some(ended) => self.n_aborted -= usize::from(ended.is_err_and(|error| error.is_cancelled())),
            None => std::future::pending().await,
        }
    }

    /// Waits until all connections have ended.
    pub async fn finish(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    fn n_running(&self) -> usize {
        self.tasks.len() - self.n_aborted
    }

    /// Removes entries that have ended or authenticated; true if any is left.
    fn drop_authenticated(&mut self) -> bool {
        self.unauthenticated.retain(|(task, auth_flag)| !task.is_finished() && !auth_flag.is_set());
        !self.unauthenticated.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    /// Sends its number when it is dropped.
    struct ReportsDrop(usize, mpsc::UnboundedSender<usize>);

    impl Drop for ReportsDrop {
        fn drop(&mut self) {
            let _ = self.1.send(self.0);
        }
    }

    #[tokio::test]
    async fn the_oldest_unauthenticated_is_aborted_and_authenticated_ones_stay() {
        let (sender, mut over) = mpsc::unbounded_channel();
        let mut set = ConnectionSet::new(3);
        let start = |set: &mut ConnectionSet, number: usize, is_authenticated: bool| {
            let reports_drop = ReportsDrop(number, sender.clone());
            set.spawn(move |auth_flag| async move {
                if is_authenticated {
                    auth_flag.set();
                }
                let _reports_drop = reports_drop;
                std::future::pending::<()>().await;
            });
        };
        for number in 0..3 {
            assert!(set.has_space());
            start(&mut set, number, number == 0);
            tokio::task::yield_now().await;
        }
        for (number, aborted) in [(3, 1), (4, 2)] {
            assert!(set.has_space());
            start(&mut set, number, true);
            assert_eq!(over.recv().await, Some(aborted));
            set.ended().await;
        }
        tokio::task::yield_now().await;
        assert!(!set.has_space(), "all that are left are authenticated");
        drop(set);
        let mut left: Vec<usize> = vec![over.recv().await.expect("one"), over.recv().await.expect("two")];
        left.push(over.recv().await.expect("three"));
        left.sort_unstable();
        assert_eq!(left, [0, 3, 4]);
    }
}
