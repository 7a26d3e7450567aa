//! The optimizer, wrapped so that it steps with the gradients of all ranks: in memory that all see where they are on one host, over the engine
//! otherwise. Entered by `train`; the backward pass leaves its gradients with [`Sending`].

use corro_collectives::Engine;
use corro_collectives::engine::handle::EngineError;
use corro_collectives::optimizer::shm_optimizer::{FusedStep, ShmOptimizer};
use corro_collectives::optimizer::{Config, DistributedOptimizer, OptimizerError, ShardedStep};

use crate::compute::Compute;
use crate::network::{Gradients, PARAMETERS, Weights};
use crate::rmsprop::{self, RmsProp};

pub enum Wrapped<'e, O = RmsProp> {
    Here(ShmOptimizer<'e, O>),
    Between(DistributedOptimizer<'e, O>),
}

impl<'e, O: ShardedStep + FusedStep> Wrapped<'e, O> {
    /// Collective over all ranks.
    pub fn new(engine: &'e Engine, optimizer: O) -> Result<Self, OptimizerError> {
        let names = PARAMETERS.each_ref().map(|parameter| parameter.name());
        let parameters: Vec<(&str, usize)> =
            names.iter().zip(&PARAMETERS).map(|(name, parameter)| (name.as_str(), parameter.size())).collect();
        Ok(match ShmOptimizer::new(engine, optimizer, &parameters, rmsprop::SHARED_FROM) {
            Ok(together) => Wrapped::Here(together),
            Err(optimizer) => {
                let between = DistributedOptimizer::new(engine, optimizer, &parameters, Config::PLAIN)?;
                Wrapped::Between(between.with_sharded_steps(rmsprop::SHARED_FROM))
            }
        })
    }

    /// All ranks have these weights, and step with them from now on. Collective over all ranks.
    pub fn take(&mut self, weights: &mut Weights) -> Result<(), OptimizerError> {
        match self {
            Wrapped::Here(together) => together.share_parameters(&mut weights.0),
            Wrapped::Between(_) => Ok(()),
        }
    }

    /// Ranks of one host help each other with their passes from now on. Collective over all ranks.
    pub fn share(&self, compute: &mut Compute) {
        if let Wrapped::Here(together) = self
            && let Some(yard) = together.open_task_pool(compute.common_bytes())
        {
            compute.share(yard);
        }
    }

    /// Where a backward pass leaves its gradients.
    pub fn sending(&mut self) -> Sending<'_, 'e, O> {
        Sending { optimizer: self, failed: None, nowhere: None }
    }

    /// After a pass of `compute`, which helps others as long as they have not passed. Collective over all ranks.
    pub fn step(&mut self, weights: &mut Weights, compute: &mut Compute) -> Result<(), OptimizerError> {
        match self {
            Wrapped::Here(together) => together.step_with_stealing(&mut weights.0, || compute.help()),
            Wrapped::Between(between) => between.step(&mut weights.parts_mut()),
        }
    }

    /// Every rank's optimizer remembers what all do; `memory` says where. Collective over all ranks.
    pub fn gather(&mut self, memory: impl Fn(&mut O) -> &mut Weights) -> Result<(), EngineError> {
        (0..PARAMETERS.len()).try_for_each(|index| match self {
            Wrapped::Here(together) => together.gather_state(index, |optimizer| &mut memory(optimizer).0[index]),
            Wrapped::Between(between) => between.gather_state(index, |optimizer| &mut memory(optimizer).0[index]),
        })
    }

    pub fn inner(&mut self) -> &mut O {
        match self {
            Wrapped::Here(together) => together.optimizer_mut(),
            Wrapped::Between(between) => between.optimizer_mut(),
        }
    }
}

/// Between the backward pass and the other ranks: a gradient that is whole goes on its way at once, while the pass goes on with the layers
/// before it. The pass cannot fail, so the first error is kept until it has ended.
pub struct Sending<'s, 'e, O> {
    optimizer: &'s mut Wrapped<'e, O>,
    failed: Option<OptimizerError>,
    /// Where gradients go that nobody will use.
    nowhere: Option<Weights>,
}

impl<O> Sending<'_, '_, O> {
    /// The pass has ended; its gradients are under way.
    pub fn end(self) -> Result<(), OptimizerError> {
        self.failed.map_or(Ok(()), Err)
    }
}

impl<O: ShardedStep + FusedStep> Gradients for Sending<'_, '_, O> {
    fn room(&mut self, parameter: usize) -> &mut [f32] {
        let room = match self.optimizer {
            Wrapped::Here(together) => return together.gradient_buffer(parameter),
            Wrapped::Between(between) => between.gradient_buffer(parameter),
        };
        match room {
            Ok(room) => room,
            Err(error) => {
                self.failed.get_or_insert(error);
                &mut self.nowhere.get_or_insert_with(Weights::zeros).0[parameter]
            }
        }
    }

    fn ready(&mut self, parameter: usize) {
        let ready = match self.optimizer {
            Wrapped::Here(together) => return together.ready(parameter),
            Wrapped::Between(between) => between.ready(parameter),
        };
        if let Err(error) = ready {
            self.failed.get_or_insert(error);
        }
    }

    fn between(&mut self) {
        if let Wrapped::Here(together) = self.optimizer {
            // SAFETY: what a pass promises by this call, and whoever has the weights has lent them to the pass.
            unsafe { together.try_overlapped_step() }
        }
    }
}
