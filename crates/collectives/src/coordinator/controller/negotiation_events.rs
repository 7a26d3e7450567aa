//! Negotiation events for timelines: the first request for a tensor, each rank's request, and completion. The reader adds the time. While
//! disabled, an event costs one comparison.

use std::collections::HashSet;
use std::sync::Arc;

use super::lru_list::SlotIdx;
use super::message_table::{BARRIER, MessageTable, RankRequest};
use crate::coordinator::request::{Kind, SetGeneration};

/// One event of the negotiation of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NegotiationEvent {
    /// First request for a tensor.
    Start { generation: SetGeneration, name: Arc<str>, kind: Kind },
    /// A rank, given by its index in the process set, has requested the tensor.
    Ready { generation: SetGeneration, name: Arc<str>, set_rank: u32 },
    /// All members have requested the tensor or joined.
    End { generation: SetGeneration, name: Arc<str> },
}

/// Buffer of events that have not been read.
#[derive(Debug, Default)]
pub struct NegotiationEvents {
    /// `None` while disabled.
    events: Option<Vec<NegotiationEvent>>,
    /// Tensors with a `Start` and no `End` event.
    open_names: HashSet<(SetGeneration, SlotIdx)>,
}

impl NegotiationEvents {
    pub fn is_enabled(&self) -> bool {
        self.events.is_some()
    }

    /// Enables or disables recording. Disabling discards unread events.
    pub fn set_enabled(&mut self, enabled: bool) {
        match enabled {
            true => drop(self.events.get_or_insert_default()),
            false => {
                self.events = None;
                self.open_names.clear();
            }
        }
    }

    /// Removes and returns the recorded events.
    pub fn drain(&mut self) -> Vec<NegotiationEvent> {
        self.events.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn on_request(&mut self, table: &MessageTable, slot: SlotIdx, request: &RankRequest) {
        let Some(events) = &mut self.events else { return };
        let (generation, tensor) = (table.generation, &table.slots[slot]);
        // Recording may be enabled after some ranks have requested the tensor: their `Ready` events follow the late `Start`.
        let is_new = self.open_names.insert((generation, slot));
        if is_new || tensor.requests.is_empty() {
            let cached_kind = || tensor.cached.as_ref().map(|(_, entry)| entry.key().kind);
            let kind = match &tensor.requests.first().unwrap_or(request).full {
                _ if slot == BARRIER => Kind::Barrier,
                Some(request) => request.kind,
                None => cached_kind().unwrap_or(Kind::Allreduce),
            };
            events.push(NegotiationEvent::Start { generation, name: tensor.name.clone(), kind });
            for earlier in &tensor.requests {
                events.push(NegotiationEvent::Ready {
                    generation,
                    name: tensor.name.clone(),
                    set_rank: earlier.set_rank,
                });
            }
        }
        events.push(NegotiationEvent::Ready { generation, name: tensor.name.clone(), set_rank: request.set_rank });
    }

    pub(super) fn on_end(&mut self, table: &MessageTable, slot: SlotIdx) {
        let Some(events) = &mut self.events else { return };
        self.open_names.remove(&(table.generation, slot));
        events.push(NegotiationEvent::End { generation: table.generation, name: table.slots[slot].name.clone() });
    }
}
