//! The scope `corro_elastic` of the rendezvous server: processes of an elastic training ask for their places here, and wait for notifications.
//! Holds what the driver has decided; decides nothing. All answers are long polls.
//!
//! `place.<process>.<after>`: the place in a generation later than `after` (`corro_elastic::place_text`), or `dismissed`. `update.<generation>`: the
//! change that its members were notified of. 410 with a reason once the training is over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corro_elastic::{Change, DISMISSED, Generation, Member, ProcessId, place_text};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Decisions of the driver, and the requests that wait for them.
#[derive(Debug, Default)]
pub struct ElasticScope {
    state: Mutex<State>,
    /// Wakes all long polls of the scope.
    changed: Notify,
    /// Wakes the driver's loop: see `waiting`.
    asked: Notify,
}

#[derive(Debug, Default)]
struct State {
    processes: BTreeSet<ProcessId>,
    generation: Generation,
    /// Each process's place in the generation it was a member of last.
    places: BTreeMap<ProcessId, Place>,
    dismissed: BTreeSet<ProcessId>,
    /// Requests that the driver has not seen: a process, and the generation it has left.
    waiting: BTreeMap<ProcessId, Generation>,
    /// The notification of the current generation.
    change: Option<Change>,
    /// The first process of the current generation that ended: its rank, and how.
    failed: Option<Arc<[u8]>>,
    over: Option<String>,
}

#[derive(Debug)]
struct Place {
    generation: Generation,
    rank: usize,
    text: String,
}

/// Status and body of an answer.
type Answer = (u16, Option<Arc<[u8]>>);

impl ElasticScope {
    /// Lets a started process ask. Others get 404.
    pub fn add_process(&self, process: ProcessId) {
        self.state().processes.insert(process);
    }

    /// Waits until processes ask for places, and returns them with the generations they have left. Cancel safe.
    pub async fn next_waiting(&self) -> BTreeMap<ProcessId, Generation> {
        loop {
            let asked = self.asked.notified();
            let waiting = std::mem::take(&mut self.state().waiting);
            if !waiting.is_empty() {
                return waiting;
            }
            asked.await;
        }
    }

    /// Answers the members of a generation.
    pub(super) fn begin(&self, generation: Generation, members: &[Member]) {
        let mut state = self.state();
        for member in members {
            let text = place_text(generation, member, members.len());
            state.places.insert(member.process, Place { generation, rank: member.rank, text });
        }
        (state.generation, state.change, state.failed) = (generation, None, None);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Answers a process, now or when it asks, that it is not part of the training any more.
    pub fn dismiss(&self, process: ProcessId) {
        self.state().dismissed.insert(process);
        self.changed.notify_waiters();
    }

    /// Notifies the members of a generation.
    pub fn notify(&self, generation: Generation, change: Change) {
        let mut state = self.state();
        if state.generation == generation {
            state.change = Some(change);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Answers all requests from now on that the training is over.
    pub fn finish(&self, reason: &str) {
        self.state().over = Some(reason.to_owned());
        self.changed.notify_waiters();
    }

    /// Records the end of a process. Returns its rank if it was a member of the current generation.
    pub(super) fn record_exit(&self, process: ProcessId, describe: impl Fn(usize) -> String) -> Option<usize> {
        let mut state = self.state();
        state.processes.remove(&process);
        state.dismissed.remove(&process);
        state.waiting.remove(&process);
        let place = state.places.remove(&process)?;
        let is_member = place.generation == state.generation;
        if is_member && state.failed.is_none() {
            state.failed = Some(format!("{} {}", place.rank, describe(place.rank)).into_bytes().into());
        }
        is_member.then_some(place.rank)
    }

    /// Why the rendezvous of a generation cannot succeed any more.
    pub(super) fn failed(&self, generation: Generation) -> Option<Arc<[u8]>> {
        let state = self.state();
        state.failed.clone().filter(|_| state.generation == generation)
    }

    /// The answer to a request, once there is one; 404 when the time is over.
    pub(super) async fn get(&self, key: &str, wait: Duration) -> Answer {
        let Some(request) = parse(key) else { return (400, None) };
        let deadline = Instant::now() + wait;
        loop {
            // Subscribed before the lookup, so that no change in between is missed.
            let changed = self.changed.notified();
            if let Some((status, text)) = self.answer(request) {
                return (status, Some(text.into_bytes().into()));
            }
            if timeout_at(deadline, changed).await.is_err() {
                return (404, None);
            }
        }
    }

    fn answer(&self, request: ElasticRequest) -> Option<(u16, String)> {
        let mut state = self.state();
        match request {
            ElasticRequest::Place { process, .. } if state.dismissed.contains(&process) => {
                Some((200, DISMISSED.to_owned()))
            }
            _ if state.over.is_some() => state.over.clone().map(|reason| (410, reason)),
            ElasticRequest::Place { process, after } => {
                let place = state.places.get(&process).filter(|place| place.generation > after);
                if let Some(place) = place {
                    return Some((200, place.text.clone()));
                }
                if state.processes.contains(&process) && state.waiting.insert(process, after) != Some(after) {
                    self.asked.notify_one();
                }
                None
            }
            ElasticRequest::Update { generation } => {
                let change = state.change.filter(|_| state.generation == generation)?;
                Some((200, (change as u8).to_string()))
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ElasticRequest {
    Place { process: ProcessId, after: Generation },
    Update { generation: Generation },
}

fn parse(key: &str) -> Option<ElasticRequest> {
    if let Some(generation) = key.strip_prefix("update.") {
        return Some(ElasticRequest::Update { generation: generation.parse().ok()? });
    }
    let (process, after) = key.strip_prefix("place.")?.split_once('.')?;
    Some(ElasticRequest::Place { process: process.parse().ok()?, after: after.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(processes: &[ProcessId]) -> Vec<Member> {
        let size = processes.len();
        let member = |(rank, process): (usize, &ProcessId)| Member {
            process: *process,
            host: "a".into(),
            rank,
            local_rank: rank,
            local_size: size,
            cross_rank: 0,
            cross_size: 1,
        };
        processes.iter().enumerate().map(member).collect()
    }

    async fn check(scope: &ElasticScope, key: &str, expected: (u16, &str)) {
        let (status, body) = scope.get(key, Duration::ZERO).await;
        let body = String::from_utf8_lossy(body.as_deref().unwrap_or_default()).into_owned();
        assert_eq!((status, body.as_str()), expected, "{key}");
    }

    #[tokio::test]
    async fn processes_get_the_places_that_the_driver_has_decided() {
        let scope = ElasticScope::default();
        [1, 2].into_iter().for_each(|process| scope.add_process(process));
        for key in ["place.1.0", "place.2.0", "place.7.0", "update.1"] {
            check(&scope, key, (404, "")).await;
        }
        assert_eq!(scope.next_waiting().await, BTreeMap::from([(1, 0), (2, 0)]));
        scope.begin(1, &members(&[1, 2]));
        check(&scope, "place.2.0", (200, "1 1 2 1 2 0 1")).await;
        check(&scope, "place.2.1", (404, "")).await;
        assert_eq!(scope.next_waiting().await, BTreeMap::from([(2, 1)]));
        scope.notify(1, Change::Added);
        check(&scope, "update.1", (200, "2")).await;
        check(&scope, "update.2", (404, "")).await;
        scope.dismiss(1);
        check(&scope, "place.1.1", (200, "dismissed")).await;
        scope.finish("it is done");
        check(&scope, "place.1.1", (200, "dismissed")).await;
        check(&scope, "place.2.1", (410, "it is done")).await;
        check(&scope, "update.1", (410, "it is done")).await;
        for key in ["place.1", "place.x.1", "update.", "other"] {
            check(&scope, key, (400, "")).await;
        }
    }

    #[tokio::test]
    async fn the_end_of_a_process_fails_its_generation_only() {
        let scope = ElasticScope::default();
        [1, 2, 3].into_iter().for_each(|process| scope.add_process(process));
        scope.begin(1, &members(&[1, 2, 3]));
        assert_eq!(scope.record_exit(2, |rank| format!("rank {rank} ended")), Some(1));
        assert_eq!(scope.record_exit(3, |rank| format!("rank {rank} ended")), Some(2));
        assert_eq!(scope.failed(1).as_deref(), Some(&b"1 rank 1 ended"[..]), "the first counts");
        assert_eq!(scope.failed(2), None);
        scope.begin(2, &members(&[1]));
        assert_eq!((scope.failed(1), scope.failed(2)), (None, None));
        assert_eq!(scope.record_exit(9, |_| String::new()), None);
    }

    #[tokio::test]
    async fn a_long_poll_ends_with_the_decision() {
        let scope = Arc::new(ElasticScope::default());
        scope.add_process(1);
        let waiting = Arc::clone(&scope);
        let poll = tokio::spawn(async move { waiting.get("place.1.0", Duration::from_secs(60)).await });
        assert_eq!(scope.next_waiting().await, BTreeMap::from([(1, 0)]));
        scope.begin(1, &members(&[1]));
        let (status, body) = poll.await.expect("no panic");
        assert_eq!((status, body.as_deref()), (200, Some(&b"1 0 1 0 1 0 1"[..])));
    }
}
