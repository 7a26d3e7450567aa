//! What becomes of a name that every member has asked for: it is performed as remembered, performed and remembered anew, or refused.
//! The coordinator enters with what the tally says is complete.

use std::sync::Arc;
use std::time::Duration;

use super::Coordinator;
use super::lru_list::SlotIdx;
use super::message_table::{BARRIER, MessageTable};
use super::response_queue::{QueuedMessage, ReadyResponse};
use super::set_response::SetResponse;
use super::validate::validate_requests;
use crate::coordinator::message::ToWorker;
use crate::coordinator::request::{CacheId, Request};

impl Coordinator {
    pub(super) fn construct_responses(&mut self, table_idx: usize, ready: Vec<SlotIdx>, now: Duration) {
        self.ready = self.construct_into(table_idx, ready, now);
    }

    /// Decides about complete tensors, in order. Gives the list back, empty, so that it need not be made anew.
    pub(super) fn construct_into(&mut self, table_idx: usize, mut ready: Vec<SlotIdx>, now: Duration) -> Vec<SlotIdx> {
        for slot in ready.drain(..) {
            let table = self.tables[table_idx].as_mut().expect("positions are handed out for open sets only");
            table.last_progress = now;
            if self.events.is_enabled() {
                self.events.on_end(table, slot);
            }
            if slot == BARRIER {
                let asked = table.slots[slot].requests.iter().map(|request| table.members[request.set_rank as usize]);
                let message = ToWorker::Barrier(table.generation);
                let asked: Arc<[u32]> = asked.collect();
                self.queue.push(QueuedMessage::Multicast(asked, message));
            } else {
                let decided = construct_response(table, slot);
                match decided {
                    Ok((response, None)) => {
                        let id = (self.config.cache_capacity > 0).then_some(self.next_cache_id);
                        if let Some(id) = id {
                            self.next_cache_id += 1;
                            let members = table.members.clone();
                            table.cache_response(slot, id, response.clone(), self.config.cache_capacity, |evicted| {
                                self.by_id.remove(&evicted);
                                self.queue.queue_eviction(&members, evicted);
                            });
                            self.by_id.insert(id, (table_idx, slot));
                        }
                        self.queue.push(QueuedMessage::Tensor(ReadyResponse::new(table, slot, response, id, true)));
                    }
                    Ok((response, Some(id))) => {
                        table.mark_used(slot);
                        self.queue.push(QueuedMessage::Tensor(ReadyResponse::new(
                            table,
                            slot,
                            response,
                            Some(id),
                            false,
                        )));
                    }
                    Err(text) => {
                        let asked = &table.slots[slot].requests;
                        let asked: Arc<[u32]> = asked.iter().map(|one| table.members[one.set_rank as usize]).collect();
                        let names = vec![table.slots[slot].name.clone()];
                        let message = ToWorker::Error { generation: table.generation, names, text: text.into() };
                        self.queue.push(QueuedMessage::Multicast(asked, message));
                    }
                }
            }
            table.clear(slot);
        }
        ready
    }
}

/// What is to be performed for a complete slot, and the id that the ranks know it by; or why it cannot be.
fn construct_response(table: &MessageTable, slot: SlotIdx) -> Result<(Arc<SetResponse>, Option<CacheId>), String> {
    let complete = &table.slots[slot];
    let n_members = table.members.len();
    let all_hits = complete.requests.iter().all(|request| request.full.is_none());
    if all_hits
        && let Some((id, response)) = &complete.cached
        && (complete.requests.len() == n_members || response.key().kind.takes_zeros())
    {
        return Ok((response.clone(), Some(*id)));
    }
    let reconstructed: Vec<Option<Request>> = complete
        .requests
        .iter()
        .map(|request| match &request.full {
            Some(_) => None,
            None => {
                complete.hit_response.as_ref().map(|response| response.reconstruct_request(request.set_rank as usize))
            }
        })
        .collect();
    let requests: Vec<(u32, &Request)> = complete
        .requests
        .iter()
        .zip(&reconstructed)
        .filter_map(|(request, reconstructed)| {
            Some((request.set_rank, request.full.as_deref().or(reconstructed.as_ref())?))
        })
        .collect();
    let plain: Vec<&Request> = requests.iter().map(|(_, request)| *request).collect();
    validate_requests(&plain, n_members)?;
    let response = Arc::new(SetResponse::from_requests(table.generation, &requests, n_members));
    match &complete.cached {
        Some((id, cached)) if *cached == response => Ok((cached.clone(), Some(*id))),
        _ => Ok((response, None)),
    }
}
