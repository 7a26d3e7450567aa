//! Coordinator side of the negotiation, on global rank 0: receives the requests of all ranks and produces their responses. No clock, no
//! I/O, no threads: time is an argument.
//!
//! All decisions go into one response queue. [`Coordinator::drain`] distributes it to the ranks. Each rank's stream is a subsequence of one
//! global order, so ranks that execute their streams in order cannot deadlock. Tensors that became ready since the last drain are fused.
//!
//! `message_table` records requests, `construct_response` decides once a tensor is complete, `validate` compares the requests,
//! `set_response` and `response_cache` keep the results, `fusion` and `response_queue` order them. `process_sets` adds and removes process
//! sets, `stall_inspector` reports missing ranks, `negotiation_events` feeds timelines.

mod construct_response;
pub(super) mod fusion;
mod lru_list;
mod message_table;
mod negotiation_events;
mod process_sets;
mod response_cache;
mod response_queue;
mod set_response;
mod stall_inspector;
mod validate;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::Config;
use crate::coordinator::id_map::IdMap;
use crate::coordinator::message::{RequestItem, ShutdownReason, ToCoordinator, ToWorker, Tuning};
use crate::coordinator::request::{CacheId, GLOBAL_GENERATION, SetGeneration, SetId};
use lru_list::SlotIdx;
use message_table::{BARRIER, MessageTable, RankRequest};
use process_sets::SetRequests;
use response_queue::{QueuedMessage, ResponseQueue};
use stall_inspector::StallInspector;

pub use negotiation_events::{NegotiationEvent, NegotiationEvents};
pub use stall_inspector::{IncompleteOp, MissingRank, StallLimits, StallReport};

/// Negotiation state of the whole job.
#[derive(Debug)]
pub struct Coordinator {
    pub(super) config: Config,
    /// Message table of each process set. Indices are stable while a set exists and are reused afterwards.
    pub(super) tables: Vec<Option<MessageTable>>,
    pub(super) by_generation: IdMap<SetGeneration, usize>,
    /// Table index and slot of each cached response.
    pub(super) by_id: IdMap<CacheId, (usize, SlotIdx)>,
    pub(super) queue: ResponseQueue,
    pub(super) set_requests: SetRequests,
    pub(super) stall: StallInspector,
    pub(super) events: NegotiationEvents,
    ranks: Vec<RankState>,
    pub(super) next_cache_id: CacheId,
    next_serial: u64,
    ended: bool,
    /// Scratch list of complete slots, kept for its allocation.
    pub(super) ready: Vec<SlotIdx>,
}

/// Message stream of one rank.
#[derive(Debug, Default)]
struct RankState {
    /// Submissions processed so far.
    n_submissions: u64,
    /// Messages received after a rejected submission; they wait until it is sent again. `None` if no submission was rejected.
    deferred: Option<VecDeque<ToCoordinator>>,
}

impl Coordinator {
    pub fn new(config: Config) -> Coordinator {
        let size = config.hosts.len() as u32;
        let mut coordinator = Coordinator {
            tables: Vec::new(),
            by_generation: IdMap::default(),
            by_id: IdMap::default(),
            queue: ResponseQueue::new(size),
            set_requests: SetRequests::new(size),
            stall: StallInspector::default(),
            events: NegotiationEvents::default(),
            ranks: (0..size).map(|_| RankState::default()).collect(),
            next_cache_id: 1,
            next_serial: 1,
            ended: false,
            ready: Vec::new(),
            config,
        };
        coordinator.open_set(SetId::GLOBAL, GLOBAL_GENERATION, (0..size).collect());
        coordinator
    }

    /// Processes a message of the rank `from`. Messages for a removed process set are ignored.
    pub fn on_message(&mut self, from: u32, message: ToCoordinator, now: Duration) {
        if self.ended || from >= self.size() {
            return;
        }
        let deferred = &mut self.ranks[from as usize].deferred;
        match (message, deferred) {
            (ToCoordinator::Shutdown, _) => self.shut_down(ShutdownReason::Requested { rank: from }),
            (ToCoordinator::Resubmit { grouped, items }, deferred) => {
                let mut deferred = deferred.take().unwrap_or_default();
                self.add_items(from, grouped, items, now);
                while self.ranks[from as usize].deferred.is_none()
                    && let Some(message) = deferred.pop_front()
                {
                    self.process(from, message, now);
                }
                if let Some(deferred_again) = &mut self.ranks[from as usize].deferred {
                    *deferred_again = deferred;
                }
            }
            (message, Some(deferred)) => deferred.push_back(message),
            (message, None) => self.process(from, message, now),
        }
    }

    /// Processes a message that is not deferred.
    fn process(&mut self, from: u32, message: ToCoordinator, now: Duration) {
        match message {
            ToCoordinator::CacheHit(id) => self.on_cache_hit(from, id, now),
            ToCoordinator::Submit { grouped, items } => {
                let submission = self.count_submission(from);
                let unknown =
                    |item: &RequestItem| matches!(item, RequestItem::Cached(id) if !self.by_id.contains_key(id));
                match items.iter().any(unknown) {
                    true => self.request_resend(from, submission),
                    false => self.add_items(from, grouped, items, now),
                }
            }
            ToCoordinator::Barrier(generation) => {
                let Some((table, set_rank)) = self.table_for(generation, from) else { return };
                let mut ready = std::mem::take(&mut self.ready);
                self.add_request(table, BARRIER, RankRequest { set_rank, full: None }, now, &mut ready);
                self.construct_responses(table, ready, now);
            }
            ToCoordinator::Join(generation) => self.on_join(from, generation, now),
            ToCoordinator::RegisterSets(sets) => self.on_register(from, sets, now),
            ToCoordinator::AddSet(ranks) => self.on_add_set(from, ranks, now),
            ToCoordinator::RemoveSet(generation) => self.on_remove_set(from, generation, now),
            // Handled in `on_message`, never deferred.
            ToCoordinator::Resubmit { .. } | ToCoordinator::Shutdown => {}
        }
    }

    /// Shuts down all other ranks because `rank` died. `text` names the rank and its host.
    pub fn on_rank_lost(&mut self, rank: u32, text: &str) {
        self.shut_down(ShutdownReason::Lost { rank, text: text.into() });
    }

    /// Applies autotuned parameters here and on all ranks.
    pub fn tune(&mut self, tuning: Tuning) {
        self.config.fusion_threshold = tuning.fusion_threshold;
        self.queue.send_all(ToWorker::Tune(tuning));
    }

    /// Passes each rank's queued messages to `send`, in order. Ranks without messages are skipped.
    pub fn drain(&mut self, send: impl FnMut(u32, &[ToWorker])) {
        let limits = fusion::FusionLimits {
            threshold: self.config.threshold(),
            disable_group_fusion: self.config.disable_group_fusion,
        };
        self.queue.drain(limits, send);
    }

    /// True if [`Coordinator::drain`] would send anything.
    pub fn has_output(&self) -> bool {
        !self.queue.is_empty()
    }

    pub fn events(&mut self) -> &mut NegotiationEvents {
        &mut self.events
    }

    /// True after a shutdown; later messages are ignored.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    pub(super) fn size(&self) -> u32 {
        self.config.hosts.len() as u32
    }

    /// Queues a shutdown message for all ranks that are alive. Only the first call has an effect.
    pub(super) fn shut_down(&mut self, reason: ShutdownReason) {
        if !std::mem::replace(&mut self.ended, true) {
            match reason {
                ShutdownReason::Lost { rank, .. } => {
                    let others: Arc<[u32]> = (0..self.size()).filter(|other| *other != rank).collect();
                    self.queue.push(QueuedMessage::Multicast(others, ToWorker::Shutdown(reason)));
                }
                _ => self.queue.send_all(ToWorker::Shutdown(reason)),
            }
        }
    }

    pub(super) fn open_set(&mut self, id: SetId, generation: SetGeneration, members: Arc<[u32]>) {
        let free = self.tables.iter().position(Option::is_none);
        let table_idx = free.unwrap_or_else(|| {
            self.tables.push(None);
            self.tables.len() - 1
        });
        self.tables[table_idx] = Some(MessageTable::new(id, generation, members));
        self.by_generation.insert(generation, table_idx);
    }

    /// Removes a process set. Its incomplete tensors are dropped: the workers fail them when they receive the removal.
    pub(super) fn close_set(&mut self, generation: SetGeneration) -> Option<SetId> {
        let table_idx = self.by_generation.remove(&generation)?;
        let table = self.tables[table_idx].take()?;
        for (id, _) in table.slots.iter().filter_map(|slot| slot.cached.as_ref()) {
            self.by_id.remove(id);
        }
        Some(table.id)
    }

    /// Table index of a process set, and the rank's index in the set. `None` for a removed set or a non-member.
    fn table_for(&self, generation: SetGeneration, rank: u32) -> Option<(usize, u32)> {
        let table_idx = *self.by_generation.get(&generation)?;
        Some((table_idx, self.table(table_idx).set_rank_of(rank)?))
    }

    fn table(&self, table_idx: usize) -> &MessageTable {
        self.tables[table_idx].as_ref().expect("table indices refer to open sets")
    }

    fn table_mut(&mut self, table_idx: usize) -> &mut MessageTable {
        self.tables[table_idx].as_mut().expect("table indices refer to open sets")
    }

    fn on_cache_hit(&mut self, from: u32, id: CacheId, now: Duration) {
        let submission = self.count_submission(from);
        let Some((table_idx, slot)) = self.by_id.get(&id).copied() else {
            return self.request_resend(from, submission);
        };
        let Some(set_rank) = self.table(table_idx).set_rank_of(from) else { return };
        let mut ready = std::mem::take(&mut self.ready);
        self.add_request(table_idx, slot, RankRequest { set_rank, full: None }, now, &mut ready);
        self.construct_responses(table_idx, ready, now);
    }

    /// Asks a rank to send a submission again in full, and defers its later messages.
    fn request_resend(&mut self, from: u32, submission: u64) {
        self.ranks[from as usize].deferred = Some(VecDeque::new());
        self.queue.push(QueuedMessage::Unicast(from, ToWorker::Resend(submission)));
    }

    /// Records the requests of one submission, all of them before any response is constructed.
    fn add_items(&mut self, from: u32, grouped: bool, items: Vec<RequestItem>, now: Duration) {
        let mut incoming: Vec<(usize, SlotIdx, RankRequest)> = Vec::with_capacity(items.len());
        for item in items {
            let (table_idx, slot, request) = match item {
                RequestItem::Cached(id) => {
                    let Some((table_idx, slot)) = self.by_id.get(&id).copied() else { continue };
                    (table_idx, slot, None)
                }
                RequestItem::Full(generation, request) => {
                    let Some((table_idx, _)) = self.table_for(generation, from) else { continue };
                    (table_idx, self.table_mut(table_idx).slot_for(&request.name), Some(request))
                }
            };
            let Some(set_rank) = self.table(table_idx).set_rank_of(from) else { continue };
            incoming.push((table_idx, slot, RankRequest { set_rank, full: request }));
        }
        let Some((first, ..)) = incoming.first() else { return };
        let first = *first;
        if grouped {
            let serial = self.next_serial();
            let slots = incoming.iter().filter(|(table_idx, ..)| *table_idx == first).map(|(_, slot, _)| *slot);
            self.tables[first].as_mut().expect("looked up just now").bind_group(serial, slots);
        }
        // Constructing a response may evict a cache id that a later item of this submission refers to.
        let mut ready = std::mem::take(&mut self.ready);
        let mut current = first;
        for (table_idx, slot, request) in incoming {
            if table_idx != current {
                ready = self.construct_into(current, ready, now);
                current = table_idx;
            }
            self.add_request(table_idx, slot, request, now, &mut ready);
        }
        self.construct_responses(current, ready, now);
    }

    fn on_join(&mut self, from: u32, generation: SetGeneration, now: Duration) {
        let Some((table_idx, set_rank)) = self.table_for(generation, from) else { return };
        let mut ready = std::mem::take(&mut self.ready);
        let is_new = self.table_mut(table_idx).join(set_rank, from, now, &mut ready);
        self.construct_responses(table_idx, ready, now);
        let table = self.table_mut(table_idx);
        if is_new && table.all_joined() {
            table.clear_joins();
            let (members, last) = (table.members.clone(), table.last_joined);
            self.queue.push(QueuedMessage::Multicast(members, ToWorker::Joined { generation, last }));
        }
    }

    fn add_request(
        &mut self,
        table_idx: usize,
        slot: SlotIdx,
        request: RankRequest,
        now: Duration,
        ready: &mut Vec<SlotIdx>,
    ) {
        let serial = self.next_serial();
        let table = self.tables[table_idx].as_mut().expect("table indices refer to open sets");
        if self.events.is_enabled() {
            self.events.on_request(table, slot, &request);
        }
        table.add_request(slot, request, serial, now, ready);
    }

    fn count_submission(&mut self, from: u32) -> u64 {
        let n = &mut self.ranks[from as usize].n_submissions;
        *n += 1;
        *n - 1
    }

    fn next_serial(&mut self) -> u64 {
        self.next_serial += 1;
        self.next_serial
    }
}

/// Sizes of internal tables, for tests that check for leaks.
#[cfg(test)]
#[derive(Debug, PartialEq, Eq)]
pub struct Footprint {
    pub n_ids: usize,
    pub n_names: usize,
    pub n_slots: usize,
}

#[cfg(test)]
impl Coordinator {
    pub fn footprint(&self) -> Footprint {
        let tables = || self.tables.iter().flatten();
        Footprint {
            n_ids: self.by_id.len(),
            n_names: tables().map(|table| table.by_name.len()).sum(),
            n_slots: tables().map(|table| table.slots.len()).sum(),
        }
    }
}
