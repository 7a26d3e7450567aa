//! What a timeline shows of the agreement: when a name is first asked for, which rank is ready when, and when all are. The
//! coordinator notes, the engine takes and adds the time. Costs one comparison when nobody looks.

use std::collections::HashSet;
use std::sync::Arc;

use super::message::{Area, Kind};
use super::tally::{Arrival, BARRIER, SlotIdx, Tally};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Start {
        area: Area,
        name: Arc<str>,
        kind: Kind,
    },
    /// A member (by its place in the set) has asked.
    Ready {
        area: Area,
        name: Arc<str>,
        place: u32,
    },
    End {
        area: Area,
        name: Arc<str>,
    },
}

#[derive(Debug, Default)]
pub struct Events {
    noted: Option<Vec<Event>>,
    /// Names whose `Start` was noted and whose `End` was not.
    started: HashSet<(Area, SlotIdx)>,
}

impl Events {
    pub fn is_on(&self) -> bool {
        self.noted.is_some()
    }

    /// Off forgets what was not taken.
    pub fn set(&mut self, on: bool) {
        match on {
            true => drop(self.noted.get_or_insert_default()),
            false => {
                self.noted = None;
                self.started.clear();
            }
        }
    }

    pub fn take(&mut self) -> Vec<Event> {
        self.noted.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn on_arrival(&mut self, tally: &Tally, slot: SlotIdx, arrival: &Arrival) {
        let Some(noted) = &mut self.noted else { return };
        let (area, asked) = (tally.area, &tally.slots[slot]);
        // Noting may begin when some members have asked already: the name starts then, with all of them ready.
        let is_new = self.started.insert((area, slot));
        if is_new || asked.arrivals.is_empty() {
            let known = || asked.cached.as_ref().map(|(_, entry)| entry.terms().kind);
            let kind = match &asked.arrivals.first().unwrap_or(arrival).request {
                _ if slot == BARRIER => Kind::Barrier,
                Some(request) => request.kind,
                None => known().unwrap_or(Kind::Allreduce),
            };
            noted.push(Event::Start { area, name: asked.name.clone(), kind });
            for earlier in &asked.arrivals {
                noted.push(Event::Ready { area, name: asked.name.clone(), place: earlier.place });
            }
        }
        noted.push(Event::Ready { area, name: asked.name.clone(), place: arrival.place });
    }

    pub(super) fn on_end(&mut self, tally: &Tally, slot: SlotIdx) {
        let Some(noted) = &mut self.noted else { return };
        self.started.remove(&(tally.area, slot));
        noted.push(Event::End { area: tally.area, name: tally.slots[slot].name.clone() });
    }
}
