//! The way of one gradient: added up, compressed, reduced, brought back. Entered by the optimizer helper, which owns the buffers.

use super::Config;
use crate::compression::{narrow, widen};
use crate::dtype::{Dtype, bytes_of_mut};
use crate::engine::Engine;
use crate::engine::calls::asynchronous::Pending;
use crate::engine::handle::EngineError;
use crate::reduce;

pub struct Parameter {
    pub name: String,
    pub size: usize,
    pub stage: Stage,
    /// As the engine knows it.
    tensor: String,
    /// Room for the compressed gradient, used again and again.
    short: Vec<u8>,
}

pub enum Stage {
    /// The last step is over: the buffer holds its gradient.
    Over,
    /// So many passes have added theirs.
    Adding(u32),
    /// With the buffer itself; where there was one is nothing now.
    Full(Pending<Vec<f32>>),
    /// As this type of half precision.
    Short(Dtype, Pending<Vec<u8>>),
}

impl Parameter {
    pub fn new(name: &str, size: usize) -> Parameter {
        let tensor = format!("allreduce.{name}");
        Parameter { name: name.to_owned(), size, stage: Stage::Over, tensor, short: Vec::new() }
    }

    /// Hands the gradient over; all of it comes back reduced, or this rank's share.
    pub fn start(&mut self, engine: &Engine, config: &Config, shared: bool, gradient: &mut Vec<f32>) {
        if config.average_passes {
            // Before it is compressed, so that a sum over many passes does not overflow.
            let factor = 1.0 / f64::from(config.backward_passes_per_step);
            reduce::scale(Dtype::F32, factor, bytes_of_mut(gradient)).expect("floats can be scaled");
        }
        self.stage = match config.compression.among(engine.place().size) {
            Some(dtype) => {
                let mut short = std::mem::take(&mut self.short);
                narrow(gradient, dtype, &mut short);
                Stage::Short(dtype, engine.allreduce_short(&self.tensor, short, dtype, config.reduce))
            }
            None if shared => Stage::Full(engine.reduce_shares(&self.tensor, std::mem::take(gradient), config.reduce)),
            None => Stage::Full(engine.allreduce_async(&self.tensor, std::mem::take(gradient), config.reduce)),
        };
    }

    /// Waits, and brings the gradient back.
    pub fn finish(&mut self, engine: &Engine, gradient: &mut Vec<f32>) -> Result<(), EngineError> {
        let outcome = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Over | Stage::Adding(_) => Ok(()),
            Stage::Full(pending) => engine.finish(pending).map(|reduced| *gradient = reduced),
            Stage::Short(dtype, pending) => engine.finish(pending).map(|short| {
                widen(&short, dtype, gradient);
                self.short = short;
            }),
        };
        if outcome.is_err() {
            // The engine may not have given it back.
            gradient.resize(self.size, 0.0);
        }
        outcome
    }
}
