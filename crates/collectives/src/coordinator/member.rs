//! One rank's side: takes what the user submits, tells the coordinator in as few bytes as it can, and turns the answers into
//! things to do, in order. The engine of every rank enters. Performs nothing itself.

mod action;
mod answers;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::ids::IdMap;
use super::message::{Area, CacheId, GLOBAL_AREA, Kind, Request, SetId, SetMade, Submitted, ToCoordinator, Token};
use super::room::{Known, Pending, Room, check_request};
use super::tally::BARRIER_NAME;
use super::text::SubmitError;

pub use action::{Action, ProtocolError, Tensor};

#[derive(Clone, Copy, Debug)]
pub struct MemberConfig {
    pub rank: u32,
    pub size: u32,
    /// `HOROVOD_DYNAMIC_PROCESS_SETS`.
    pub dynamic_sets: bool,
}

#[derive(Debug)]
pub struct Member {
    config: MemberConfig,
    by_set: IdMap<SetId, usize>,
    by_area: IdMap<Area, usize>,
    rooms: Vec<Option<Room>>,
    /// Room and name of everything that has an id.
    by_id: IdMap<CacheId, (usize, usize, Arc<Known>)>,
    set_wishes: VecDeque<(Token, Duration)>,
    outgoing: Vec<ToCoordinator>,
    next_token: Token,
    n_submissions: u64,
    n_pending: usize,
    /// Why nothing can be submitted any more.
    ended: Option<Arc<str>>,
}

impl Member {
    pub fn new(config: MemberConfig) -> Member {
        let mut member = Member {
            config,
            by_set: IdMap::default(),
            by_area: IdMap::default(),
            rooms: Vec::new(),
            by_id: IdMap::default(),
            set_wishes: VecDeque::new(),
            outgoing: Vec::new(),
            next_token: 1,
            n_submissions: 0,
            n_pending: 0,
            ended: None,
        };
        let ranks = (0..config.size).collect();
        member.open(&SetMade { id: SetId::GLOBAL, area: GLOBAL_AREA, ranks });
        member
    }

    /// All of them or none. A group is released when all of it is ready on all ranks.
    pub fn submit(
        &mut self,
        mut requests: Vec<Request>,
        grouped: bool,
        now: Duration,
    ) -> Result<Vec<Token>, SubmitError> {
        self.check_all(&mut requests, grouped)?;
        let submission = self.count_submission();
        let first = self.next_token;
        let n_requests = requests.len() as u64;
        let items = requests.into_iter().map(|request| self.enter(request, submission, grouped, now)).collect();
        self.outgoing.push(ToCoordinator::Submit { grouped, items });
        Ok((first..first + n_requests).collect())
    }

    /// As [`Member::submit`], for one: without its lists.
    pub fn submit_one(&mut self, mut request: Request, now: Duration) -> Result<Token, SubmitError> {
        self.check_all(std::slice::from_mut(&mut request), false)?;
        let submission = self.count_submission();
        let token = self.next_token;
        let message = match self.enter(request, submission, false, now) {
            Submitted::Hit(id) => ToCoordinator::Hit(id),
            full => ToCoordinator::Submit { grouped: false, items: vec![full] },
        };
        self.outgoing.push(message);
        Ok(token)
    }

    pub fn barrier(&mut self, set: SetId, now: Duration) -> Result<Token, SubmitError> {
        let at = self.room_for(set, Kind::Barrier)?;
        let room = self.rooms[at].as_mut().expect("looked up just now");
        if room.barrier.is_some() {
            return Err(SubmitError::DuplicateName);
        }
        let token = self.next_token;
        room.barrier = Some((token, now));
        self.outgoing.push(ToCoordinator::Barrier(room.area));
        self.took_token();
        Ok(token)
    }

    pub fn join(&mut self, set: SetId, now: Duration) -> Result<Token, SubmitError> {
        let at = self.room_for(set, Kind::Join)?;
        let room = self.rooms[at].as_mut().expect("looked up just now");
        if room.join.is_some() {
            return Err(SubmitError::DuplicateName);
        }
        let token = self.next_token;
        room.join = Some((token, now));
        self.outgoing.push(ToCoordinator::Join(room.area));
        self.took_token();
        Ok(token)
    }

    /// The process sets given at init. Collective over all ranks, like the next two.
    pub fn register_sets(&mut self, sets: Vec<Vec<u32>>, now: Duration) -> Result<Token, SubmitError> {
        self.wish(ToCoordinator::Register(sets), now)
    }

    pub fn add_set(&mut self, ranks: Vec<u32>, now: Duration) -> Result<Token, SubmitError> {
        if !self.config.dynamic_sets {
            return Err(SubmitError::DynamicSetsOff);
        }
        self.wish(ToCoordinator::AddSet(ranks), now)
    }

    pub fn remove_set(&mut self, set: SetId, now: Duration) -> Result<Token, SubmitError> {
        if !self.config.dynamic_sets {
            return Err(SubmitError::DynamicSetsOff);
        }
        let room = self.by_set.get(&set).and_then(|at| self.rooms[*at].as_ref()).filter(|_| set != SetId::GLOBAL);
        let area = room.ok_or(SubmitError::NotRemovable { set })?.area;
        self.wish(ToCoordinator::RemoveSet(area), now)
    }

    /// Asks for the end of the job. Pending operations fail when the coordinator has told everybody.
    pub fn shut_down(&mut self) {
        if self.ended.is_none() {
            self.outgoing.push(ToCoordinator::Shutdown);
        }
    }

    /// Ends this rank's side at once, for example when a peer is gone. What was pending has failed with `text`, as will what comes.
    pub fn abort(&mut self, text: &str) -> Vec<Token> {
        if self.ended.is_none() {
            self.ended = Some(text.into());
        }
        self.outgoing.clear();
        self.take_all_pending()
    }

    /// What the coordinator has to be sent, in order.
    pub fn drain_outgoing(&mut self) -> std::vec::Drain<'_, ToCoordinator> {
        self.outgoing.drain(..)
    }

    pub fn n_pending(&self) -> usize {
        self.n_pending
    }

    /// Everything this rank waits for: set, name and since when.
    pub fn pending(&self) -> impl Iterator<Item = (SetId, &str, Duration)> {
        self.rooms.iter().flatten().flat_map(|room| {
            let tensors = room.names.iter().filter_map(|name| Some((&*name.name, name.pending.as_ref()?.since)));
            let barrier = room.barrier.map(|(_, since)| (BARRIER_NAME, since));
            let join = room.join.map(|(_, since)| ("join.noname", since));
            tensors.chain(barrier).chain(join).map(|(name, since)| (room.id, name, since))
        })
    }

    /// The members of a set that is registered, ascending.
    pub fn ranks_of(&self, set: SetId) -> Option<&Arc<[u32]>> {
        self.by_set.get(&set).and_then(|at| self.rooms[*at].as_ref()).map(|room| &room.ranks)
    }

    fn check_all(&mut self, requests: &mut [Request], grouped: bool) -> Result<(), SubmitError> {
        let first = requests.first().map(|first| (first.set, first.device));
        let mut names = HashSet::new();
        let n_requests = requests.len();
        for request in requests {
            let room = self.room_for(request.set, request.kind)?;
            let room = self.rooms[room].as_ref().expect("looked up just now");
            check_request(&room.ranks, request)?;
            let in_flight = room.find(&request.name).is_some_and(|at| room.names[at].pending.is_some());
            if in_flight || (n_requests > 1 && !names.insert((request.set, &*request.name))) {
                return Err(SubmitError::DuplicateName);
            }
            if grouped && first.is_some_and(|(set, _)| set != request.set) {
                return Err(SubmitError::MixedSets);
            }
            if grouped && first.is_some_and(|(_, device)| device != request.device) {
                return Err(SubmitError::MixedDevices);
            }
        }
        Ok(())
    }

    /// Notes a checked request and says how to ask for it.
    fn enter(&mut self, request: Request, submission: u64, grouped: bool, now: Duration) -> Submitted {
        let at = self.by_set[&request.set];
        let room = self.rooms[at].as_mut().expect("a checked set is open");
        let name = room.find_or_make(&request.name);
        let as_known = match &room.names[name].known {
            Some((id, known)) if room.is_as_known(known, &request) => Some(*id),
            _ => None,
        };
        let submitted = match as_known {
            Some(id) => Submitted::Hit(id),
            None => Submitted::Full(room.area, Box::new(request.clone())),
        };
        let token = self.next_token;
        room.names[name].pending = Some(Pending { token, submission, grouped, request, since: now });
        self.took_token();
        submitted
    }

    fn wish(&mut self, message: ToCoordinator, now: Duration) -> Result<Token, SubmitError> {
        self.check_alive()?;
        let token = self.next_token;
        self.set_wishes.push_back((token, now));
        self.outgoing.push(message);
        self.took_token();
        Ok(token)
    }

    fn room_for(&self, set: SetId, kind: Kind) -> Result<usize, SubmitError> {
        self.check_alive()?;
        let at = *self.by_set.get(&set).ok_or(SubmitError::UnknownSet { kind })?;
        let room = self.rooms[at].as_ref().expect("a set that has an id is open");
        room.place.map(|_| at).ok_or(SubmitError::NotMember { kind, rank: self.config.rank })
    }

    fn check_alive(&self) -> Result<(), SubmitError> {
        self.ended.clone().map_or(Ok(()), |text| Err(SubmitError::Ended(text)))
    }

    fn took_token(&mut self) {
        self.next_token += 1;
        self.n_pending += 1;
    }

    fn count_submission(&mut self) -> u64 {
        self.n_submissions += 1;
        self.n_submissions - 1
    }

    fn open(&mut self, set: &SetMade) {
        let free = self.rooms.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            self.rooms.push(None);
            self.rooms.len() - 1
        });
        self.rooms[at] = Some(Room::new(set.id, set.area, set.ranks.as_slice().into(), self.config.rank));
        self.by_set.insert(set.id, at);
        self.by_area.insert(set.area, at);
    }
}

#[cfg(test)]
impl Member {
    /// How much is kept, for tests of what must not grow.
    pub fn footprint(&self) -> super::core::Footprint {
        let rooms = || self.rooms.iter().flatten();
        super::core::Footprint {
            n_ids: self.by_id.len(),
            n_names: rooms().map(Room::n_names).sum(),
            n_slots: rooms().map(|room| room.names.len()).sum(),
        }
    }
}
