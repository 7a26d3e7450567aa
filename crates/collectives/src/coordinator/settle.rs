//! What becomes of a name that every member has asked for: it is performed as remembered, performed and remembered anew, or refused.
//! The coordinator enters with what the tally says is complete.

use std::sync::Arc;
use std::time::Duration;

use super::check::check;
use super::core::Coordinator;
use super::entry::Entry;
use super::message::{CacheId, Request, ToMember};
use super::queue::{Queued, ReadyTensor};
use super::tally::{BARRIER, SlotIdx, Tally};

impl Coordinator {
    pub(super) fn settle_all(&mut self, at: usize, ready: Vec<SlotIdx>, now: Duration) {
        self.ready = self.settle(at, ready, now);
    }

    /// Decides about complete tensors, in order. Gives the list back, empty, so that it need not be made anew.
    pub(super) fn settle(&mut self, at: usize, mut ready: Vec<SlotIdx>, now: Duration) -> Vec<SlotIdx> {
        for slot in ready.drain(..) {
            let tally = self.tallies[at].as_mut().expect("positions are handed out for open sets only");
            tally.last_progress = now;
            if self.events.is_on() {
                self.events.on_end(tally, slot);
            }
            if slot == BARRIER {
                let asked = tally.slots[slot].arrivals.iter().map(|arrival| tally.members[arrival.place as usize]);
                let told = ToMember::Barrier(tally.area);
                let asked: Arc<[u32]> = asked.collect();
                self.queue.push(Queued::Tell(asked, told));
            } else {
                let decided = decide(tally, slot);
                match decided {
                    Ok((entry, None)) => {
                        let id = (self.config.cache_capacity > 0).then_some(self.next_cache_id);
                        if let Some(id) = id {
                            self.next_cache_id += 1;
                            let members = tally.members.clone();
                            tally.remember(slot, id, entry.clone(), self.config.cache_capacity, |lost| {
                                self.by_id.remove(&lost);
                                self.queue.lose(&members, lost);
                            });
                            self.by_id.insert(id, (at, slot));
                        }
                        self.queue.push(Queued::Tensor(ReadyTensor::new(tally, slot, entry, id, true)));
                    }
                    Ok((entry, Some(id))) => {
                        tally.touch(slot);
                        self.queue.push(Queued::Tensor(ReadyTensor::new(tally, slot, entry, Some(id), false)));
                    }
                    Err(text) => {
                        let asked = &tally.slots[slot].arrivals;
                        let asked: Arc<[u32]> = asked.iter().map(|one| tally.members[one.place as usize]).collect();
                        let names = vec![tally.slots[slot].name.clone()];
                        let told = ToMember::Error { area: tally.area, names, text: text.into() };
                        self.queue.push(Queued::Tell(asked, told));
                    }
                }
            }
            tally.clear(slot);
        }
        ready
    }
}

/// What is to be performed for a complete slot, and the id that the ranks know it by; or why it cannot be.
fn decide(tally: &Tally, slot: SlotIdx) -> Result<(Arc<Entry>, Option<CacheId>), String> {
    let complete = &tally.slots[slot];
    let n_members = tally.members.len();
    let as_before = complete.arrivals.iter().all(|arrival| arrival.request.is_none());
    if as_before
        && let Some((id, entry)) = &complete.cached
        && (complete.arrivals.len() == n_members || entry.terms().kind.takes_zeros())
    {
        return Ok((entry.clone(), Some(*id)));
    }
    let remembered: Vec<Option<Request>> = complete
        .arrivals
        .iter()
        .map(|arrival| match &arrival.request {
            Some(_) => None,
            None => complete.entry.as_ref().map(|entry| entry.request_of(arrival.place as usize)),
        })
        .collect();
    let requests: Vec<(u32, &Request)> = complete
        .arrivals
        .iter()
        .zip(&remembered)
        .filter_map(|(arrival, remembered)| Some((arrival.place, arrival.request.as_deref().or(remembered.as_ref())?)))
        .collect();
    let plain: Vec<&Request> = requests.iter().map(|(_, request)| *request).collect();
    check(&plain, n_members)?;
    let entry = Arc::new(Entry::of(tally.area, &requests, n_members));
    match &complete.cached {
        Some((id, known)) if *known == entry => Ok((known.clone(), Some(*id))),
        _ => Ok((entry, None)),
    }
}
