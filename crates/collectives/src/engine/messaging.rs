//! Exchange of negotiation messages between this rank's worker and the coordinator, over the control channel. On rank 0 the two talk
//! directly, without encoding.

use std::time::Duration;

use crate::coordinator::{
    Action, Worker, decode_to_coordinator, decode_to_worker, encode_to_coordinator, encode_to_worker,
};
use crate::engine::progress::ProgressEngine;

impl ProgressEngine {
    /// Sends the worker's messages to the coordinator. True if there were any.
    pub(super) fn send_requests(&mut self, now: Duration) -> bool {
        let mut sent = false;
        self.frame.clear();
        for message in self.worker.drain_outgoing() {
            sent = true;
            match &mut self.coordinator {
                Some(coordinator) => coordinator.on_message(0, message, now),
                None => encode_to_coordinator(&message, &mut self.frame),
            }
        }
        if !self.frame.is_empty() {
            self.control_channel.send(0, &self.frame);
        }
        sent
    }

    /// Processes incoming messages. True if any bytes were transferred.
    pub(super) fn receive(&mut self, now: Duration) -> bool {
        let received = &mut self.received;
        let progressed = self.control_channel.deliver(|rank, message| received.push((rank, message.to_vec())));
        let mut protocol_error = None;
        for (rank, message) in self.received.drain(..) {
            let outcome = match &mut self.coordinator {
                Some(coordinator) => {
                    decode_to_coordinator(&message, |message| coordinator.on_message(rank as u32, message, now))
                        .map_err(|error| error.to_string())
                }
                None => decode_responses(&mut self.worker, &message, &mut self.actions),
            };
            if let Err(error) = outcome {
                protocol_error = Some(format!("received an invalid message from rank {rank}: {error}"));
            }
        }
        if let Some(text) = protocol_error {
            self.shut_down_with(&text);
        }
        progressed
    }

    /// Sends the coordinator's responses to all ranks. Rank 0 only.
    pub(super) fn send_responses(&mut self) {
        let Some(coordinator) = &mut self.coordinator else { return };
        self.instrumentation.write_negotiation_events(coordinator);
        if !coordinator.has_output() {
            return;
        }
        let (control_channel, frame, to_self) = (&mut self.control_channel, &mut self.frame, &mut self.to_self);
        coordinator.drain(|rank, messages| {
            if rank == 0 {
                to_self.extend_from_slice(messages);
                return;
            }
            frame.clear();
            messages.iter().for_each(|message| encode_to_worker(message, frame));
            control_channel.send(rank as usize, frame);
        });
        self.instrumentation.write_negotiation_events(coordinator);
        self.instrumentation.timeline.mark_cycle();
        let mut protocol_error = None;
        for message in self.to_self.drain(..) {
            if let Err(error) = self.worker.on_message(message, &mut self.actions) {
                protocol_error = Some(error.to_string());
            }
        }
        if let Some(text) = protocol_error {
            self.shut_down_with(&text);
        }
    }
}

/// Passes each message of a frame to the worker; returns the first error.
fn decode_responses(worker: &mut Worker, message: &[u8], actions: &mut Vec<Action>) -> Result<(), String> {
    let mut rejected = None;
    decode_to_worker(message, |message| {
        if let Err(error) = worker.on_message(message, actions) {
            rejected.get_or_insert(error);
        }
    })
    .map_err(|error| error.to_string())?;
    rejected.map_or(Ok(()), |error| Err(error.to_string()))
}
