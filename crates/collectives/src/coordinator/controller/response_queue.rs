//! Queue of decisions that have not been sent: one order for all ranks. Draining it fuses ready tensors and distributes the messages to the
//! ranks.

use std::sync::Arc;

use super::fusion::{FusionCandidate, FusionLimits, Lookahead, fuse};
use super::lru_list::SlotIdx;
use super::message_table::MessageTable;
use super::set_response::SetResponse;
use crate::coordinator::message::{ResponseItem, ToWorker};
use crate::coordinator::request::{CacheId, SetGeneration};

/// Messages to workers in the order in which they were decided.
#[derive(Debug)]
pub struct ResponseQueue {
    all_ranks: Arc<[u32]>,
    /// `None` for a tensor that was fused with an earlier one.
    messages: Vec<Option<QueuedMessage>>,
    /// Evicted cache ids by process set, sent after all messages that may still use them.
    evicted: Vec<(Arc<[u32]>, Vec<CacheId>)>,
    /// Per rank; kept between drains for their allocations.
    outboxes: Vec<Vec<ToWorker>>,
}

/// Entry of the queue.
#[derive(Debug)]
pub enum QueuedMessage {
    Tensor(ReadyResponse),
    Multicast(Arc<[u32]>, ToWorker),
    Unicast(u32, ToWorker),
}

/// Response of a complete tensor.
#[derive(Debug)]
pub struct ReadyResponse {
    generation: SetGeneration,
    members: Arc<[u32]>,
    response: Arc<SetResponse>,
    id: Option<CacheId>,
    /// False if the members have the response in their caches.
    is_new: bool,
    /// Set ranks that have joined and contribute zeros.
    joined: Vec<u32>,
    group: Option<u64>,
}

impl ReadyResponse {
    pub fn new(
        table: &MessageTable,
        slot: SlotIdx,
        response: Arc<SetResponse>,
        id: Option<CacheId>,
        is_new: bool,
    ) -> ReadyResponse {
        let (joined, group) = (table.not_requested(slot), table.slots[slot].group);
        ReadyResponse {
            generation: table.generation,
            members: table.members.clone(),
            response,
            id,
            is_new,
            joined,
            group,
        }
    }

    fn candidate(&self) -> FusionCandidate<'_> {
        FusionCandidate { key: self.response.key(), bytes: self.response.bytes(), group: self.group }
    }

    fn item_for(&self, set_rank: usize) -> ResponseItem {
        match self.id {
            Some(id) if !self.is_new => ResponseItem::Cached(id),
            id => self.response.item_for(set_rank, id),
        }
    }
}

impl ResponseQueue {
    pub fn new(size: u32) -> ResponseQueue {
        let outboxes = (0..size).map(|_| Vec::new()).collect();
        ResponseQueue { all_ranks: (0..size).collect(), messages: Vec::new(), evicted: Vec::new(), outboxes }
    }

    pub fn push(&mut self, message: QueuedMessage) {
        self.messages.push(Some(message));
    }

    /// Queues a message to all ranks of the job.
    pub fn send_all(&mut self, message: ToWorker) {
        self.push(QueuedMessage::Multicast(self.all_ranks.clone(), message));
    }

    /// Queues the eviction of a cache id for the members of its set.
    pub fn queue_eviction(&mut self, members: &Arc<[u32]>, id: CacheId) {
        match self.evicted.iter_mut().find(|(ranks, _)| Arc::ptr_eq(ranks, members)) {
            Some((_, ids)) => ids.push(id),
            None => self.evicted.push((members.clone(), vec![id])),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Passes each rank's messages to `send` and empties the queue.
    pub fn drain(&mut self, limits: FusionLimits, mut send: impl FnMut(u32, &[ToWorker])) {
        for position in 0..self.messages.len() {
            match self.messages[position].take() {
                None => {}
                Some(QueuedMessage::Tensor(first)) => self.push_execute(position, first, limits),
                Some(QueuedMessage::Multicast(to, message)) => {
                    to.iter().for_each(|rank| self.outboxes[*rank as usize].push(message.clone()));
                }
                Some(QueuedMessage::Unicast(to, message)) => self.outboxes[to as usize].push(message),
            }
        }
        self.messages.clear();
        for (members, ids) in self.evicted.drain(..) {
            let ids: Arc<[CacheId]> = ids.into();
            members.iter().for_each(|rank| self.outboxes[*rank as usize].push(ToWorker::Evicted(ids.clone())));
        }
        for (rank, outbox) in self.outboxes.iter_mut().enumerate() {
            if !outbox.is_empty() {
                send(rank as u32, outbox);
                outbox.clear();
            }
        }
    }

    /// Fuses later tensors with the one taken from `position` and appends the operation to the members' outboxes.
    fn push_execute(&mut self, position: usize, first: ReadyResponse, limits: FusionLimits) {
        let mut fused = Vec::new();
        let later = &self.messages[position + 1..];
        if !later.is_empty() {
            let ahead = later.iter().map(|message| match message {
                Some(QueuedMessage::Tensor(tensor)) if tensor.generation == first.generation => {
                    Lookahead::Candidate(tensor.candidate())
                }
                Some(QueuedMessage::Tensor(_) | QueuedMessage::Unicast(..)) | None => Lookahead::Unrelated,
                Some(QueuedMessage::Multicast(_, ToWorker::Error { .. } | ToWorker::Barrier(_))) => {
                    Lookahead::Unrelated
                }
                Some(QueuedMessage::Multicast(..)) => Lookahead::Fence,
            });
            fuse(first.candidate(), ahead, limits, |offset| fused.push(position + 1 + offset));
        }
        let others = fused.into_iter().map(|position| match self.messages[position].take() {
            Some(QueuedMessage::Tensor(tensor)) => tensor,
            _ => unreachable!("only tensors are candidates"),
        });
        let tensors: Vec<ReadyResponse> = std::iter::once(first).chain(others).collect();
        let is_per_rank = tensors.iter().any(|tensor| tensor.is_new && tensor.response.is_per_rank());
        let all_requested = tensors.iter().all(|tensor| tensor.joined.is_empty());
        let items_for = |set_rank: usize| -> Arc<[ResponseItem]> {
            tensors.iter().map(|tensor| tensor.item_for(set_rank)).collect()
        };
        let shared = items_for(0);
        for (set_rank, rank) in tensors[0].members.iter().enumerate() {
            let items = if is_per_rank { items_for(set_rank) } else { shared.clone() };
            let zeros = if all_requested {
                Vec::new()
            } else {
                let joined = |(_, tensor): &(usize, &ReadyResponse)| tensor.joined.contains(&(set_rank as u32));
                tensors.iter().enumerate().filter(joined).map(|(item, _)| item as u32).collect()
            };
            self.outboxes[*rank as usize].push(ToWorker::Execute { items, zeros });
        }
    }
}
