//! Distributed optimizer for ranks of one host, in shared memory: gradients and the values of large parameters are mapped by all ranks, so no
//! data is transferred and no engine is woken during the backward pass. Faster version of [`DistributedOptimizer`] for parameters stored as
//! [`ParamStorage`].
//!
//! Backward passes write gradients to shared memory. For a large parameter each rank averages and steps its [`Engine::shard`] of the elements;
//! the values are shared, so no allgather is needed. Small parameters are private, and each rank steps all of their elements. Each step has
//! three synchronization points, counted with [`StepSync`]:
//!
//! 1. *published*: this rank's gradients of all large parameters are complete, and its pass no longer reads their values. Once all ranks have
//!    published, large parameters can be stepped while the pass continues ([`ShmOptimizer::try_overlapped_step`]).
//! 2. *passed*: all gradients are complete. Once all ranks have passed, all parameters can be stepped.
//! 3. *stepped*: once all ranks have stepped, the values are new and gradients may be overwritten.
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

/// Optimizer that fuses averaging and stepping: it updates a part of a parameter and computes the averaged gradient piece by piece.
pub trait FusedStep {
    /// Updates the values from index `first` on of a parameter. Large parameters may be stepped before smaller ones.
    fn step_averaged(&mut self, index: usize, first: usize, values: &mut [f32], average: &AveragedGradient<'_>);
}

/// Distributed version of the optimizer `O` in shared memory.
pub struct ShmOptimizer<'e, O> {
    engine: &'e Engine,
    optimizer: O,
    shared_params: SharedParams,
    sync: StepSync,
    /// Parameter names.
    names: Vec<String>,
    /// By parameter: the gradient of this step is complete.
    ready: Vec<bool>,
    stage: Stage,
    trace: StepTrace<'e>,
}

/// Stage of the shared parameters in this step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Computing,
    /// Published with this count of [`StepSync`].
    Published(u32),
    Stepped,
}

impl<O> Drop for ShmOptimizer<'_, O> {
    fn drop(&mut self) {
        self.engine.shm_steps.stop_steps();
    }
}

impl<'e, O: FusedStep> ShmOptimizer<'e, O> {
    /// `parameters` are names and numbers of elements, the same on every rank; those of at least `min_elements` elements are sharded.
    /// Collective. Returns the optimizer as `Err` if not all ranks share memory, and if a timeline is recorded, because it would not show these
    /// steps.
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

    /// Moves the values of large parameters to shared memory, with the values of rank 0. Collective; call it before the first step.
    pub fn share_parameters(&mut self, values: &mut [ParamStorage]) -> Result<(), OptimizerError> {
        for (index, values) in values.iter_mut().enumerate() {
            let Some(mut shared) = self.shared_params.values(index).map(ParamStorage::Shared) else { continue };
            if self.shared_params.rank == 0 {
                shared.copy_from_slice(values);
            }
            *values = shared;
        }
        self.barrier()
    }

    /// True if each rank updates only its shard of this parameter.
    pub fn is_sharded(&self, index: usize) -> bool {
        self.shared_params.is_shared(index)
    }

    /// Gradient buffer of a parameter with undefined content, to be overwritten. Call [`ShmOptimizer::ready`] afterwards.
    pub fn gradient_buffer(&mut self, index: usize) -> &mut [f32] {
        self.shared_params.gradient(index)
    }

    /// Declares a gradient complete.
    pub fn ready(&mut self, index: usize) {
        if !std::mem::replace(&mut self.ready[index], true) {
            self.trace.on_ready(&self.names[index]);
        }
    }

    /// Steps the large parameters during the backward pass if all ranks have published their gradients. Never waits.
    ///
    /// # Safety
    /// No thread of this rank holds a slice of the values of a parameter whose gradient is ready, or creates one before
    /// [`ShmOptimizer::step`] has returned: this and other ranks write to these values.
    pub unsafe fn try_overlapped_step(&mut self) {
        let is_complete = |index: usize| self.ready[index] || !self.is_sharded(index);
        if self.stage == Stage::Computing && (0..self.ready.len()).all(is_complete) {
            self.publish_gradients();
        }
        let Self { trace, optimizer, shared_params, sync, stage, names, .. } = self;
        step_if_all_published(stage, sync, || {
            step_own_shards(trace, names, optimizer, shared_params);
            trace.engine.shm_steps.enter_phase(Phase::Computing);
        });
    }

    /// Tells the other ranks that the gradients of all large parameters are complete.
    fn publish_gradients(&mut self) {
        self.sync.advance();
        self.stage = Stage::Published(self.sync.step());
    }

    /// Creates a task pool for work stealing with `n_bytes` of data per rank. Collective. `None` if the ranks ask for different sizes.
    pub fn open_task_pool(&self, n_bytes: usize) -> Option<TaskPool> {
        TaskPool::open(self.engine, n_bytes)
    }

    /// Waits for the gradients of all ranks and updates every parameter. A gradient that is not ready counts as zeros. Collective.
    ///
    /// # Errors
    /// If a rank died. Large parameters may be partly updated.
    pub fn step(&mut self, values: &mut [ParamStorage]) -> Result<(), OptimizerError> {
        self.step_with_stealing(values, || false)
    }

    /// [`ShmOptimizer::step`] that calls `steal` repeatedly while it waits for other ranks. `steal` runs tasks of ranks that have not passed and
    /// returns true if there were any.
    ///
    /// # Errors
    /// As [`ShmOptimizer::step`].
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

    /// Allgathers the optimizer state of a sharded parameter, as [`super::DistributedOptimizer::gather_state`].
    pub fn gather_state(&mut self, index: usize, state: impl FnOnce(&mut O) -> &mut [f32]) -> Result<(), EngineError> {
        if !self.is_sharded(index) {
            return Ok(());
        }
        self.engine.allgather_shards(&format!("memory.{}", self.names[index]), state(&mut self.optimizer))
    }

    /// The wrapped optimizer, for example to set its learning rate.
    pub fn optimizer_mut(&mut self) -> &mut O {
        &mut self.optimizer
    }

    /// Checks number, lengths and storage of the parameters.
    fn check(&self, values: &[ParamStorage]) -> Result<(), OptimizerError> {
        if values.len() != self.names.len() {
            return Err(OptimizerError::ParameterCount { given: values.len(), n_parameters: self.names.len() });
        }
        for (index, (name, values)) in self.names.iter().zip(values).enumerate() {
            let size = self.shared_params.size(index);
            if values.len() != size {
                return Err(OptimizerError::LengthMismatch { name: name.clone(), given: values.len(), size });
            }
            let in_region = matches!(values, ParamStorage::Shared(slice) if slice.is_of(&self.shared_params));
            if self.is_sharded(index) && !in_region {
                return Err(OptimizerError::NotShared { name: name.clone() });
            }
        }
        Ok(())
    }

    /// Waits until all ranks have come here.
    fn barrier(&mut self) -> Result<(), OptimizerError> {
        self.sync.advance();
        self.sync.wait_all(self.sync.step()).map_err(sync_error)
    }
}

/// Calls `step` if all ranks have published their gradients and this rank has not stepped.
fn step_if_all_published(stage: &mut Stage, sync: &StepSync, step: impl FnOnce()) {
    if let Stage::Published(published) = *stage
        && sync.all_reached(published)
    {
        step();
        *stage = Stage::Stepped;
    }
}

/// Steps this rank's shards of the shared parameters.
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

/// Spans of a recorded timeline: how long each gradient waits for the other ranks and is averaged and stepped, and how long this rank runs
/// tasks of others.
struct StepTrace<'e> {
    engine: &'e Engine,
}

impl StepTrace<'_> {
    fn on_ready(&self, name: &str) {
        self.engine.recording.negotiate_start(name, ALLREDUCE);
    }

    fn reduce(&self, name: &str, n: usize, step: impl FnOnce()) {
        let recording = &self.engine.recording;
        recording.operation_start(name, ALLREDUCE);
        recording.activity_start(name, "SHARED_MEMORY_STEP");
        step();
        recording.operation_end(name, Dtype::F32, &[n]);
    }

    /// Calls `steal` and records the time if it ran tasks; otherwise the time counts as waiting.
    fn steal(&self, steal: &mut impl FnMut() -> bool) {
        let Engine { recording, shm_steps, .. } = self.engine;
        let began = std::time::Instant::now();
        if steal() {
            shm_steps.exclude_from_waiting(began);
            recording.span(STEALING_TRACK, "HELP", began);
        }
    }
}

const ALLREDUCE: &str = "ALLREDUCE";
/// Track of the timeline that shows work for other ranks.
const STEALING_TRACK: &str = "help for other ranks";

fn sync_error(error: Error) -> OptimizerError {
    OptimizerError::Sync { cause: EngineError::Failed(error.to_string().into()) }
}
