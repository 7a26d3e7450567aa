//! RMSprop with learning rate decay, as in Keras 2.2, for which the tutorial was written. Gets gradients that are
//! already averaged over all ranks.
//!
//! Every value has an accumulator, an exponential mean of its squared gradients:
//!
//! ```text
//! accumulator = rho * accumulator + (1 - rho) * gradient²
//! value -= rate / (1 + decay * iterations) * gradient / (sqrt(accumulator) + epsilon)
//! ```
//!
//! Keras 3 has epsilon inside of the root and no decay. Values are independent of each other and no multiply-add is
//! fused, so the result is bit-identical for every number of threads and every instruction set.

use std::sync::{Arc, Mutex};

use corro_collectives::optimizer::shm_optimizer::FusedStep;
use corro_collectives::optimizer::{AveragedGradient, Optimizer, ShardedStep};

use crate::compute::Isa;
use crate::network::{PARAMETERS, Weights};
use crate::thread_pool::ThreadPool;

const RHO: f32 = 0.9;
const EPSILON: f32 = 1e-7;
/// Values per work item: three such chunks stay in a core's cache. Smaller parameters are not worth waking other
/// threads.
const CHUNK: usize = 1 << 14;
/// Values per work item if the average over ranks is computed first.
const SUM_CHUNK: usize = 1 << 11;

/// Parameters with at least this many elements are sharded between ranks: an update moves five times the bytes of its
/// values.
pub const SHARD_MIN_LEN: usize = 1 << 18;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Learning rate of the first step, already scaled by the number of ranks.
    pub rate: f32,
    /// Decay of the learning rate per step.
    pub decay: f32,
}

/// Optimizer state that a checkpoint stores.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub accumulators: Weights,
    /// Completed steps.
    pub iterations: u64,
}

pub struct RmsProp {
    config: Config,
    pool: Arc<ThreadPool>,
    isa: Isa,
    state: State,
}

impl RmsProp {
    pub fn new(config: &Config, pool: Arc<ThreadPool>) -> RmsProp {
        let state = State { accumulators: Weights::zeros(), iterations: 0 };
        RmsProp { config: *config, pool, isa: Isa::best(), state }
    }

    /// Learning rate of the current step. Changes only between steps.
    pub fn rate(&self) -> f32 {
        (f64::from(self.config.rate) / (1.0 + f64::from(self.config.decay) * self.state.iterations as f64)) as f32
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// For gathering the accumulators of all ranks. Only between steps.
    pub fn accumulators_mut(&mut self) -> &mut Weights {
        &mut self.state.accumulators
    }

    /// A step is complete after its last parameter.
    fn finish_parameter(&mut self, index: usize) {
        if index + 1 == PARAMETERS.len() {
            self.state.iterations += 1;
        }
    }

    /// Continues from a saved state. Only between steps.
    pub fn set_state(&mut self, state: State) {
        for (parameter, values) in PARAMETERS.iter().zip(&state.accumulators.0) {
            assert_eq!(values.len(), parameter.size(), "accumulators of {}", parameter.name());
        }
        self.state = state;
    }
}

impl Optimizer for RmsProp {
    fn step(&mut self, index: usize, parameter: &mut [f32], gradient: &[f32]) {
        self.step_shard(index, 0, parameter, gradient);
    }
}

impl ShardedStep for RmsProp {
    fn step_shard(&mut self, index: usize, first: usize, values: &mut [f32], gradient: &[f32]) {
        let (rate, isa) = (self.rate(), self.isa);
        let accumulators = &mut self.state.accumulators.0[index][first..][..values.len()];
        let updates = values.chunks_mut(CHUNK).zip(accumulators.chunks_mut(CHUNK)).zip(gradient.chunks(CHUNK));
        let updates = Mutex::new(updates.map(|((values, accumulators), gradients)| ChunkUpdate {
            values,
            accumulators,
            gradients,
        }));
        let work = |_thread| {
            let next = || updates.lock().expect("taking a chunk does not panic").next();
            while let Some(update) = next() {
                update.apply(rate, isa);
            }
        };
        match gradient.len() {
            ..=CHUNK => work(0),
            _ => self.pool.run(&work),
        }
        self.finish_parameter(index);
    }
}

impl FusedStep for RmsProp {
    /// Works in small chunks, so that the averaged gradient is still in cache when it is used.
    fn step_averaged(&mut self, index: usize, first: usize, values: &mut [f32], sum: &AveragedGradient<'_>) {
        let (rate, isa, len) = (self.rate(), self.isa, values.len());
        let accumulators = &mut self.state.accumulators.0[index][first..][..len];
        let updates = values.chunks_mut(SUM_CHUNK).zip(accumulators.chunks_mut(SUM_CHUNK)).enumerate();
        let updates = Mutex::new(updates);
        let work = |_thread| {
            let mut buffer = [0.0; SUM_CHUNK];
            let next = || updates.lock().expect("taking a chunk does not panic").next();
            while let Some((number, (values, accumulators))) = next() {
                let gradients = &mut buffer[..values.len()];
                sum.average_into(number * SUM_CHUNK, gradients);
                ChunkUpdate { values, accumulators, gradients }.apply(rate, isa);
            }
        };
        match len {
            ..=CHUNK => work(0),
            _ => self.pool.run(&work),
        }
        self.finish_parameter(index);
    }
}

/// Update of a range of values in one step.
struct ChunkUpdate<'a> {
    values: &'a mut [f32],
    accumulators: &'a mut [f32],
    gradients: &'a [f32],
}

impl ChunkUpdate<'_> {
    /// The same loop for every instruction set; the compiler vectorises it.
    fn apply(self, rate: f32, isa: Isa) {
        match isa {
            // SAFETY: `isa` is supported by this CPU: `Isa::best` and the tests choose only supported ones.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => unsafe { self.apply_avx512(rate) },
            // SAFETY: as for AVX-512.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { self.apply_avx2(rate) },
            _ => self.apply_portable(rate),
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    fn apply_avx512(self, rate: f32) {
        self.apply_portable(rate);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn apply_avx2(self, rate: f32) {
        self.apply_portable(rate);
    }

    #[inline(always)]
    fn apply_portable(self, rate: f32) {
        for ((value, accumulator), gradient) in self.values.iter_mut().zip(self.accumulators).zip(self.gradients) {
            let sum = RHO * *accumulator + (1.0 - RHO) * (gradient * gradient);
            // Without gradients an accumulator would decay to subnormal numbers, with which CPUs are about a hundred
            // times slower, and stay there.
            *accumulator = if sum < f32::MIN_POSITIVE { 0.0 } else { sum };
            *value -= rate * gradient / (accumulator.sqrt() + EPSILON);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const CONFIG: Config = Config { rate: 0.001, decay: 0.1 };

    fn random(key: u64) -> Weights {
        let mut weights = Weights::zeros();
        let mut random = Random::from_key(&[key]);
        weights.0.iter_mut().flatten().for_each(|value| *value = 2.0 * random.uniform() - 1.0);
        weights
    }

    /// Runs some steps with random gradients that depend on the step number.
    fn steps(optimizer: &mut RmsProp, weights: &mut Weights, steps: std::ops::Range<u64>) {
        for step in steps {
            let gradients = random(100 + step);
            for index in 0..PARAMETERS.len() {
                optimizer.step(index, &mut weights.0[index], &gradients.0[index]);
            }
        }
    }

    #[test]
    fn accumulators_without_gradients_decay_to_zero_without_subnormals() {
        let mut optimizer = RmsProp::new(&CONFIG, Arc::new(ThreadPool::new(1)));
        let mut weights = random(1);
        steps(&mut optimizer, &mut weights, 0..1);
        let nothing = Weights::zeros();
        for _ in 0..1_000 {
            // The bias of the last layer is enough; being last, it also completes the step.
            optimizer.step(11, &mut weights.0[11], &nothing.0[11]);
            assert!(optimizer.state().accumulators.0[11].iter().all(|value| *value == 0.0 || value.is_normal()));
        }
        assert_eq!(optimizer.state().accumulators.0[11], nothing.0[11]);
    }

    #[test]
    fn steps_follow_the_formula() {
        let mut optimizer = RmsProp::new(&CONFIG, Arc::new(ThreadPool::new(1)));
        let mut weights = random(1);
        let mut wanted = weights.0[3].iter().map(|value| f64::from(*value)).collect::<Vec<_>>();
        let mut accumulators = vec![0.0; wanted.len()];
        steps(&mut optimizer, &mut weights, 0..3);
        for step in 0..3 {
            let rate = 0.001 / (1.0 + 0.1 * step as f64);
            for (index, gradient) in random(100 + step).0[3].iter().map(|value| f64::from(*value)).enumerate() {
                accumulators[index] = 0.9 * accumulators[index] + 0.1 * gradient * gradient;
                wanted[index] -= rate * gradient / (f64::sqrt(accumulators[index]) + 1e-7);
            }
        }
        for (value, wanted) in weights.0[3].iter().zip(wanted) {
            assert!((f64::from(*value) - wanted).abs() < 1e-6 * (1.0 + wanted.abs()), "{value} instead of {wanted}");
        }
        assert_eq!(optimizer.state().iterations, 3);
        assert!((optimizer.rate() - 0.001 / 1.3).abs() < 1e-9);
    }

    #[test]
    fn epsilon_is_outside_the_root() {
        let mut optimizer = RmsProp::new(&Config { rate: 1.0, decay: 0.0 }, Arc::new(ThreadPool::new(1)));
        let mut bias = [0.0; 10];
        optimizer.step(11, &mut bias, &[1e-7; 10]);
        // 1 / (sqrt(0.1) + 1); with epsilon inside of the root it would be 0.0003.
        assert!(bias.iter().all(|value| (value + 0.759_747).abs() < 1e-5), "{bias:?}");
    }

    #[test]
    fn results_do_not_depend_on_threads_or_instruction_sets() {
        let mut simple_augment = RmsProp { isa: Isa::Portable, ..RmsProp::new(&CONFIG, Arc::new(ThreadPool::new(1))) };
        let mut wanted = random(1);
        steps(&mut simple_augment, &mut wanted, 0..2);
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_supported()) {
            for threads in [1, 2, 3] {
                let mut optimizer = RmsProp { isa, ..RmsProp::new(&CONFIG, Arc::new(ThreadPool::new(threads))) };
                let mut weights = random(1);
                steps(&mut optimizer, &mut weights, 0..2);
                assert!(weights == wanted && optimizer.state() == simple_augment.state(), "{isa:?}, {threads} threads");
            }
        }
    }

    #[test]
    fn a_restored_state_continues_identically() {
        let pool = Arc::new(ThreadPool::new(2));
        let (mut one, mut weights) = (RmsProp::new(&CONFIG, pool.clone()), random(1));
        steps(&mut one, &mut weights, 0..2);
        let (mut other, mut theirs) = (RmsProp::new(&CONFIG, pool), weights.clone());
        other.set_state(one.state().clone());
        steps(&mut one, &mut weights, 2..4);
        steps(&mut other, &mut theirs, 2..4);
        assert_eq!(weights, theirs);
        assert_eq!(one.state(), other.state());
    }
}
