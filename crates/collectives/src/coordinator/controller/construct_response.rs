//! Construction of responses for complete tensors (Horovod's `ConstructResponse`): a cached response is reused, a new one is validated,
//! cached and queued, a mismatch becomes an error.

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
    /// Queues the responses of complete slots, in order.
    pub(super) fn construct_responses(&mut self, table_idx: usize, ready: Vec<SlotIdx>, now: Duration) {
        self.ready = self.construct_into(table_idx, ready, now);
    }

    /// As [`Coordinator::construct_responses`]; returns the emptied list so that its allocation can be reused.
    pub(super) fn construct_into(&mut self, table_idx: usize, mut ready: Vec<SlotIdx>, now: Duration) -> Vec<SlotIdx> {
        for slot in ready.drain(..) {
            let table = self.tables[table_idx].as_mut().expect("table indices refer to open sets");
            table.last_progress = now;
            if self.events.is_enabled() {
                self.events.on_end(table, slot);
            }
            if slot == BARRIER {
                let message = ToWorker::Barrier(table.generation);
                self.queue.push(QueuedMessage::Multicast(requesters(table, slot), message));
            } else {
                match construct_response(table, slot) {
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
                        let names = vec![table.slots[slot].name.clone()];
                        let message = ToWorker::Error { generation: table.generation, names, text: text.into() };
                        self.queue.push(QueuedMessage::Multicast(requesters(table, slot), message));
                    }
                }
            }
            table.clear(slot);
        }
        ready
    }
}

/// Global ranks that requested a tensor.
fn requesters(table: &MessageTable, slot: SlotIdx) -> Arc<[u32]> {
    table.slots[slot].requests.iter().map(|request| table.members[request.set_rank as usize]).collect()
}

/// Response for a complete slot, with its cache id if the ranks already have it; otherwise the error message.
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
    let without_ranks: Vec<&Request> = requests.iter().map(|(_, request)| *request).collect();
    validate_requests(&without_ranks, n_members)?;
    let response = Arc::new(SetResponse::from_requests(table.generation, &requests, n_members));
    match &complete.cached {
        Some((id, cached)) if *cached == response => Ok((cached.clone(), Some(*id))),
        _ => Ok((response, None)),
    }
}
