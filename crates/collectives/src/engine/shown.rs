//! Keeps what is seen of this rank from outside up to date (`observe::status`), and records what is asked for there. The driver enters around every operation and when it looks
//! around; most times nothing is due.

use std::time::Duration;

use crate::coordinator::{Kind, Tensor};
use crate::engine::driver::Driver;
use crate::engine::observed::micros_since_1970;
use crate::observe::status::Besides;

impl Driver {
    pub(super) fn show_begin(&mut self, kind: Kind, tensors: &[Tensor]) {
        let now = self.began.elapsed();
        self.status.begin(kind, tensors, now);
        self.show(now);
    }

    pub(super) fn show_end(&mut self, tensors: &[Tensor], n_bytes: u64) {
        let now = self.began.elapsed();
        self.status.end(tensors, n_bytes, self.member.n_pending(), now);
        self.show(now);
    }

    pub(super) fn show(&mut self, now: Duration) {
        if !self.status.is_due(now) {
            return;
        }
        let recorder = &mut self.observed.recorder;
        recorder.follow(self.status.wish(), self.world.rank(), now, micros_since_1970());
        let recording = recorder.state();
        let in_shared_memory = self.status.awaits_in_shared_memory(now);
        let pending = self.member.pending().map(|(_, name, since)| (name, since)).chain(in_shared_memory);
        let pending = pending.min_by_key(|(_, since)| *since);
        let awaited = self.coordinator.as_ref().and_then(|coordinator| {
            let in_shared_memory = self.shared_steps.awaited(now);
            coordinator.awaited().into_iter().chain(in_shared_memory).min_by_key(|awaited| awaited.since)
        });
        self.status.write(&Besides { pending, awaited, recording }, now);
    }
}
