//! Execution of negotiated operations: on tensors in host memory by `execute_host`, on those in the memory of a device by `devices`. Reports
//! begin and end, and fails what cannot be executed.

use std::sync::Arc;

use corro_base::error_chain;

use crate::coordinator::{FusionKey, NegotiatedTensor, SetId};
use crate::device::error::DeviceError;
use crate::engine::execute_host::{TensorOp, execute_on_host, fail_op};
use crate::engine::handle::EngineError;
use crate::engine::progress::ProgressEngine;
use crate::error::Error;

impl ProgressEngine {
    /// Names operation and tensor of a failure on the device.
    fn device_failure(&self, key: FusionKey, tensors: &[NegotiatedTensor], error: &DeviceError) -> String {
        let first = tensors.first().map_or("", |tensor| &tensor.response.name);
        let more = if tensors.len() > 1 { format!(" and {} others", tensors.len() - 1) } else { String::new() };
        format!("{} of {first}{more} failed on the GPU: {}", key.kind.call(), error_chain::join(error))
    }

    /// Executes one operation on all these tensors, and completes or fails them.
    pub(super) fn execute(&mut self, set: SetId, key: FusionKey, tensors: &[NegotiatedTensor]) {
        let op = |tensor| {
            let tensor: &NegotiatedTensor = tensor;
            let entry = tensor.request_id.and_then(|request_id| self.tensor_table.remove(&request_id));
            let elements: u64 = tensor.response.shape.iter().product();
            TensorOp { tensor, entry, n_bytes: elements as usize * key.dtype.size() }
        };
        let mut ops: Vec<TensorOp<'_>> = tensors.iter().map(op).collect();
        self.instrumentation.on_begin(key.kind, tensors);
        self.publish_begin(key.kind, tensors);
        if let Some(tensor) = tensors.first() {
            self.world.shared.peer_table.begin_work(&tensor.response.name);
        }
        let Some(Some(communicator)) = self.sets.get_mut(&set) else {
            debug_assert!(false, "the coordinator sends operations only to members");
            return;
        };
        let outcome = if key.on_cpu {
            execute_on_host(communicator, key, &mut ops, &mut self.fusion_buffer)
        } else {
            let instrumentation = &self.instrumentation;
            match self.devices.execute(set, communicator, key, &mut ops, &mut self.fusion_buffer, instrumentation) {
                Ok(()) => Ok(()),
                Err(DeviceError::Collective(error)) => Err(error),
                Err(error) => {
                    let text = self.device_failure(key, tensors, &error);
                    self.instrumentation.log_error(&text);
                    let text = format!("rank {}: {text}", self.world.rank());
                    // First, so that a caller that sees its operation fail and submits again gets this error at once.
                    self.shut_down_all_with(&text);
                    fail_all(ops, &EngineError::Failed(text.as_str().into()));
                    return;
                }
            }
        };
        self.instrumentation.on_end(key, tensors);
        let n_bytes: usize = tensors.iter().map(|tensor| bytes_of(tensor, key)).sum();
        self.publish_end(tensors, n_bytes as u64);
        match outcome {
            Ok(()) => {}
            // All ranks fail alike, before any data is transferred, so the engine stays usable.
            Err(Error::InvalidArgument(refused)) => fail_all(ops, &EngineError::Failed(refused.to_string().into())),
            Err(error) => {
                let text: Arc<str> = self.world.shared.peer_table.death().unwrap_or(error).to_string().into();
                self.shut_down_with(&text);
                fail_all(ops, &EngineError::Failed(text.clone()));
                return;
            }
        }
        if let Some(tuning) = self.instrumentation.record_reduction(key.kind, tensors, n_bytes)
            && let Some(coordinator) = &mut self.coordinator
        {
            coordinator.tune(tuning);
        }
    }
}

fn bytes_of(tensor: &NegotiatedTensor, key: FusionKey) -> usize {
    tensor.response.shape.iter().product::<u64>() as usize * key.dtype.size()
}

/// Fails the tensors that are not complete.
fn fail_all(ops: Vec<TensorOp<'_>>, error: &EngineError) {
    for mut op in ops {
        fail_op(&mut op, error.clone());
    }
}
