//! Data-parallel training with plain gradient buffers: any optimizer, wrapped so that it steps with the gradients of all ranks. Users
//! enter; the negotiated door does the work. Never computes a gradient or a step itself.
//!
//! The helper owns one buffer for each parameter's gradient and lends it to the backward pass, which *adds* to it. A buffer that was
//! declared ready belongs to the engine until [`DistributedOptimizer::synchronize`], so it travels while the gradients of other
//! parameters are still computed, and nobody can touch it meanwhile. `parameter` is the way of one gradient. [`together`] is the same for
//! ranks of one host, in memory that all see (`commons`); in a [`yard`] they help each other.

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

/// What moves parameters along their gradients. Closures of the same arguments are optimizers too.
pub trait Optimizer {
    /// Changes the parameter of that index, given its gradient over all ranks.
    fn step(&mut self, index: usize, parameter: &mut [f32], gradient: &[f32]);
}

impl<F: FnMut(usize, &mut [f32], &[f32])> Optimizer for F {
    fn step(&mut self, index: usize, parameter: &mut [f32], gradient: &[f32]) {
        self(index, parameter, gradient);
    }
}

/// An optimizer that can change a part of a parameter by itself, because no value depends on another: all but those that look at norms.
pub trait ShardedStep: Optimizer {
    /// As [`Optimizer::step`], for the values from `first` on only.
    fn step_shard(&mut self, index: usize, first: usize, values: &mut [f32], gradient: &[f32]);
}

/// The same on every rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// How gradients travel.
    pub compression: Compression,
    /// How gradients are combined: mostly [`Reduce::AVERAGE`]. With Adasum the gradients are combined, not (as in Horovod's PyTorch
    /// optimizer) the changes of parameters.
    pub reduce: Reduce,
    /// Backward passes whose gradients are added up on each rank before they are reduced; at least 1.
    pub backward_passes_per_step: u32,
    /// Whether the local sum is divided by the passes. Horovod does not, unless TensorFlow's `average_aggregated_gradients` says so.
    pub average_passes: bool,
}

impl Config {
    /// What Horovod does when it is told nothing: the average over ranks of every pass.
    pub const PLAIN: Config = Config {
        compression: Compression::None,
        reduce: Reduce::AVERAGE,
        backward_passes_per_step: 1,
        average_passes: false,
    };
}

/// Why a gradient or a step was refused, or failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptimizerError {
    /// An index beyond those given at the beginning.
    #[error("there is no parameter {index}, only {n_parameters} of them")]
    NoSuchParameter { index: usize, n_parameters: usize },
    /// A gradient, or a parameter given to a step.
    #[error("{given} values for the parameter {name}, which has {size}")]
    LengthMismatch { name: String, given: usize, size: usize },
    /// In a step.
    #[error("{given} parameters instead of {n_parameters}")]
    ParameterCount { given: usize, n_parameters: usize },
    /// Names tell the gradients apart.
    #[error("parameter names must be unique; there are two called {name}")]
    DuplicateName { name: String },
    /// Nothing would ever be reduced.
    #[error("the number of backward passes per step must be at least 1")]
    NoPasses,
    /// More backward passes than were announced, without a step between them.
    #[error("the gradient of {name} is under way: a step has to come before the next backward pass")]
    InFlight { name: String },
    /// A pass that overwrites, after one of the same step.
    #[error("the gradient of {name} has a pass of this step in it: add to it")]
    AlreadyAccumulated { name: String },
    /// The ranks do not agree on it, a rank died, or the engine has ended.
    #[error("the gradient of {name} could not be reduced")]
    Reduction {
        name: String,
        #[source]
        cause: EngineError,
    },
    /// Values of a large parameter that were not taken to where all ranks see them.
    #[error("the values of {name} are not those that all ranks see")]
    NotShared { name: String },
    /// A rank died, or was silent for too long.
    #[error("the ranks could not step together")]
    Sync {
        #[source]
        cause: EngineError,
    },
    /// A rank died, or the engine has ended, after some parameters have changed.
    #[error("the shares of {name} could not be gathered")]
    Gather {
        name: String,
        #[source]
        cause: EngineError,
    },
}

/// Wraps the optimizer `O`. All ranks make it with the same parameters, in any order of calls from then on.
pub struct DistributedOptimizer<'e, O> {
    engine: &'e Engine,
    optimizer: O,
    config: Config,
    parameters: Vec<GradientSlot>,
    /// By parameter; empty while the engine has it.
    gradients: Vec<Vec<f32>>,
    sharding: Option<Sharding<O>>,
}

/// Parameters from so many elements on are shared out.
struct Sharding<O> {
    min_elements: usize,
    step: fn(&mut O, usize, usize, &mut [f32], &[f32]),
}

impl<'e, O: Optimizer> DistributedOptimizer<'e, O> {
    /// `parameters`: names, unique and the same on every rank, and numbers of elements.
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

    /// Shares the steps of large parameters out: every rank reduces, and steps with, its [`Engine::share`] of the elements, and
    /// gets the others' from them. As many bytes travel, and each rank's optimizer has less to do. Of such a parameter
    /// [`DistributedOptimizer::synchronize`] returns a gradient that is good in the own share only, and what the optimizer
    /// remembers is good there only; see [`DistributedOptimizer::gather`]. `from`: elements. Only plain sums and averages over all ranks are shared
    /// out.
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

    /// Whether every rank steps with its share of this parameter only.
    pub fn is_sharded(&self, index: usize) -> bool {
        let size = self.parameters.get(index).map_or(0, |parameter| parameter.size);
        self.sharding.as_ref().is_some_and(|sharding| size >= sharding.min_elements)
    }

    /// Brings together what the optimizers of all ranks remember of a parameter, one value for each of its elements; `memory` says where.
    /// Collective when the parameter is shared out; otherwise all have it already.
    pub fn gather_state(&mut self, index: usize, memory: impl FnOnce(&mut O) -> &mut [f32]) -> Result<(), EngineError> {
        if !self.is_sharded(index) {
            return Ok(());
        }
        let name = format!("memory.{}", self.parameters[index].name);
        self.engine.allgather_shards(&name, memory(&mut self.optimizer))
    }

    /// The buffer to which a backward pass adds the gradient of a parameter; zeros at the beginning of a step. Call
    /// [`DistributedOptimizer::ready`] when the pass has added all of it.
    pub fn gradient(&mut self, index: usize) -> Result<&mut [f32], OptimizerError> {
        let parameter = self.idle(index)?;
        if let Stage::Idle = parameter.stage {
            parameter.stage = Stage::Accumulating(0);
            self.gradients[index].fill(0.0);
        }
        Ok(&mut self.gradients[index])
    }

    /// The buffer for a backward pass that writes the whole gradient of a parameter instead of adding to it: as it was left, to be
    /// overwritten. For the first pass of a step. Then [`DistributedOptimizer::ready`], as after [`DistributedOptimizer::gradient`], whose
    /// zeros this saves.
    pub fn gradient_buffer(&mut self, index: usize) -> Result<&mut [f32], OptimizerError> {
        let parameter = self.idle(index)?;
        if let Stage::Accumulating(1..) = parameter.stage {
            return Err(OptimizerError::AlreadyAccumulated { name: parameter.name.clone() });
        }
        parameter.stage = Stage::Accumulating(0);
        Ok(&mut self.gradients[index])
    }

    /// One backward pass has finished this gradient. After the last pass of the step its reduction starts, and this returns at once.
    pub fn ready(&mut self, index: usize) -> Result<(), OptimizerError> {
        self.gradient(index)?;
        let n_passes = self.config.backward_passes_per_step;
        match &mut self.parameters[index].stage {
            Stage::Accumulating(n_done) if *n_done + 1 < n_passes => *n_done += 1,
            _ => self.start(index),
        }
        Ok(())
    }

    /// Adds a gradient that lies elsewhere, and declares it ready. Costs a copy that [`DistributedOptimizer::gradient`] does not.
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

    /// Waits for the reductions of this step and returns the reduced gradients, by parameter. Those that are not under way are
    /// started: what few passes have added counts, a parameter without a gradient counts as zeros. Collective.
    ///
    /// # Errors
    /// The first one, after all have ended; the gradients of the step are then lost, and the next step begins.
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

    /// Waits as [`DistributedOptimizer::synchronize`], then lets the wrapped optimizer change every parameter. Collective. On an error
    /// of a reduction no parameter has changed.
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

    /// The wrapped optimizer, for its learning rate and the like.
    pub fn optimizer_mut(&mut self) -> &mut O {
        &mut self.optimizer
    }

    /// A parameter whose gradient is not the engine's.
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
        let shared = self.is_sharded(index);
        self.parameters[index].start(self.engine, &self.config, shared, &mut self.gradients[index]);
    }
}

/// Everybody gets the parameters (or the state of an optimizer) of the global rank `root`: all ranks start alike. Collective; every
/// rank gives the same number of parameters of the same lengths.
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

/// A learning rate that suits one rank, for all of them: with averaged gradients and a batch for each rank the rate grows with the number
/// of ranks. A sum has grown already, and Adasum needs no larger rate.
pub fn scale_learning_rate(engine: &Engine, rate: f32, op: ReduceOp) -> f32 {
    match op {
        ReduceOp::Average => rate * engine.rank_info().size as f32,
        _ => rate,
    }
}
