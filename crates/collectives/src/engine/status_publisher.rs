//! Publishes the engine's status (`observe::status`) before and after operations and during housekeeping, and starts the recordings that
//! are requested through it. Rate-limited: most calls do nothing.

use std::time::Duration;

use crate::coordinator::{Kind, NegotiatedTensor};
use crate::engine::instrumentation::micros_since_1970;
use crate::engine::progress::ProgressEngine;
use crate::observe::status::StatusExtras;

impl ProgressEngine {
    pub(super) fn publish_begin(&mut self, kind: Kind, tensors: &[NegotiatedTensor]) {
        let now = self.began.elapsed();
        self.status.begin(kind, tensors, now);
        self.publish_if_due(now);
    }

    pub(super) fn publish_end(&mut self, tensors: &[NegotiatedTensor], n_bytes: u64) {
        let now = self.began.elapsed();
        self.status.end(tensors, n_bytes, self.worker.n_pending(), now);
        self.publish_if_due(now);
    }

    pub(super) fn publish_if_due(&mut self, now: Duration) {
        if !self.status.is_due(now) {
            return;
        }
        let recorder = &mut self.instrumentation.recorder;
        recorder.poll(self.status.record_request(), self.world.rank(), now, micros_since_1970());
        let recording = recorder.state();
        let in_shared_memory = self.status.shm_wait(now);
        let pending = self.worker.pending().map(|(_, name, since)| (name, since)).chain(in_shared_memory);
        let pending = pending.min_by_key(|(_, since)| *since);
        let oldest_incomplete = self.coordinator.as_ref().and_then(|coordinator| {
            let in_shared_memory = self.shm_steps.oldest_incomplete(now);
            coordinator
                .oldest_incomplete()
                .into_iter()
                .chain(in_shared_memory)
                .min_by_key(|oldest_incomplete| oldest_incomplete.since)
        });
        self.status.write(&StatusExtras { pending, oldest_incomplete, recording }, now);
    }
}
