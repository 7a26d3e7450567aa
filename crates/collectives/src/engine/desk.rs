//! What can be said to a caller at once, without the others and without whoever drives: which process sets there are, which names are in
//! flight, whether the engine has ended. Calls that do not wait enter before they ask; the driver tells what has changed. Holds its lock
//! for moments only, so that a caller never waits for an operation.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::coordinator::{Request, SetId, SubmitError, check_request};
use crate::engine::handle::Slot;

pub struct Desk {
    rank: u32,
    inside: Mutex<Inside>,
}

struct Inside {
    /// Ascending ranks.
    sets: HashMap<SetId, Arc<[u32]>>,
    /// Calls that may have ended meanwhile.
    names: HashMap<(SetId, Arc<str>), Weak<Slot>>,
    /// Names there may be before those that have ended are looked for.
    sweep_at: usize,
    ended: Option<Arc<str>>,
}

const FEW_NAMES: usize = 1024;

impl Desk {
    pub fn new(rank: u32, size: u32) -> Desk {
        let inside = Inside {
            sets: HashMap::from([(SetId::GLOBAL, (0..size).collect())]),
            names: HashMap::new(),
            sweep_at: FEW_NAMES,
            ended: None,
        };
        Desk { rank, inside: Mutex::new(inside) }
    }

    /// Refuses what the member would refuse, all or nothing; then the names are in flight until the slot is done.
    pub fn enter(&self, requests: &mut [Request], grouped: bool, slot: &Arc<Slot>) -> Result<(), SubmitError> {
        let mut inside = self.lock();
        if let Some(text) = &inside.ended {
            return Err(SubmitError::Ended(text.clone()));
        }
        let first = requests.first().map(|first| (first.set, first.device));
        let mut names = HashSet::new();
        let n_requests = requests.len();
        for request in &mut *requests {
            let kind = request.kind;
            let ranks = inside.sets.get(&request.set).ok_or(SubmitError::UnknownSet { kind })?;
            if ranks.binary_search(&self.rank).is_err() {
                return Err(SubmitError::NotMember { kind, rank: self.rank });
            }
            check_request(ranks, request)?;
            let key = (request.set, request.name.clone());
            let in_flight = inside.names.get(&key).is_some_and(is_pending);
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
        if inside.names.len() + n_requests > inside.sweep_at {
            inside.names.retain(|_, slot| is_pending(slot));
            inside.sweep_at = FEW_NAMES.max(2 * (inside.names.len() + n_requests));
        }
        for request in requests {
            inside.names.insert((request.set, request.name.clone()), Arc::downgrade(slot));
        }
        Ok(())
    }

    pub fn open(&self, set: SetId, ranks: &[u32]) {
        self.lock().sets.insert(set, ranks.into());
    }

    pub fn close(&self, set: SetId) {
        self.lock().sets.remove(&set);
    }

    pub fn end(&self, text: &Arc<str>) {
        self.lock().ended.get_or_insert_with(|| text.clone());
    }

    /// By id.
    pub fn sets(&self) -> Vec<(SetId, Arc<[u32]>)> {
        let mut sets: Vec<_> = self.lock().sets.iter().map(|(set, ranks)| (*set, ranks.clone())).collect();
        sets.sort_by_key(|(set, _)| *set);
        sets
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever has it in hand holds it until it is done.
fn is_pending(slot: &Weak<Slot>) -> bool {
    slot.upgrade().is_some_and(|slot| !slot.is_done())
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
        let desk = Desk::new(0, 2);
        let [first, second] = [Slot::new(1), Slot::new(1)];
        desk.enter(&mut [reduction("x")], false, &first).expect("new");
        assert_eq!(desk.enter(&mut [reduction("x")], false, &second), Err(SubmitError::DuplicateName));
        first.settle(Ok(()), |_| {});
        desk.enter(&mut [reduction("x")], false, &second).expect("the first is done");
        drop(second);
        desk.enter(&mut [reduction("x")], false, &first).expect("nobody has the second in hand any more");
    }

    #[test]
    fn a_group_enters_as_a_whole_or_not_at_all() {
        let desk = Desk::new(0, 2);
        let slot = Slot::new(1);
        desk.enter(&mut [reduction("b")], false, &slot).expect("new");
        let mut group = [reduction("a"), reduction("b")];
        assert_eq!(desk.enter(&mut group, true, &slot), Err(SubmitError::DuplicateName));
        desk.enter(&mut [reduction("a")], false, &slot).expect("the group left nothing behind");
        let mut twice = [reduction("c"), reduction("c")];
        assert_eq!(desk.enter(&mut twice, true, &slot), Err(SubmitError::DuplicateName));
        let mut mixed = [reduction("c"), Request { device: 0, ..reduction("d") }];
        assert_eq!(desk.enter(&mut mixed, true, &slot), Err(SubmitError::MixedDevices));
    }

    #[test]
    fn sets_are_known_between_opening_and_closing() {
        let desk = Desk::new(0, 3);
        let (slot, set) = (Slot::new(1), SetId(1));
        let kind = Kind::Allgather;
        let enter = |name| desk.enter(&mut [request(name, kind, set)], false, &slot);
        assert_eq!(enter("x"), Err(SubmitError::UnknownSet { kind }));
        desk.open(set, &[1, 2]);
        assert_eq!(enter("x"), Err(SubmitError::NotMember { kind, rank: 0 }));
        desk.open(set, &[0, 2]);
        assert_eq!(enter("x"), Ok(()));
        assert_eq!(desk.sets().len(), 2);
        let mut odd = [Request { root: 1, ..request("root", Kind::Broadcast, set) }];
        assert_eq!(desk.enter(&mut odd, false, &slot), Err(SubmitError::InvalidRoot { root: 1 }));
        desk.close(set);
        assert_eq!(enter("y"), Err(SubmitError::UnknownSet { kind }));
    }

    #[test]
    fn nothing_enters_after_the_end() {
        let desk = Desk::new(0, 1);
        desk.end(&"over".into());
        desk.end(&"again".into());
        let told = desk.enter(&mut [reduction("x")], false, &Slot::new(1));
        assert_eq!(told, Err(SubmitError::Ended("over".into())));
    }

    #[test]
    fn names_that_have_ended_are_swept() {
        let desk = Desk::new(0, 1);
        for n in 0..10 * FEW_NAMES {
            let slot = Slot::new(1);
            desk.enter(&mut [reduction(&format!("noname.{n}"))], false, &slot).expect("new");
            slot.settle(Ok(()), |_| {});
        }
        assert!(desk.lock().names.len() <= FEW_NAMES);
    }
}
