//! What a timeline shows of the agreement: when a name is first asked for, which rank is ready when, and when all are. The
//! coordinator notes, the engine takes and adds the time. Costs one comparison when nobody looks.

use std::collections::HashSet;
use std::sync::Arc;

use super::lru_list::SlotIdx;
use super::message_table::{BARRIER, MessageTable, RankRequest};
use crate::coordinator::request::{Kind, SetGeneration};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NegotiationEvent {
    Start {
        generation: SetGeneration,
        name: Arc<str>,
        kind: Kind,
    },
    /// A member (by its place in the set) has asked.
    Ready {
        generation: SetGeneration,
        name: Arc<str>,
        set_rank: u32,
    },
    End {
        generation: SetGeneration,
        name: Arc<str>,
    },
}

#[derive(Debug, Default)]
pub struct NegotiationEvents {
    events: Option<Vec<NegotiationEvent>>,
    /// Names whose `Start` was noted and whose `End` was not.
    open_names: HashSet<(SetGeneration, SlotIdx)>,
}

impl NegotiationEvents {
    pub fn is_enabled(&self) -> bool {
        self.events.is_some()
    }

    /// Off forgets what was not taken.
    pub fn set_enabled(&mut self, on: bool) {
        match on {
            true => drop(self.events.get_or_insert_default()),
            false => {
                self.events = None;
                self.open_names.clear();
            }
        }
    }

    pub fn drain(&mut self) -> Vec<NegotiationEvent> {
        self.events.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn on_request(&mut self, table: &MessageTable, slot: SlotIdx, request: &RankRequest) {
        let Some(events) = &mut self.events else { return };
        let (generation, tensor) = (table.generation, &table.slots[slot]);
        // Noting may begin when some members have asked already: the name starts then, with all of them ready.
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
