//! The way of one gradient: added up, compressed, reduced, brought back. Entered by the optimizer helper, which owns the buffers.

use super::Config;
use crate::compression::{narrow, widen};
use crate::dtype::{Dtype, bytes_of_mut};
use crate::engine::Engine;
use crate::engine::handle::EngineError;
use crate::engine::ops::asynchronous::PendingResult;
use crate::reduce;

pub struct GradientSlot {
    pub name: String,
    pub size: usize,
    pub stage: Stage,
    /// As the engine knows it.
    tensor: String,
    /// Room for the compressed gradient, used again and again.
    compressed: Vec<u8>,
}

pub enum Stage {
    /// The last step is over: the buffer holds its gradient.
    Idle,
    /// So many passes have added theirs.
    Accumulating(u32),
    /// With the buffer itself; where there was one is nothing now.
    Uncompressed(PendingResult<Vec<f32>>),
    /// As this type of half precision.
    Compressed(Dtype, PendingResult<Vec<u8>>),
}

impl GradientSlot {
    pub fn new(name: &str, size: usize) -> GradientSlot {
        let tensor = format!("allreduce.{name}");
        GradientSlot { name: name.to_owned(), size, stage: Stage::Idle, tensor, compressed: Vec::new() }
    }

    /// Hands the gradient over; all of it comes back reduced, or this rank's share.
    pub fn start(&mut self, engine: &Engine, config: &Config, shared: bool, gradient: &mut Vec<f32>) {
        if config.average_passes {
            // Before it is compressed, so that a sum over many passes does not overflow.
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
            None if shared => Stage::Uncompressed(engine.reducescatter_in_place(
                &self.tensor,
                std::mem::take(gradient),
                config.reduce,
            )),
            None => Stage::Uncompressed(engine.allreduce_async(&self.tensor, std::mem::take(gradient), config.reduce)),
        };
    }

    /// Waits, and brings the gradient back.
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
            // The engine may not have given it back.
            gradient.resize(self.size, 0.0);
        }
        outcome
    }
}
