//! State of one parameter's gradient in a step: accumulated, compressed, reduced, returned.

use super::Config;
use crate::compression::{narrow, widen};
use crate::dtype::{Dtype, bytes_of_mut};
use crate::engine::Engine;
use crate::engine::handle::EngineError;
use crate::engine::ops::asynchronous::PendingResult;
use crate::reduce;

/// One parameter and the stage of its gradient. The buffer itself belongs to the optimizer.
pub struct GradientSlot {
    pub name: String,
    pub size: usize,
    pub stage: Stage,
    /// Name of the reduction in the engine.
    tensor: String,
    /// Buffer of the compressed gradient, kept for its allocation.
    compressed: Vec<u8>,
}

/// Stage of a gradient within a step.
pub enum Stage {
    /// Before the first pass of a step: the buffer holds the reduced gradient of the last step.
    Idle,
    /// This many backward passes have accumulated their gradients.
    Accumulating(u32),
    /// Being reduced in the buffer itself, which the engine owns meanwhile.
    Uncompressed(PendingResult<Vec<f32>>),
    /// Being reduced in half precision, with this dtype.
    Compressed(Dtype, PendingResult<Vec<u8>>),
}

impl GradientSlot {
    pub fn new(name: &str, size: usize) -> GradientSlot {
        let tensor = format!("allreduce.{name}");
        GradientSlot { name: name.to_owned(), size, stage: Stage::Idle, tensor, compressed: Vec::new() }
    }

    /// Starts the reduction: an allreduce, or a reducescatter if the parameter is sharded.
    pub fn start(&mut self, engine: &Engine, config: &Config, sharded: bool, gradient: &mut Vec<f32>) {
        if config.average_passes {
            // Before compression, so that the sum of many passes does not overflow half precision.
            let factor = 1.0 / f64::from(config.backward_passes_per_step);
            reduce::scale(Dtype::F32, factor, bytes_of_mut(gradient)).expect("floats can be scaled");
        }
        self.stage = match config.compression.wire_dtype(engine.rank_info().size) {
            Some(dtype) => {
                let mut compressed = std::mem::take(&mut self.compressed);
                narrow(gradient, dtype, &mut compressed);
                Stage::Compressed(
                    dtype,
                    engine.allreduce_compressed_bytes(&self.tensor, compressed, dtype, config.reduce),
                )
            }
            None if sharded => Stage::Uncompressed(engine.reducescatter_in_place(
                &self.tensor,
                std::mem::take(gradient),
                config.reduce,
            )),
            None => Stage::Uncompressed(engine.allreduce_async(&self.tensor, std::mem::take(gradient), config.reduce)),
        };
    }

    /// Waits for the reduction and returns the gradient to its buffer.
    pub fn finish(&mut self, engine: &Engine, gradient: &mut Vec<f32>) -> Result<(), EngineError> {
        let outcome = match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Idle | Stage::Accumulating(_) => Ok(()),
            Stage::Uncompressed(pending) => engine.finish(pending).map(|reduced| *gradient = reduced),
            Stage::Compressed(dtype, pending) => engine.finish(pending).map(|compressed| {
                widen(&compressed, dtype, gradient);
                self.compressed = compressed;
            }),
        };
        if outcome.is_err() {
            // The engine may have lost the buffer.
            gradient.resize(self.size, 0.0);
        }
        outcome
    }
}
