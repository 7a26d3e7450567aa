//! Data-parallel training: wraps any optimizer so that it steps with the gradients of all ranks, like Horovod's `DistributedOptimizer`. Never
//! computes a gradient or a step itself.
//!
//! [`DistributedOptimizer`] owns one gradient buffer per parameter and lends it to the backward pass, which *accumulates* into it. A buffer
//! that is declared ready belongs to the engine until [`DistributedOptimizer::synchronize`], so its reduction overlaps with the computation of
//! the other gradients. `gradient_slot` is the state of one gradient.
//!
//! [`shm_optimizer`] does the same for ranks of one host in shared memory (`shared_params`), and [`work_stealing`] lets these ranks run each
//! other's tasks.

mod gradient_slot;
mod shared_params;
pub mod shm_optimizer;
pub mod work_stealing;

use std::collections::HashSet;

use crate::compression::Compression;
use crate::dtype::{Dtype, Element, bytes_of, bytes_of_mut};
use crate::engine::Engine;
use crate::engine::handle::EngineError;
use crate::engine::ops::Reduce;
use crate::op::{Combine, ReduceOp};
use crate::optimizer::gradient_slot::{GradientSlot, Stage};
use crate::reduce;

pub use shared_params::{AveragedGradient, ParamStorage, SharedSlice};

/// Optimizer of parameters. Closures with the same arguments implement it.
pub trait Optimizer {
    /// Updates the parameter with this index, given its reduced gradient.
    fn step(&mut self, index: usize, parameter: &mut [f32], gradient: &[f32]);
}

impl<F: FnMut(usize, &mut [f32], &[f32])> Optimizer for F {
    fn step(&mut self, index: usize, parameter: &mut [f32], gradient: &[f32]) {
        self(index, parameter, gradient);
    }
}

/// Optimizer that can update a part of a parameter on its own, because each value depends only on its own gradient. Not possible for
/// optimizers that use norms.
pub trait ShardedStep: Optimizer {
    /// [`Optimizer::step`] for the values from index `first` on.
    fn step_shard(&mut self, index: usize, first: usize, values: &mut [f32], gradient: &[f32]);
}

/// Configuration of gradient reduction, the same on every rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Compression of gradients for the reduction.
    pub compression: Compression,
    /// Reduction of gradients, usually [`Reduce::AVERAGE`]. Adasum combines the gradients, not the parameter updates as Horovod's PyTorch
    /// optimizer does.
    pub reduce: Reduce,
    /// Backward passes that each rank accumulates before the reduction; at least 1.
    pub backward_passes_per_step: u32,
    /// Divide the accumulated gradient by the number of passes. Horovod does so only with TensorFlow's `average_aggregated_gradients`.
    pub average_passes: bool,
}

impl Config {
    /// Horovod's defaults: average over all ranks after every pass.
    pub const DEFAULT: Config = Config {
        compression: Compression::None,
        reduce: Reduce::AVERAGE,
        backward_passes_per_step: 1,
        average_passes: false,
    };
}

/// Error of a gradient or a step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptimizerError {
    /// Parameter index out of range.
    #[error("parameter {index} does not exist; there are {n_parameters}")]
    NoSuchParameter { index: usize, n_parameters: usize },
    /// Gradient or parameter of the wrong length.
    #[error("parameter {name} has {size} elements, but {given} were given")]
    LengthMismatch { name: String, given: usize, size: usize },
    /// Wrong number of parameters in a step.
    #[error("expected {n_parameters} parameters, but {given} were given")]
    ParameterCount { given: usize, n_parameters: usize },
    /// Two parameters have the same name.
    #[error("duplicate parameter name {name}")]
    DuplicateName { name: String },
    /// `backward_passes_per_step` is 0.
    #[error("backward_passes_per_step must be at least 1")]
    NoPasses,
    /// More than `backward_passes_per_step` backward passes without a step.
    #[error("the gradient of {name} is being reduced: call step before the next backward pass")]
    InFlight { name: String },
    /// A pass would overwrite the gradient of an earlier pass of the same step.
    #[error("the gradient of {name} already contains a backward pass of this step and can only be accumulated")]
    AlreadyAccumulated { name: String },
    /// The ranks' gradients do not match, a rank died, or the engine has shut down.
    #[error("cannot reduce the gradient of {name}")]
    Reduction {
        name: String,
        #[source]
        cause: EngineError,
    },
    /// The values of a sharded parameter are not in shared memory.
    #[error("the values of {name} are not in shared memory: call share_parameters before the first step")]
    NotShared { name: String },
    /// A rank died or timed out while the ranks synchronized a step.
    #[error("the ranks could not synchronize the step")]
    Sync {
        #[source]
        cause: EngineError,
    },
    /// A rank died or the engine has shut down after some parameters were updated.
    #[error("cannot gather the shards of {name}")]
    Gather {
        name: String,
        #[source]
        cause: EngineError,
    },
}

/// Distributed version of the optimizer `O`. All ranks create it with the same parameters and may then submit gradients in any order.
pub struct DistributedOptimizer<'e, O> {
    engine: &'e Engine,
    optimizer: O,
    config: Config,
    parameters: Vec<GradientSlot>,
    /// By parameter; empty while the engine owns the buffer.
    gradients: Vec<Vec<f32>>,
    sharding: Option<Sharding<O>>,
}

/// Sharded steps: parameters of at least this many elements are divided among the ranks.
struct Sharding<O> {
    min_elements: usize,
    step: fn(&mut O, usize, usize, &mut [f32], &[f32]),
}

impl<'e, O: Optimizer> DistributedOptimizer<'e, O> {
    /// `parameters` are names, unique and the same on every rank, and numbers of elements.
    pub fn new(
        engine: &'e Engine,
        optimizer: O,
        parameters: &[(&str, usize)],
        config: Config,
    ) -> Result<Self, OptimizerError> {
        if config.backward_passes_per_step == 0 {
            return Err(OptimizerError::NoPasses);
        }
        let mut names = HashSet::new();
        if let Some((name, _)) = parameters.iter().find(|(name, _)| !names.insert(*name)) {
            return Err(OptimizerError::DuplicateName { name: (*name).to_owned() });
        }
        let gradients = parameters.iter().map(|(_, size)| vec![0.0; *size]).collect();
        let parameters = parameters.iter().map(|(name, size)| GradientSlot::new(name, *size)).collect();
        Ok(Self { engine, optimizer, config, parameters, gradients, sharding: None })
    }

    /// Enables sharded steps for parameters of at least `min_elements` elements, as in ZeRO: each rank reduces and steps its
    /// [`Engine::shard`] of the elements, then the ranks allgather the values. The same number of bytes is transferred, and each rank's
    /// optimizer has less work.
    ///
    /// For such a parameter the gradient of [`DistributedOptimizer::synchronize`] and the optimizer's state are valid only in this rank's
    /// shard; see [`DistributedOptimizer::gather_state`]. Has an effect only for uncompressed sums and averages over several ranks.
    #[must_use]
    pub fn with_sharded_steps(mut self, min_elements: usize) -> Self
    where
        O: ShardedStep,
    {
        let Config { compression, reduce, .. } = self.config;
        let can = matches!(reduce.op, ReduceOp::Sum | ReduceOp::Average) && reduce.set == Reduce::AVERAGE.set;
        if can && self.engine.rank_info().size > 1 && compression == Compression::None {
            self.sharding = Some(Sharding { min_elements, step: O::step_shard });
        }
        self
    }

    /// True if each rank updates only its shard of this parameter.
    pub fn is_sharded(&self, index: usize) -> bool {
        let size = self.parameters.get(index).map_or(0, |parameter| parameter.size);
        self.sharding.as_ref().is_some_and(|sharding| size >= sharding.min_elements)
    }

    /// Allgathers the optimizer state of a sharded parameter, one value per element; `memory` returns its location. Collective if the
    /// parameter is sharded; otherwise every rank already has the state and this does nothing.
    pub fn gather_state(&mut self, index: usize, memory: impl FnOnce(&mut O) -> &mut [f32]) -> Result<(), EngineError> {
        if !self.is_sharded(index) {
            return Ok(());
        }
        let name = format!("memory.{}", self.parameters[index].name);
        self.engine.allgather_shards(&name, memory(&mut self.optimizer))
    }

    /// Gradient buffer into which a backward pass accumulates; zeros at the beginning of a step. Call [`DistributedOptimizer::ready`] when the
    /// pass is done with it.
    pub fn gradient(&mut self, index: usize) -> Result<&mut [f32], OptimizerError> {
        let parameter = self.idle(index)?;
        if let Stage::Idle = parameter.stage {
            parameter.stage = Stage::Accumulating(0);
            self.gradients[index].fill(0.0);
        }
        Ok(&mut self.gradients[index])
    }

    /// Gradient buffer with undefined content, for a backward pass that overwrites all of it. Saves the zeroing of
    /// [`DistributedOptimizer::gradient`]. Only for the first pass of a step; call [`DistributedOptimizer::ready`] afterwards.
    pub fn gradient_buffer(&mut self, index: usize) -> Result<&mut [f32], OptimizerError> {
        let parameter = self.idle(index)?;
        if let Stage::Accumulating(1..) = parameter.stage {
            return Err(OptimizerError::AlreadyAccumulated { name: parameter.name.clone() });
        }
        parameter.stage = Stage::Accumulating(0);
        Ok(&mut self.gradients[index])
    }

    /// Declares the gradient of one backward pass complete. After the last pass of a step this starts the reduction, without waiting.
    pub fn ready(&mut self, index: usize) -> Result<(), OptimizerError> {
        self.gradient(index)?;
        let n_passes = self.config.backward_passes_per_step;
        match &mut self.parameters[index].stage {
            Stage::Accumulating(n_done) if *n_done + 1 < n_passes => *n_done += 1,
            _ => self.start(index),
        }
        Ok(())
    }

    /// Accumulates a gradient from another buffer and declares it ready. Costs a copy that [`DistributedOptimizer::gradient`] avoids.
    pub fn submit(&mut self, index: usize, gradient: &[f32]) -> Result<(), OptimizerError> {
        let parameter = self.idle(index)?;
        if gradient.len() != parameter.size {
            let (given, size) = (gradient.len(), parameter.size);
            return Err(OptimizerError::LengthMismatch { name: parameter.name.clone(), given, size });
        }
        match parameter.stage {
            Stage::Idle => {
                parameter.stage = Stage::Accumulating(0);
                self.gradients[index].copy_from_slice(gradient);
            }
            _ => {
                reduce::combine(Dtype::F32, Combine::Sum, bytes_of_mut(&mut self.gradients[index]), bytes_of(gradient))
            }
        }
        self.ready(index)
    }

    /// Waits for the reductions of this step and returns the reduced gradients, by parameter. Starts those that are not started: with the
    /// passes accumulated so far, or with zeros for a parameter without gradient. Collective.
    ///
    /// # Errors
    /// The first error, after all reductions are complete. The gradients of the step are then lost, and the next step begins.
    pub fn synchronize(&mut self) -> Result<&[Vec<f32>], OptimizerError> {
        for index in 0..self.parameters.len() {
            if self.idle(index).is_ok() {
                self.gradient(index)?;
                self.start(index);
            }
        }
        let mut failed = None;
        for (parameter, gradient) in self.parameters.iter_mut().zip(&mut self.gradients) {
            if let Err(cause) = parameter.finish(self.engine, gradient) {
                failed.get_or_insert(OptimizerError::Reduction { name: parameter.name.clone(), cause });
            }
        }
        failed.map_or(Ok(&self.gradients), Err)
    }

    /// [`DistributedOptimizer::synchronize`], then updates every parameter with the wrapped optimizer. Collective. If a reduction fails, no
    /// parameter has changed.
    pub fn step(&mut self, parameters: &mut [&mut [f32]]) -> Result<(), OptimizerError> {
        if parameters.len() != self.parameters.len() {
            let (given, n_parameters) = (parameters.len(), self.parameters.len());
            return Err(OptimizerError::ParameterCount { given, n_parameters });
        }
        for (known, given) in self.parameters.iter().zip(&*parameters) {
            if known.size != given.len() {
                return Err(OptimizerError::LengthMismatch {
                    name: known.name.clone(),
                    given: given.len(),
                    size: known.size,
                });
            }
        }
        self.synchronize()?;
        for (index, values) in parameters.iter_mut().enumerate() {
            let gradient = &self.gradients[index];
            match self.sharding.as_ref().filter(|_| self.is_sharded(index)) {
                None => self.optimizer.step(index, values, gradient),
                Some(sharding) => {
                    let shard = self.engine.shard(values.len());
                    (sharding.step)(
                        &mut self.optimizer,
                        index,
                        shard.start,
                        &mut values[shard.clone()],
                        &gradient[shard],
                    );
                    let name = &self.parameters[index].name;
                    let gathered = self.engine.allgather_shards(&format!("allgather.{name}"), values);
                    gathered.map_err(|cause| OptimizerError::Gather { name: name.clone(), cause })?;
                }
            }
        }
        Ok(())
    }

    /// The wrapped optimizer, for example to set its learning rate.
    pub fn optimizer_mut(&mut self) -> &mut O {
        &mut self.optimizer
    }

    /// State of a parameter whose gradient buffer is not owned by the engine.
    fn idle(&mut self, index: usize) -> Result<&mut GradientSlot, OptimizerError> {
        let n_parameters = self.parameters.len();
        let parameter = self.parameters.get_mut(index);
        let parameter = parameter.ok_or(OptimizerError::NoSuchParameter { index, n_parameters })?;
        match parameter.stage {
            Stage::Idle | Stage::Accumulating(_) => Ok(parameter),
            _ => Err(OptimizerError::InFlight { name: parameter.name.clone() }),
        }
    }

    fn start(&mut self, index: usize) {
        let sharded = self.is_sharded(index);
        self.parameters[index].start(self.engine, &self.config, sharded, &mut self.gradients[index]);
    }
}

/// Broadcasts the parameters (or the optimizer state) of global rank `root`, so that all ranks start with the same values. Collective; every
/// rank passes the same number of parameters of the same lengths.
pub fn broadcast_parameters<T: Element>(
    engine: &Engine,
    parameters: &mut [&mut [T]],
    root: u32,
) -> Result<(), EngineError> {
    for (index, parameter) in parameters.iter_mut().enumerate() {
        engine.broadcast(&format!("broadcast.parameter.{index}"), parameter, root, Reduce::AVERAGE.set)?;
    }
    Ok(())
}

/// Learning rate for all ranks from one tuned for a single rank. With averaged gradients and one batch per rank it scales with the number of
/// ranks. A sum is already larger, and Adasum needs no scaling.
pub fn scale_learning_rate(engine: &Engine, rate: f32, op: ReduceOp) -> f32 {
    match op {
        ReduceOp::Average => rate * engine.rank_info().size as f32,
        _ => rate,
    }
}
