//! The member's other half: what the coordinator answers becomes actions.

use std::sync::Arc;

use super::{Action, Member, ProtocolError, Tensor};
use crate::coordinator::message::{
    Area, CacheId, Item, Kind, ShutdownReason, Submitted, ToCoordinator, ToMember, Token,
};
use crate::coordinator::room::{Known, Room};
use crate::coordinator::text::{SHUT_DOWN, SubmitError, shut_down_by};

impl Member {
    /// Appends what is to be done. After an error the engine has to abort: nothing that follows would make sense.
    pub fn on_message(&mut self, message: ToMember, actions: &mut Vec<Action>) -> Result<(), ProtocolError> {
        if self.ended.is_some() {
            return Ok(());
        }
        match message {
            ToMember::Perform { items, zeros } => actions.push(self.perform(&items, &zeros)?),
            ToMember::Error { area, names, text } => {
                let at = self.room_at(area)?;
                let tokens: Result<Vec<Token>, ProtocolError> = names
                    .iter()
                    .map(|name| {
                        let room = self.rooms[at].as_mut().expect("looked up just now");
                        let found = room.find(name).filter(|found| room.names[*found].pending.is_some());
                        let found = found.ok_or_else(|| ProtocolError::Unasked(name.clone()))?;
                        let pending = room.names[found].pending.take().expect("filtered just now");
                        room.free_if_unused(found);
                        Ok(pending.token)
                    })
                    .collect();
                let tokens = tokens?;
                self.n_pending -= tokens.len();
                actions.push(Action::Fail { tokens, text });
            }
            ToMember::Barrier(area) => {
                let room = self.room_mut(area)?;
                let (token, _) = room.barrier.take().ok_or_else(|| ProtocolError::Unasked("barrier".into()))?;
                self.n_pending -= 1;
                actions.push(Action::Barrier { token });
            }
            ToMember::Joined { area, last } => {
                let room = self.room_mut(area)?;
                let (token, _) = room.join.take().ok_or_else(|| ProtocolError::Unasked("join".into()))?;
                self.n_pending -= 1;
                actions.push(Action::Joined { token, last });
            }
            ToMember::Evicted(ids) => ids.iter().for_each(|id| self.forget(*id)),
            ToMember::Resend(submission) => self.resend(submission),
            ToMember::SetsAdded(sets) => {
                let token = self.wish_answered()?;
                sets.iter().for_each(|set| self.open(set));
                actions.push(Action::SetsAdded { token, sets });
            }
            ToMember::SetRemoved(area) => {
                let token = self.wish_answered()?;
                self.close(area, token, actions)?;
            }
            ToMember::SetRefused(refusal) => {
                let token = self.wish_answered()?;
                actions.push(Action::SetRefused { token, refusal });
            }
            ToMember::Tune(tuning) => actions.push(Action::Tune(tuning)),
            ToMember::Shutdown(reason) => {
                let text: Arc<str> = match &reason {
                    ShutdownReason::Lost { text, .. } => text.clone(),
                    ShutdownReason::Asked { rank } => shut_down_by(*rank).into(),
                    ShutdownReason::Stalled => SHUT_DOWN.into(),
                };
                let tokens = self.abort(&text);
                actions.push(Action::ShutDown { tokens, reason, text });
            }
        }
        Ok(())
    }

    fn perform(&mut self, items: &[Item], zeros: &[u32]) -> Result<Action, ProtocolError> {
        let mut tensors = Vec::with_capacity(items.len());
        for (position, item) in items.iter().enumerate() {
            let supplies_zeros = !zeros.is_empty() && zeros.contains(&(position as u32));
            tensors.push(match item {
                Item::Cached(id) => self.take_known(*id, supplies_zeros)?,
                Item::New(agreed, id) => {
                    let at = self.room_at(agreed.terms.area)?;
                    let room = self.rooms[at].as_mut().expect("looked up just now");
                    let name = room.find_or_make(&agreed.name);
                    let pending = if supplies_zeros { None } else { room.names[name].pending.take() };
                    if pending.is_none() && !supplies_zeros {
                        return Err(ProtocolError::Unasked(agreed.name.clone()));
                    }
                    self.n_pending -= usize::from(pending.is_some());
                    let token = pending.as_ref().map(|pending| pending.token);
                    let splits: Arc<[u64]> = pending.map_or(Vec::new(), |pending| pending.request.splits).into();
                    if let Some(id) = id {
                        let known = Arc::new(Known { agreed: agreed.clone(), splits: splits.clone() });
                        room.names[name].known = Some((*id, known.clone()));
                        self.by_id.insert(*id, (at, name, known));
                    } else {
                        room.free_if_unused(name);
                    }
                    Tensor { token, agreed: agreed.clone(), splits }
                }
            });
        }
        let terms = tensors.first().ok_or(ProtocolError::Nothing)?.agreed.terms;
        let set = self.room_mut(terms.area)?.id;
        Ok(Action::Perform { set, terms, tensors })
    }

    fn take_known(&mut self, id: CacheId, supplies_zeros: bool) -> Result<Tensor, ProtocolError> {
        let (at, name, known) = self.by_id.get(&id).ok_or(ProtocolError::UnknownId(id))?;
        let room = self.rooms[*at].as_mut().expect("ids of a set end with it");
        let tensor = |token| Tensor { token, agreed: known.agreed.clone(), splits: known.splits.clone() };
        if supplies_zeros {
            return Ok(tensor(None));
        }
        let pending = room.names[*name].pending.take();
        let pending = pending.ok_or_else(|| ProtocolError::Unasked(known.agreed.name.clone()))?;
        self.n_pending -= 1;
        Ok(tensor(Some(pending.token)))
    }

    fn forget(&mut self, id: CacheId) {
        let Some((at, name, _)) = self.by_id.remove(&id) else { return };
        let room = self.rooms[at].as_mut().expect("ids of a set end with it");
        if room.names[name].known.as_ref().is_some_and(|(known, _)| *known == id) {
            room.names[name].known = None;
            room.free_if_unused(name);
        }
    }

    /// Everything of that submission once more, without ids.
    fn resend(&mut self, submission: u64) {
        let (mut again, mut grouped) = (Vec::new(), false);
        for room in self.rooms.iter().flatten() {
            let pending = room.names.iter().filter_map(|name| name.pending.as_ref());
            for pending in pending.filter(|pending| pending.submission == submission) {
                grouped |= pending.grouped;
                again.push((pending.token, Submitted::Full(room.area, Box::new(pending.request.clone()))));
            }
        }
        again.sort_by_key(|(token, _)| *token);
        let items = again.into_iter().map(|(_, item)| item).collect();
        self.outgoing.push(ToCoordinator::Again { grouped, items });
    }

    fn close(&mut self, area: Area, token: Token, actions: &mut Vec<Action>) -> Result<(), ProtocolError> {
        let at = self.room_at(area)?;
        let room = self.rooms[at].take().expect("looked up just now");
        self.by_area.remove(&area);
        self.by_set.remove(&room.id);
        self.by_id.retain(|_, (room, ..)| *room != at);
        actions.push(Action::SetRemoved { token, set: room.id, area });
        for (kind, tokens) in pending_by_kind(&room) {
            self.n_pending -= tokens.len();
            actions.push(Action::Fail { tokens, text: SubmitError::UnknownSet { kind }.to_string().into() });
        }
        Ok(())
    }

    pub(super) fn take_all_pending(&mut self) -> Vec<Token> {
        let mut tokens: Vec<Token> = self.set_wishes.drain(..).map(|(token, _)| token).collect();
        for room in self.rooms.iter_mut().flatten() {
            tokens.extend(room.names.iter_mut().filter_map(|name| Some(name.pending.take()?.token)));
            tokens.extend(room.barrier.take().map(|(token, _)| token));
            tokens.extend(room.join.take().map(|(token, _)| token));
        }
        self.n_pending = 0;
        tokens.sort_unstable();
        tokens
    }

    fn wish_answered(&mut self) -> Result<Token, ProtocolError> {
        let (token, _) = self.set_wishes.pop_front().ok_or_else(|| ProtocolError::Unasked("process set".into()))?;
        self.n_pending -= 1;
        Ok(token)
    }

    fn room_at(&self, area: Area) -> Result<usize, ProtocolError> {
        self.by_area.get(&area).copied().ok_or(ProtocolError::UnknownArea(area))
    }

    fn room_mut(&mut self, area: Area) -> Result<&mut Room, ProtocolError> {
        let at = self.room_at(area)?;
        Ok(self.rooms[at].as_mut().expect("looked up just now"))
    }
}

fn pending_by_kind(room: &Room) -> Vec<(Kind, Vec<Token>)> {
    let mut by_kind: Vec<(Kind, Vec<Token>)> = Vec::new();
    let mut note = |kind, token| match by_kind.iter_mut().find(|(known, _)| *known == kind) {
        Some((_, tokens)) => tokens.push(token),
        None => by_kind.push((kind, vec![token])),
    };
    let pending = room.names.iter().filter_map(|name| name.pending.as_ref());
    pending.for_each(|pending| note(pending.request.kind, pending.token));
    room.barrier.iter().for_each(|(token, _)| note(Kind::Barrier, *token));
    room.join.iter().for_each(|(token, _)| note(Kind::Join, *token));
    by_kind
}
