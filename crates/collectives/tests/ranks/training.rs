//! Helpers for tests of the optimizer: ranks with an engine, and an optimizer with state.

use corro_collectives::coordinator::SetId;
use corro_collectives::optimizer::{Optimizer, ShardedStep};
use corro_collectives::settings::Settings;
use corro_collectives::{Engine, Options};

use super::on_ranks;

pub fn each(sizes: &[usize], body: impl Fn(&Engine) + Sync) {
    for n in sizes {
        on_ranks(*n, &Options::DEFAULT, |world| {
            let settings = Settings::from_variables(|_| None).expect("defaults");
            let engine = Engine::in_world(world, &settings).expect("an engine");
            body(&engine);
            // An engine that ends early would fail the operations of the others.
            engine.barrier(SetId::GLOBAL).expect("all ranks finish");
        });
    }
}

/// An optimizer with momentum; its state is by parameter.
#[derive(Debug, PartialEq)]
pub struct Momentum<const N: usize>(pub [Vec<f32>; N]);

impl<const N: usize> Optimizer for Momentum<N> {
    fn step(&mut self, index: usize, parameter: &mut [f32], gradient: &[f32]) {
        self.step_shard(index, 0, parameter, gradient);
    }
}

impl<const N: usize> ShardedStep for Momentum<N> {
    fn step_shard(&mut self, index: usize, first: usize, values: &mut [f32], gradient: &[f32]) {
        let memory = &mut self.0[index][first..][..values.len()];
        for ((value, memory), slope) in values.iter_mut().zip(memory).zip(gradient) {
            *memory = 0.5 * *memory + slope;
            *value -= *memory;
        }
    }
}
