//! Handling of the coordinator's messages: each becomes actions for the caller.

use std::sync::Arc;

use super::process_set_state::{CachedResponse, ProcessSetState};
use super::{Action, NegotiatedTensor, ProtocolError, Worker};
use crate::coordinator::error_messages::{SHUTDOWN_MESSAGE, SubmitError, shutdown_message_by};
use crate::coordinator::message::{RequestItem, ResponseItem, ShutdownReason, ToCoordinator, ToWorker};
use crate::coordinator::request::{CacheId, Kind, RequestId, SetGeneration};

impl Worker {
    /// Appends the actions of one message. After an error the caller must abort: the two sides no longer agree on the state.
    pub fn on_message(&mut self, message: ToWorker, actions: &mut Vec<Action>) -> Result<(), ProtocolError> {
        if self.ended.is_some() {
            return Ok(());
        }
        match message {
            ToWorker::Execute { items, zeros } => actions.push(self.execute(&items, &zeros)?),
            ToWorker::Error { generation, names, text } => {
                let set_idx = self.set_idx(generation)?;
                let request_ids: Result<Vec<RequestId>, ProtocolError> = names
                    .iter()
                    .map(|name| {
                        let set_state = self.set_states[set_idx].as_mut().expect("looked up just now");
                        let found = set_state.find(name).filter(|found| set_state.tensors[*found].pending.is_some());
                        let found = found.ok_or_else(|| ProtocolError::NotRequested(name.clone()))?;
                        let pending = set_state.tensors[found].pending.take().expect("filtered just now");
                        set_state.free_if_unused(found);
                        Ok(pending.request_id)
                    })
                    .collect();
                let request_ids = request_ids?;
                self.n_pending -= request_ids.len();
                actions.push(Action::Fail { request_ids, text });
            }
            ToWorker::Barrier(generation) => {
                let set_state = self.set_state_mut(generation)?;
                let (request_id, _) =
                    set_state.barrier.take().ok_or_else(|| ProtocolError::NotRequested("barrier".into()))?;
                self.n_pending -= 1;
                actions.push(Action::Barrier { request_id });
            }
            ToWorker::Joined { generation, last } => {
                let set_state = self.set_state_mut(generation)?;
                let (request_id, _) =
                    set_state.join.take().ok_or_else(|| ProtocolError::NotRequested("join".into()))?;
                self.n_pending -= 1;
                actions.push(Action::Joined { request_id, last });
            }
            ToWorker::Evicted(ids) => ids.iter().for_each(|id| self.evict(*id)),
            ToWorker::Resend(submission) => self.resend(submission),
            ToWorker::SetsAdded(sets) => {
                let request_id = self.finish_set_request()?;
                sets.iter().for_each(|set| self.open(set));
                actions.push(Action::SetsAdded { request_id, sets });
            }
            ToWorker::SetRemoved(generation) => {
                let request_id = self.finish_set_request()?;
                self.close(generation, request_id, actions)?;
            }
            ToWorker::SetRefused(error) => {
                let request_id = self.finish_set_request()?;
                actions.push(Action::SetRefused { request_id, error });
            }
            ToWorker::Tune(tuning) => actions.push(Action::Tune(tuning)),
            ToWorker::Shutdown(reason) => {
                let text: Arc<str> = match &reason {
                    ShutdownReason::Lost { text, .. } => text.clone(),
                    ShutdownReason::Requested { rank } => shutdown_message_by(*rank).into(),
                    ShutdownReason::Stalled => SHUTDOWN_MESSAGE.into(),
                };
                let request_ids = self.abort(&text);
                actions.push(Action::ShutDown { request_ids, reason, text });
            }
        }
        Ok(())
    }

    /// Looks up the tensors of one fused operation and caches new responses.
    fn execute(&mut self, items: &[ResponseItem], zeros: &[u32]) -> Result<Action, ProtocolError> {
        let mut tensors = Vec::with_capacity(items.len());
        for (position, item) in items.iter().enumerate() {
            let supplies_zeros = !zeros.is_empty() && zeros.contains(&(position as u32));
            tensors.push(match item {
                ResponseItem::Cached(id) => self.take_cached(*id, supplies_zeros)?,
                ResponseItem::New(response, id) => {
                    let set_idx = self.set_idx(response.key.generation)?;
                    let set_state = self.set_states[set_idx].as_mut().expect("looked up just now");
                    let name = set_state.find_or_insert(&response.name);
                    let pending = if supplies_zeros { None } else { set_state.tensors[name].pending.take() };
                    if pending.is_none() && !supplies_zeros {
                        return Err(ProtocolError::NotRequested(response.name.clone()));
                    }
                    self.n_pending -= usize::from(pending.is_some());
                    let request_id = pending.as_ref().map(|pending| pending.request_id);
                    let splits: Arc<[u64]> = pending.map_or(Vec::new(), |pending| pending.request.splits).into();
                    if let Some(id) = id {
                        let cached = Arc::new(CachedResponse { response: response.clone(), splits: splits.clone() });
                        set_state.tensors[name].cached = Some((*id, cached.clone()));
                        self.by_id.insert(*id, (set_idx, name, cached));
                    } else {
                        set_state.free_if_unused(name);
                    }
                    NegotiatedTensor { request_id, response: response.clone(), splits }
                }
            });
        }
        let key = tensors.first().ok_or(ProtocolError::EmptyExecute)?.response.key;
        let set = self.set_state_mut(key.generation)?.id;
        Ok(Action::Execute { set, key, tensors })
    }

    /// Looks up a cached response and removes its pending request.
    fn take_cached(&mut self, id: CacheId, supplies_zeros: bool) -> Result<NegotiatedTensor, ProtocolError> {
        let (set_idx, name, cached) = self.by_id.get(&id).ok_or(ProtocolError::UnknownCacheId(id))?;
        let set_state = self.set_states[*set_idx].as_mut().expect("closing a set removes its cache ids");
        let tensor = |request_id| NegotiatedTensor {
            request_id,
            response: cached.response.clone(),
            splits: cached.splits.clone(),
        };
        if supplies_zeros {
            return Ok(tensor(None));
        }
        let pending = set_state.tensors[*name].pending.take();
        let pending = pending.ok_or_else(|| ProtocolError::NotRequested(cached.response.name.clone()))?;
        self.n_pending -= 1;
        Ok(tensor(Some(pending.request_id)))
    }

    /// Removes a cached response.
    fn evict(&mut self, id: CacheId) {
        let Some((set_idx, name, _)) = self.by_id.remove(&id) else { return };
        let set_state = self.set_states[set_idx].as_mut().expect("closing a set removes its cache ids");
        if set_state.tensors[name].cached.as_ref().is_some_and(|(cached, _)| *cached == id) {
            set_state.tensors[name].cached = None;
            set_state.free_if_unused(name);
        }
    }

    /// Sends a rejected submission again, with full requests instead of cache ids.
    fn resend(&mut self, submission: u64) {
        let (mut pending_items, mut grouped) = (Vec::new(), false);
        for set_state in self.set_states.iter().flatten() {
            let pending = set_state.tensors.iter().filter_map(|name| name.pending.as_ref());
            for pending in pending.filter(|pending| pending.submission == submission) {
                grouped |= pending.grouped;
                pending_items.push((
                    pending.request_id,
                    RequestItem::Full(set_state.generation, Box::new(pending.request.clone())),
                ));
            }
        }
        pending_items.sort_by_key(|(request_id, _)| *request_id);
        let items = pending_items.into_iter().map(|(_, item)| item).collect();
        self.outgoing.push(ToCoordinator::Resubmit { grouped, items });
    }

    /// Removes a process set and fails its pending operations.
    fn close(
        &mut self,
        generation: SetGeneration,
        request_id: RequestId,
        actions: &mut Vec<Action>,
    ) -> Result<(), ProtocolError> {
        let set_idx = self.set_idx(generation)?;
        let set_state = self.set_states[set_idx].take().expect("looked up just now");
        self.by_generation.remove(&generation);
        self.by_set.remove(&set_state.id);
        self.by_id.retain(|_, (idx, ..)| *idx != set_idx);
        actions.push(Action::SetRemoved { request_id, set: set_state.id, generation });
        for (kind, request_ids) in pending_by_kind(&set_state) {
            self.n_pending -= request_ids.len();
            actions.push(Action::Fail { request_ids, text: SubmitError::UnknownSet { kind }.to_string().into() });
        }
        Ok(())
    }

    /// Removes all pending operations and returns their ids in order of submission.
    pub(super) fn take_all_pending(&mut self) -> Vec<RequestId> {
        let mut request_ids: Vec<RequestId> = self.set_requests.drain(..).map(|(request_id, _)| request_id).collect();
        for set_state in self.set_states.iter_mut().flatten() {
            request_ids.extend(set_state.tensors.iter_mut().filter_map(|name| Some(name.pending.take()?.request_id)));
            request_ids.extend(set_state.barrier.take().map(|(request_id, _)| request_id));
            request_ids.extend(set_state.join.take().map(|(request_id, _)| request_id));
        }
        self.n_pending = 0;
        request_ids.sort_unstable();
        request_ids
    }

    /// Removes the oldest pending request about process sets.
    fn finish_set_request(&mut self) -> Result<RequestId, ProtocolError> {
        let (request_id, _) =
            self.set_requests.pop_front().ok_or_else(|| ProtocolError::NotRequested("process set".into()))?;
        self.n_pending -= 1;
        Ok(request_id)
    }

    fn set_idx(&self, generation: SetGeneration) -> Result<usize, ProtocolError> {
        self.by_generation.get(&generation).copied().ok_or(ProtocolError::UnknownGeneration(generation))
    }

    fn set_state_mut(&mut self, generation: SetGeneration) -> Result<&mut ProcessSetState, ProtocolError> {
        let set_idx = self.set_idx(generation)?;
        Ok(self.set_states[set_idx].as_mut().expect("looked up just now"))
    }
}

/// Pending operations of a set, by kind.
fn pending_by_kind(set_state: &ProcessSetState) -> Vec<(Kind, Vec<RequestId>)> {
    let mut by_kind: Vec<(Kind, Vec<RequestId>)> = Vec::new();
    let mut note = |kind, request_id| match by_kind.iter_mut().find(|(cached, _)| *cached == kind) {
        Some((_, request_ids)) => request_ids.push(request_id),
        None => by_kind.push((kind, vec![request_id])),
    };
    let pending = set_state.tensors.iter().filter_map(|name| name.pending.as_ref());
    pending.for_each(|pending| note(pending.request.kind, pending.request_id));
    set_state.barrier.iter().for_each(|(request_id, _)| note(Kind::Barrier, *request_id));
    set_state.join.iter().for_each(|(request_id, _)| note(Kind::Join, *request_id));
    by_kind
}
