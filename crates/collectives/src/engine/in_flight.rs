//! Submission-time checks that need no lock of the progress engine: known process set, duplicate name in flight, shutdown. Asynchronous
//! submissions pass them first. The lock here is held only briefly, so a caller never waits for a running operation.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::coordinator::{Request, SetId, SubmitError, validate_request};
use crate::engine::handle::Completion;

/// Process sets and names in flight, as far as submitters need to know them.
pub struct SubmissionTable {
    rank: u32,
    state: Mutex<State>,
}

struct State {
    /// Global ranks of each set, ascending.
    sets: HashMap<SetId, Arc<[u32]>>,
    /// Names in flight. Entries of completed calls are removed lazily.
    names: HashMap<(SetId, Arc<str>), Weak<Completion>>,
    /// Number of names from which completed calls are removed.
    sweep_at: usize,
    ended: Option<Arc<str>>,
}

/// Smallest number of names that triggers the removal of completed calls.
const MIN_SWEEP_NAMES: usize = 1024;

impl SubmissionTable {
    pub fn new(rank: u32, size: u32) -> SubmissionTable {
        let state = State {
            sets: HashMap::from([(SetId::GLOBAL, (0..size).collect())]),
            names: HashMap::new(),
            sweep_at: MIN_SWEEP_NAMES,
            ended: None,
        };
        SubmissionTable { rank, state: Mutex::new(state) }
    }

    /// Performs the worker's submission checks on all requests. On success the names are in flight until the completion is done.
    pub fn admit(
        &self,
        requests: &mut [Request],
        grouped: bool,
        completion: &Arc<Completion>,
    ) -> Result<(), SubmitError> {
        let mut state = self.lock();
        if let Some(text) = &state.ended {
            return Err(SubmitError::Ended(text.clone()));
        }
        let first = requests.first().map(|first| (first.set, first.device));
        let mut names = HashSet::new();
        let n_requests = requests.len();
        for request in &mut *requests {
            let kind = request.kind;
            let ranks = state.sets.get(&request.set).ok_or(SubmitError::UnknownSet { kind })?;
            if ranks.binary_search(&self.rank).is_err() {
                return Err(SubmitError::NotMember { kind, rank: self.rank });
            }
            validate_request(ranks, request)?;
            let key = (request.set, request.name.clone());
            let in_flight = state.names.get(&key).is_some_and(is_pending);
            if in_flight || (n_requests > 1 && !names.insert(key)) {
                return Err(SubmitError::DuplicateName);
            }
            if grouped && first.is_some_and(|(set, _)| set != request.set) {
                return Err(SubmitError::MixedSets);
            }
            if grouped && first.is_some_and(|(_, device)| device != request.device) {
                return Err(SubmitError::MixedDevices);
            }
        }
        if state.names.len() + n_requests > state.sweep_at {
            state.names.retain(|_, completion| is_pending(completion));
            state.sweep_at = MIN_SWEEP_NAMES.max(2 * (state.names.len() + n_requests));
        }
        for request in requests {
            state.names.insert((request.set, request.name.clone()), Arc::downgrade(completion));
        }
        Ok(())
    }

    /// Registers a process set.
    pub fn add_set(&self, set: SetId, ranks: &[u32]) {
        self.lock().sets.insert(set, ranks.into());
    }

    /// Removes a process set.
    pub fn remove_set(&self, set: SetId) {
        self.lock().sets.remove(&set);
    }

    /// Rejects all further submissions with this text. The first text counts.
    pub fn shut_down(&self, text: &Arc<str>) {
        self.lock().ended.get_or_insert_with(|| text.clone());
    }

    /// Why the engine has shut down, if it has.
    pub fn ended(&self) -> Option<Arc<str>> {
        self.lock().ended.clone()
    }

    /// Registered sets, ordered by id.
    pub fn sets(&self) -> Vec<(SetId, Arc<[u32]>)> {
        let mut sets: Vec<_> = self.lock().sets.iter().map(|(set, ranks)| (*set, ranks.clone())).collect();
        sets.sort_by_key(|(set, _)| *set);
        sets
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True if the call is neither complete nor dropped.
fn is_pending(completion: &Weak<Completion>) -> bool {
    completion.upgrade().is_some_and(|completion| !completion.is_done())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::Kind;
    use crate::{Dtype, ReduceOp};

    fn request(name: &str, kind: Kind, set: SetId) -> Request {
        Request {
            set,
            kind,
            name: name.into(),
            dtype: Dtype::F32,
            shape: vec![3],
            root: 0,
            device: -1,
            prescale: 1.0,
            postscale: 1.0,
            op: ReduceOp::Sum,
            splits: Vec::new(),
        }
    }

    fn reduction(name: &str) -> Request {
        request(name, Kind::Allreduce, SetId::GLOBAL)
    }

    #[test]
    fn a_name_is_in_flight_until_its_call_is_done() {
        let in_flight = SubmissionTable::new(0, 2);
        let [first, second] = [Completion::new(1), Completion::new(1)];
        in_flight.admit(&mut [reduction("x")], false, &first).expect("new");
        assert_eq!(in_flight.admit(&mut [reduction("x")], false, &second), Err(SubmitError::DuplicateName));
        first.complete_one(Ok(()), |_| {});
        in_flight.admit(&mut [reduction("x")], false, &second).expect("the first is done");
        drop(second);
        in_flight.admit(&mut [reduction("x")], false, &first).expect("the second was dropped");
    }

    #[test]
    fn a_group_is_admitted_as_a_whole_or_not_at_all() {
        let in_flight = SubmissionTable::new(0, 2);
        let completion = Completion::new(1);
        in_flight.admit(&mut [reduction("b")], false, &completion).expect("new");
        let mut group = [reduction("a"), reduction("b")];
        assert_eq!(in_flight.admit(&mut group, true, &completion), Err(SubmitError::DuplicateName));
        in_flight.admit(&mut [reduction("a")], false, &completion).expect("the group left nothing behind");
        let mut twice = [reduction("c"), reduction("c")];
        assert_eq!(in_flight.admit(&mut twice, true, &completion), Err(SubmitError::DuplicateName));
        let mut mixed = [reduction("c"), Request { device: 0, ..reduction("d") }];
        assert_eq!(in_flight.admit(&mut mixed, true, &completion), Err(SubmitError::MixedDevices));
    }

    #[test]
    fn sets_are_known_from_adding_to_removal() {
        let in_flight = SubmissionTable::new(0, 3);
        let (completion, set) = (Completion::new(1), SetId(1));
        let kind = Kind::Allgather;
        let admit = |name| in_flight.admit(&mut [request(name, kind, set)], false, &completion);
        assert_eq!(admit("x"), Err(SubmitError::UnknownSet { kind }));
        in_flight.add_set(set, &[1, 2]);
        assert_eq!(admit("x"), Err(SubmitError::NotMember { kind, rank: 0 }));
        in_flight.add_set(set, &[0, 2]);
        assert_eq!(admit("x"), Ok(()));
        assert_eq!(in_flight.sets().len(), 2);
        let mut odd = [Request { root: 1, ..request("root", Kind::Broadcast, set) }];
        assert_eq!(in_flight.admit(&mut odd, false, &completion), Err(SubmitError::InvalidRoot { root: 1 }));
        in_flight.remove_set(set);
        assert_eq!(admit("y"), Err(SubmitError::UnknownSet { kind }));
    }

    #[test]
    fn nothing_is_admitted_after_shutdown() {
        let in_flight = SubmissionTable::new(0, 1);
        in_flight.shut_down(&"over".into());
        in_flight.shut_down(&"again".into());
        let refused = in_flight.admit(&mut [reduction("x")], false, &Completion::new(1));
        assert_eq!(refused, Err(SubmitError::Ended("over".into())));
    }

    #[test]
    fn completed_names_are_removed() {
        let in_flight = SubmissionTable::new(0, 1);
        for n in 0..10 * MIN_SWEEP_NAMES {
            let completion = Completion::new(1);
            in_flight.admit(&mut [reduction(&format!("noname.{n}"))], false, &completion).expect("new");
            completion.complete_one(Ok(()), |_| {});
        }
        assert!(in_flight.lock().names.len() <= MIN_SWEEP_NAMES);
    }
}
