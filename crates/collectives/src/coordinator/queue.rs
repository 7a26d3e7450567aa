//! What is decided and not yet told: one order for all ranks. The coordinator pushes; a drain fuses what is ready and hands
//! every rank its part. Decides nothing but what travels together.

use std::sync::Arc;

use super::entry::Entry;
use super::fusion::{Ahead, Candidate, Limits, fuse};
use super::message::{Area, CacheId, Item, ToMember};
use super::tally::{SlotIdx, Tally};

#[derive(Debug)]
pub struct Queue {
    everybody: Arc<[u32]>,
    queued: Vec<Option<Queued>>,
    /// Ids without a meaning from now on, told after everything that may still use them.
    lost: Vec<(Arc<[u32]>, Vec<CacheId>)>,
    /// Per rank, kept for their memory.
    streams: Vec<Vec<ToMember>>,
}

#[derive(Debug)]
pub enum Queued {
    Tensor(ReadyTensor),
    Tell(Arc<[u32]>, ToMember),
    TellOne(u32, ToMember),
}

#[derive(Debug)]
pub struct ReadyTensor {
    area: Area,
    members: Arc<[u32]>,
    entry: Arc<Entry>,
    id: Option<CacheId>,
    is_new: bool,
    /// Places that have joined and supply zeros.
    absent: Vec<u32>,
    group: Option<u64>,
}

impl ReadyTensor {
    pub fn new(tally: &Tally, slot: SlotIdx, entry: Arc<Entry>, id: Option<CacheId>, is_new: bool) -> ReadyTensor {
        let (absent, group) = (tally.absent(slot), tally.slots[slot].group);
        ReadyTensor { area: tally.area, members: tally.members.clone(), entry, id, is_new, absent, group }
    }

    fn candidate(&self) -> Candidate<'_> {
        Candidate { terms: self.entry.terms(), bytes: self.entry.bytes(), group: self.group }
    }

    fn item_for(&self, place: usize) -> Item {
        match self.id {
            Some(id) if !self.is_new => Item::Cached(id),
            id => self.entry.item_for(place, id),
        }
    }
}

impl Queue {
    pub fn new(size: u32) -> Queue {
        let streams = (0..size).map(|_| Vec::new()).collect();
        Queue { everybody: (0..size).collect(), queued: Vec::new(), lost: Vec::new(), streams }
    }

    pub fn push(&mut self, queued: Queued) {
        self.queued.push(Some(queued));
    }

    pub fn tell_all(&mut self, message: ToMember) {
        self.push(Queued::Tell(self.everybody.clone(), message));
    }

    pub fn lose(&mut self, members: &Arc<[u32]>, id: CacheId) {
        match self.lost.iter_mut().find(|(told, _)| Arc::ptr_eq(told, members)) {
            Some((_, ids)) => ids.push(id),
            None => self.lost.push((members.clone(), vec![id])),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    pub fn drain(&mut self, limits: Limits, mut send: impl FnMut(u32, &[ToMember])) {
        for at in 0..self.queued.len() {
            match self.queued[at].take() {
                None => {}
                Some(Queued::Tensor(first)) => self.perform(at, first, limits),
                Some(Queued::Tell(to, message)) => {
                    to.iter().for_each(|rank| self.streams[*rank as usize].push(message.clone()));
                }
                Some(Queued::TellOne(to, message)) => self.streams[to as usize].push(message),
            }
        }
        self.queued.clear();
        for (members, ids) in self.lost.drain(..) {
            let ids: Arc<[CacheId]> = ids.into();
            members.iter().for_each(|rank| self.streams[*rank as usize].push(ToMember::Evicted(ids.clone())));
        }
        for (rank, stream) in self.streams.iter_mut().enumerate() {
            if !stream.is_empty() {
                send(rank as u32, stream);
                stream.clear();
            }
        }
    }

    fn perform(&mut self, at: usize, first: ReadyTensor, limits: Limits) {
        let mut positions = Vec::new();
        let later = &self.queued[at + 1..];
        if !later.is_empty() {
            let ahead = later.iter().map(|queued| match queued {
                Some(Queued::Tensor(tensor)) if tensor.area == first.area => Ahead::Candidate(tensor.candidate()),
                Some(Queued::Tensor(_) | Queued::TellOne(..)) | None => Ahead::Unrelated,
                Some(Queued::Tell(_, ToMember::Error { .. } | ToMember::Barrier(_))) => Ahead::Unrelated,
                Some(Queued::Tell(..)) => Ahead::Fence,
            });
            fuse(first.candidate(), ahead, limits, |position| positions.push(at + 1 + position));
        }
        let others = positions.into_iter().map(|position| match self.queued[position].take() {
            Some(Queued::Tensor(tensor)) => tensor,
            _ => unreachable!("only tensors are candidates"),
        });
        let tensors: Vec<ReadyTensor> = std::iter::once(first).chain(others).collect();
        let is_personal = tensors.iter().any(|tensor| tensor.is_new && tensor.entry.is_personal());
        let is_whole = tensors.iter().all(|tensor| tensor.absent.is_empty());
        let items_for = |place: usize| -> Arc<[Item]> { tensors.iter().map(|tensor| tensor.item_for(place)).collect() };
        let shared = items_for(0);
        for (place, rank) in tensors[0].members.iter().enumerate() {
            let items = if is_personal { items_for(place) } else { shared.clone() };
            let zeros = if is_whole {
                Vec::new()
            } else {
                let absent = |(_, tensor): &(usize, &ReadyTensor)| tensor.absent.contains(&(place as u32));
                tensors.iter().enumerate().filter(absent).map(|(item, _)| item as u32).collect()
            };
            self.streams[*rank as usize].push(ToMember::Perform { items, zeros });
        }
    }
}
