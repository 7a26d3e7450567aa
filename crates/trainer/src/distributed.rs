//! Distributed optimizer: steps with the gradients of all ranks. Uses shared memory if all ranks are on one host, the
//! collectives engine otherwise. The backward pass writes its gradients to a [`GradientSender`].

use corro_collectives::Engine;
use corro_collectives::engine::handle::EngineError;
use corro_collectives::optimizer::shm_optimizer::{FusedStep, ShmOptimizer};
use corro_collectives::optimizer::{Config, DistributedOptimizer, OptimizerError, ShardedStep};

use crate::compute::Compute;
use crate::network::{GradientSink, PARAMETERS, Weights};
use crate::rmsprop::{self, RmsProp};

pub enum RankOptimizer<'e, O = RmsProp> {
    Shm(ShmOptimizer<'e, O>),
    Network(DistributedOptimizer<'e, O>),
}

impl<'e, O: ShardedStep + FusedStep> RankOptimizer<'e, O> {
    /// Creates the optimizer. Collective over all ranks.
    pub fn new(engine: &'e Engine, optimizer: O) -> Result<Self, OptimizerError> {
        let names = PARAMETERS.each_ref().map(|parameter| parameter.name());
        let parameters: Vec<(&str, usize)> =
            names.iter().zip(&PARAMETERS).map(|(name, parameter)| (name.as_str(), parameter.size())).collect();
        Ok(match ShmOptimizer::new(engine, optimizer, &parameters, rmsprop::SHARD_MIN_LEN) {
            Ok(shm) => RankOptimizer::Shm(shm),
            Err(optimizer) => {
                let network = DistributedOptimizer::new(engine, optimizer, &parameters, Config::DEFAULT)?;
                RankOptimizer::Network(network.with_sharded_steps(rmsprop::SHARD_MIN_LEN))
            }
        })
    }

    /// As [`RankOptimizer::new`], with all weights and all state of the optimizer on every rank, so that nothing is lost
    /// with one. A step that fails changes nothing.
    pub fn replicated(engine: &'e Engine, optimizer: O) -> Result<Self, OptimizerError> {
        let names = PARAMETERS.each_ref().map(|parameter| parameter.name());
        let parameters: Vec<(&str, usize)> =
            names.iter().zip(&PARAMETERS).map(|(name, parameter)| (name.as_str(), parameter.size())).collect();
        DistributedOptimizer::new(engine, optimizer, &parameters, Config::DEFAULT).map(RankOptimizer::Network)
    }

    /// Sets the weights of the next steps, which must be equal on all ranks. Collective over all ranks.
    pub fn set_weights(&mut self, weights: &mut Weights) -> Result<(), OptimizerError> {
        match self {
            RankOptimizer::Shm(shm) => shm.share_parameters(&mut weights.0),
            RankOptimizer::Network(_) => Ok(()),
        }
    }

    /// Enables work stealing between the backward passes of one host's ranks. Collective over all ranks.
    pub fn enable_stealing(&self, compute: &mut Compute) {
        if let RankOptimizer::Shm(shm) = self
            && let Some(task_pool) = shm.open_task_pool(compute.shared_bytes())
        {
            compute.enable_stealing(task_pool);
        }
    }

    /// Gradient sink for a backward pass.
    pub fn gradient_sender(&mut self) -> GradientSender<'_, 'e, O> {
        GradientSender { optimizer: self, first_error: None, discarded: None }
    }

    /// Executes the step after a pass of `compute`. While other ranks are still in their pass, this one steals tasks
    /// from them. Collective over all ranks.
    pub fn step(&mut self, weights: &mut Weights, compute: &mut Compute) -> Result<(), OptimizerError> {
        match self {
            RankOptimizer::Shm(shm) => shm.step_with_stealing(&mut weights.0, || compute.steal_tasks()),
            RankOptimizer::Network(network) => network.step(&mut weights.slices_mut()),
        }
    }

    /// Gathers sharded optimizer state, so that every rank has all of it; `state` selects the tensors. Collective over
    /// all ranks.
    pub fn gather(&mut self, state: impl Fn(&mut O) -> &mut Weights) -> Result<(), EngineError> {
        (0..PARAMETERS.len()).try_for_each(|index| match self {
            RankOptimizer::Shm(shm) => shm.gather_state(index, |optimizer| &mut state(optimizer).0[index]),
            RankOptimizer::Network(network) => network.gather_state(index, |optimizer| &mut state(optimizer).0[index]),
        })
    }

    pub fn inner(&mut self) -> &mut O {
        match self {
            RankOptimizer::Shm(shm) => shm.optimizer_mut(),
            RankOptimizer::Network(network) => network.optimizer_mut(),
        }
    }
}

/// Sends gradients during the backward pass: each complete gradient is sent at once, while the pass continues with
/// earlier layers. The pass cannot fail, so the first error is kept until it ends.
pub struct GradientSender<'s, 'e, O> {
    optimizer: &'s mut RankOptimizer<'e, O>,
    first_error: Option<OptimizerError>,
    /// Buffer for gradients after an error; nobody reads it.
    discarded: Option<Weights>,
}

impl<O> GradientSender<'_, '_, O> {
    /// Ends the pass and returns the first error. The gradients may still be in transit.
    pub fn end(self) -> Result<(), OptimizerError> {
        self.first_error.map_or(Ok(()), Err)
    }
}

impl<O: ShardedStep + FusedStep> GradientSink for GradientSender<'_, '_, O> {
    fn buffer(&mut self, parameter: usize) -> &mut [f32] {
        let buffer = match self.optimizer {
            RankOptimizer::Shm(shm) => return shm.gradient_buffer(parameter),
            RankOptimizer::Network(network) => network.gradient_buffer(parameter),
        };
        match buffer {
            Ok(buffer) => buffer,
            Err(error) => {
                self.first_error.get_or_insert(error);
                &mut self.discarded.get_or_insert_with(Weights::zeros).0[parameter]
            }
        }
    }

    fn ready(&mut self, parameter: usize) {
        let ready = match self.optimizer {
            RankOptimizer::Shm(shm) => return shm.ready(parameter),
            RankOptimizer::Network(network) => network.ready(parameter),
        };
        if let Err(error) = ready {
            self.first_error.get_or_insert(error);
        }
    }

    fn yield_point(&mut self) {
        if let RankOptimizer::Shm(shm) = self.optimizer {
            // SAFETY: by calling `yield_point` the pass guarantees that it will not read parameters again whose
            // gradients are ready, and the weights are borrowed by the pass.
            unsafe { shm.try_overlapped_step() }
        }
    }
}
