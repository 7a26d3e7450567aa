//! Data-parallel training of ranks on one host, in memory that all of them see: nothing travels, nobody's engine is woken while its rank
//! computes, and what large parameters are stepped with is added up by who steps. The short way of [`DistributedOptimizer`], for whoever
//! keeps parameters as [`Values`].
//!
//! Backward passes write gradients where all ranks read them. Of a large parameter every rank reduces, and steps with, its
//! [`Engine::share`] of the elements; the values are common, so nobody has to be told. Small ones everybody steps with by itself. In each step
//! the ranks say three things to each other:
//!
//! 1. *offered*: the gradients of all large parameters are whole, and this pass does not read their values any more. Once all have said so, large
//!    parameters can be stepped with, while the pass goes on ([`Together::between`]);
//! 2. *passed*: all gradients are whole. Once all have said so, everything can be stepped with;
//! 3. *stepped*: once all have said so, values are new, and gradients may be overwritten.
//!
//! [`DistributedOptimizer`]: super::DistributedOptimizer

use super::OptimizerError;
use super::shared_params::{AveragedGradient, ParamStorage, SharedParams};
use super::work_stealing::TaskPool;
use crate::dtype::Dtype;
use crate::engine::Engine;
use crate::engine::handle::EngineError;
use crate::error::Error;
use crate::observe::shm_step_stats::Phase;
use crate::transport::shm::step_sync::StepSync;

/// An optimizer that can change a part of a parameter by itself, and makes the average gradient as it goes.
pub trait FusedStep {
    /// Changes the values from `first` on of the parameter of that index. Large parameters may come before smaller ones.
    fn step_averaged(&mut self, index: usize, first: usize, values: &mut [f32], average: &AveragedGradient<'_>);
}

/// Wraps the optimizer `O`.
pub struct ShmOptimizer<'e, O> {
    engine: &'e Engine,
    optimizer: O,
    shared_params: SharedParams,
    sync: StepSync,
    /// By parameter.
    names: Vec<String>,
    ready: Vec<bool>,
    stage: Stage,
    trace: StepTrace<'e>,
}

/// Of the common parameters, in this step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Computing,
    /// The step by which it is published.
    Published(u32),
    Stepped,
}

impl<O> Drop for ShmOptimizer<'_, O> {
    fn drop(&mut self) {
        self.engine.shm_steps.stop_steps();
    }
}

impl<'e, O: FusedStep> ShmOptimizer<'e, O> {
    /// `parameters`: names and numbers of elements, the same on every rank; from `from` elements on they are shared out. Collective. Gives the
    /// optimizer back where the ranks do not all share memory, and where a timeline is recorded: it would not show anything.
    pub fn new(engine: &'e Engine, optimizer: O, parameters: &[(&str, usize)], min_elements: usize) -> Result<Self, O> {
        let sizes: Vec<usize> = parameters.iter().map(|(_, size)| *size).collect();
        let Some((shared_params, sync)) = SharedParams::open(engine, &sizes, min_elements) else {
            return Err(optimizer);
        };
        let names: Vec<String> = parameters.iter().map(|(name, _)| (*name).to_owned()).collect();
        let ready = vec![false; names.len()];
        engine.shm_steps.start_steps(
            sizes.len(),
            shared_params.gradient_bytes(),
            sync.region().clone(),
            shared_params.n_ranks,
        );
        let trace = StepTrace { engine };
        Ok(Self { engine, optimizer, shared_params, sync, names, ready, stage: Stage::Computing, trace })
    }

    /// Brings the values of large parameters to where all ranks see them: those of rank 0 count. Collective; before the first step.
    pub fn share_parameters(&mut self, values: &mut [ParamStorage]) -> Result<(), OptimizerError> {
        for (index, values) in values.iter_mut().enumerate() {
            let Some(mut common) = self.shared_params.values(index).map(ParamStorage::Shared) else { continue };
            if self.shared_params.rank == 0 {
                common.copy_from_slice(values);
            }
            *values = common;
        }
        self.barrier()
    }

    /// Whether every rank steps with its share of this parameter only.
    pub fn is_sharded(&self, index: usize) -> bool {
        self.shared_params.is_shared(index)
    }

    /// Room for the gradient of a parameter: as it was left, to be overwritten. Then [`Together::ready`].
    pub fn gradient_buffer(&mut self, index: usize) -> &mut [f32] {
        self.shared_params.gradient(index)
    }

    /// This gradient is whole.
    pub fn ready(&mut self, index: usize) {
        if !std::mem::replace(&mut self.ready[index], true) {
            self.trace.on_ready(&self.names[index]);
        }
    }

    /// A moment in a backward pass. When all ranks have come as far, their large parameters are stepped with; nobody is waited for.
    ///
    /// # Safety
    /// Nobody on this rank holds a slice of the values of parameters whose gradients are ready, or will make one before [`Together::step`]
    /// has returned.
    pub unsafe fn try_overlapped_step(&mut self) {
        let is_whole = |index: usize| self.ready[index] || !self.is_sharded(index);
        if self.stage == Stage::Computing && (0..self.ready.len()).all(is_whole) {
            self.publish_gradients();
        }
        let Self { trace, optimizer, shared_params, sync, stage, names, .. } = self;
        step_if_all_published(stage, sync, || {
            step_own_shards(trace, names, optimizer, shared_params);
            trace.engine.shm_steps.enter_phase(Phase::Computing);
        });
    }

    fn publish_gradients(&mut self) {
        self.sync.advance();
        self.stage = Stage::Published(self.sync.step());
    }

    /// Memory in which ranks lay out tasks for each other, so much for each. Collective. Nothing where one of them wants something else.
    pub fn open_task_pool(&self, n_bytes: usize) -> Option<TaskPool> {
        TaskPool::open(self.engine, n_bytes)
    }

    /// Waits for the gradients of all ranks, and lets the optimizer change every parameter. One whose gradient is not ready has zeros. Collective.
    ///
    /// # Errors
    /// When a rank is gone. Large parameters may have changed in part.
    pub fn step(&mut self, values: &mut [ParamStorage]) -> Result<(), OptimizerError> {
        self.step_with_stealing(values, || false)
    }

    /// The same. Who has to wait for others calls `help` again and again, for what may be done for them before they have passed; it tells
    /// whether there was anything to do.
    ///
    /// # Errors
    /// As [`Together::step`].
    pub fn step_with_stealing(
        &mut self,
        values: &mut [ParamStorage],
        mut steal: impl FnMut() -> bool,
    ) -> Result<(), OptimizerError> {
        self.check(values)?;
        for index in 0..self.ready.len() {
            if !self.ready[index] {
                self.shared_params.gradient(index).fill(0.0);
                self.ready(index);
            }
        }
        self.ready.fill(false);
        if self.stage == Stage::Computing {
            self.publish_gradients();
        }
        self.sync.advance();
        let Self { trace, optimizer, shared_params, sync, stage, names, .. } = self;
        let shm_steps = &trace.engine.shm_steps;
        shm_steps.enter_phase(Phase::Waiting);
        let meanwhile = || {
            step_if_all_published(stage, sync, || {
                step_own_shards(trace, names, optimizer, shared_params);
                shm_steps.enter_phase(Phase::Waiting);
            });
            trace.steal(&mut steal);
        };
        sync.wait_all_doing(sync.step(), meanwhile).map_err(sync_error)?;
        if *stage != Stage::Stepped {
            step_own_shards(trace, names, optimizer, shared_params);
        }
        shm_steps.enter_phase(Phase::Reducing);
        for (index, values) in values.iter_mut().enumerate().filter(|(index, _)| !shared_params.is_shared(*index)) {
            let average = shared_params.average(index, 0..values.len());
            trace.reduce(&names[index], average.len(), || optimizer.step_averaged(index, 0, values, &average));
        }
        *stage = Stage::Computing;
        self.engine.shm_steps.enter_phase(Phase::Waiting);
        self.barrier()?;
        self.engine.shm_steps.end_step();
        Ok(())
    }

    /// As [`super::DistributedOptimizer::gather`].
    pub fn gather_state(&mut self, index: usize, state: impl FnOnce(&mut O) -> &mut [f32]) -> Result<(), EngineError> {
        if !self.is_sharded(index) {
            return Ok(());
        }
        self.engine.allgather_shards(&format!("memory.{}", self.names[index]), state(&mut self.optimizer))
    }

    /// The wrapped optimizer, for its learning rate and the like.
    pub fn optimizer_mut(&mut self) -> &mut O {
        &mut self.optimizer
    }

    /// These are the parameters, and the common ones where all see them.
    fn check(&self, values: &[ParamStorage]) -> Result<(), OptimizerError> {
        if values.len() != self.names.len() {
            return Err(OptimizerError::ParameterCount { given: values.len(), n_parameters: self.names.len() });
        }
        for (index, (name, values)) in self.names.iter().zip(values).enumerate() {
            let size = self.shared_params.size(index);
            if values.len() != size {
                return Err(OptimizerError::LengthMismatch { name: name.clone(), given: values.len(), size });
            }
            let is_here = matches!(values, ParamStorage::Shared(common) if common.is_of(&self.shared_params));
            if self.is_sharded(index) && !is_here {
                return Err(OptimizerError::NotShared { name: name.clone() });
            }
        }
        Ok(())
    }

    fn barrier(&mut self) -> Result<(), OptimizerError> {
        self.sync.advance();
        self.sync.wait_all(self.sync.step()).map_err(sync_error)
    }
}

/// Once all have offered their gradients.
fn step_if_all_published(stage: &mut Stage, sync: &StepSync, step: impl FnOnce()) {
    if let Stage::Published(published) = *stage
        && sync.all_reached(published)
    {
        step();
        *stage = Stage::Stepped;
    }
}

/// This rank's shares of the common parameters.
fn step_own_shards<O: FusedStep>(
    trace: &StepTrace<'_>,
    names: &[String],
    optimizer: &mut O,
    shared_params: &SharedParams,
) {
    trace.engine.shm_steps.enter_phase(Phase::Reducing);
    for (index, name) in names.iter().enumerate() {
        let Some(mut values) = shared_params.values(index).map(ParamStorage::Shared) else { continue };
        let own = trace.engine.shard(values.len());
        let average = shared_params.average(index, own.clone());
        trace.reduce(name, average.len(), || optimizer.step_averaged(index, own.start, &mut values[own], &average));
    }
}

/// What a recording shows of the steps: how long each gradient waits for the other ranks, is added up and stepped with, and how long this
/// rank helps others.
struct StepTrace<'e> {
    engine: &'e Engine,
}

impl StepTrace<'_> {
    fn on_ready(&self, name: &str) {
        self.engine.recorded.negotiate_start(name, ALLREDUCE);
    }

    fn reduce(&self, name: &str, n: usize, step: impl FnOnce()) {
        let recorded = &self.engine.recorded;
        recorded.operation_start(name, ALLREDUCE);
        recorded.activity_start(name, "SHARED_MEMORY_STEP");
        step();
        recorded.operation_end(name, Dtype::F32, &[n]);
    }

    /// Time in which nothing was done for others stays time of waiting.
    fn steal(&self, steal: &mut impl FnMut() -> bool) {
        let Engine { recorded, shm_steps, .. } = self.engine;
        let began = std::time::Instant::now();
        if steal() {
            shm_steps.exclude_from_waiting(began);
            recorded.span(STEALING_TRACK, "HELP", began);
        }
    }
}

const ALLREDUCE: &str = "ALLREDUCE";
/// The row of a recording in which this rank works for others.
const STEALING_TRACK: &str = "help for other ranks";

fn sync_error(error: Error) -> OptimizerError {
    OptimizerError::Sync { cause: EngineError::Failed(error.to_string().into()) }
}
