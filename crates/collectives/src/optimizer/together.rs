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
use super::commons::{Commons, Sum, Values};
use super::yard::Yard;
use crate::dtype::Dtype;
use crate::engine::Engine;
use crate::engine::handle::EngineError;
use crate::error::Error;
use crate::observe::shared_steps::Phase;
use crate::transport::shm::step_sync::StepSync;

/// An optimizer that can change a part of a parameter by itself, and makes the average gradient as it goes.
pub trait StepsSums {
    /// Changes the values from `first` on of the parameter of that index. Large parameters may come before smaller ones.
    fn step_sum(&mut self, index: usize, first: usize, values: &mut [f32], sum: &Sum<'_>);
}

/// Wraps the optimizer `O`.
pub struct Together<'e, O> {
    engine: &'e Engine,
    optimizer: O,
    commons: Commons,
    sync: StepSync,
    /// By parameter.
    names: Vec<String>,
    ready: Vec<bool>,
    stage: Stage,
    spans: Spans<'e>,
}

/// Of the common parameters, in this step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Passing,
    /// The step by which it is published.
    Offered(u32),
    Stepped,
}

impl<O> Drop for Together<'_, O> {
    fn drop(&mut self) {
        self.engine.shared_steps.close();
    }
}

impl<'e, O: StepsSums> Together<'e, O> {
    /// `parameters`: names and numbers of elements, the same on every rank; from `from` elements on they are shared out. Collective. Gives the
    /// optimizer back where the ranks do not all share memory, and where a timeline is recorded: it would not show anything.
    pub fn new(engine: &'e Engine, optimizer: O, parameters: &[(&str, usize)], from: usize) -> Result<Self, O> {
        let sizes: Vec<usize> = parameters.iter().map(|(_, size)| *size).collect();
        let Some((commons, sync)) = Commons::open(engine, &sizes, from) else { return Err(optimizer) };
        let names: Vec<String> = parameters.iter().map(|(name, _)| (*name).to_owned()).collect();
        let ready = vec![false; names.len()];
        engine.shared_steps.open(sizes.len(), commons.gradient_bytes(), sync.area().clone(), commons.n_ranks);
        let spans = Spans { engine };
        Ok(Self { engine, optimizer, commons, sync, names, ready, stage: Stage::Passing, spans })
    }

    /// Brings the values of large parameters to where all ranks see them: those of rank 0 count. Collective; before the first step.
    pub fn take(&mut self, values: &mut [Values]) -> Result<(), OptimizerError> {
        for (index, values) in values.iter_mut().enumerate() {
            let Some(mut common) = self.commons.values(index).map(Values::Common) else { continue };
            if self.commons.rank == 0 {
                common.copy_from_slice(values);
            }
            *values = common;
        }
        self.meet()
    }

    /// Whether every rank steps with its share of this parameter only.
    pub fn is_shared(&self, index: usize) -> bool {
        self.commons.is_common(index)
    }

    /// Room for the gradient of a parameter: as it was left, to be overwritten. Then [`Together::ready`].
    pub fn room(&mut self, index: usize) -> &mut [f32] {
        self.commons.gradient(index)
    }

    /// This gradient is whole.
    pub fn ready(&mut self, index: usize) {
        if !std::mem::replace(&mut self.ready[index], true) {
            self.spans.offered(&self.names[index]);
        }
    }

    /// A moment in a backward pass. When all ranks have come as far, their large parameters are stepped with; nobody is waited for.
    ///
    /// # Safety
    /// Nobody on this rank holds a slice of the values of parameters whose gradients are ready, or will make one before [`Together::step`]
    /// has returned.
    pub unsafe fn between(&mut self) {
        let is_whole = |index: usize| self.ready[index] || !self.is_shared(index);
        if self.stage == Stage::Passing && (0..self.ready.len()).all(is_whole) {
            self.offer();
        }
        let Self { spans, optimizer, commons, sync, stage, names, .. } = self;
        step_when_offered(stage, sync, || {
            step_shares(spans, names, optimizer, commons);
            spans.engine.shared_steps.enter(Phase::Computing);
        });
    }

    fn offer(&mut self) {
        self.sync.advance();
        self.stage = Stage::Offered(self.sync.step());
    }

    /// Memory in which ranks lay out tasks for each other, so much for each. Collective. Nothing where one of them wants something else.
    pub fn yard(&self, n_bytes: usize) -> Option<Yard> {
        Yard::open(self.engine, n_bytes)
    }

    /// Waits for the gradients of all ranks, and lets the optimizer change every parameter. One whose gradient is not ready has zeros. Collective.
    ///
    /// # Errors
    /// When a rank is gone. Large parameters may have changed in part.
    pub fn step(&mut self, values: &mut [Values]) -> Result<(), OptimizerError> {
        self.step_helping(values, || false)
    }

    /// The same. Who has to wait for others calls `help` again and again, for what may be done for them before they have passed; it tells
    /// whether there was anything to do.
    ///
    /// # Errors
    /// As [`Together::step`].
    pub fn step_helping(
        &mut self,
        values: &mut [Values],
        mut help: impl FnMut() -> bool,
    ) -> Result<(), OptimizerError> {
        self.check(values)?;
        for index in 0..self.ready.len() {
            if !self.ready[index] {
                self.commons.gradient(index).fill(0.0);
                self.ready(index);
            }
        }
        self.ready.fill(false);
        if self.stage == Stage::Passing {
            self.offer();
        }
        self.sync.advance();
        let Self { spans, optimizer, commons, sync, stage, names, .. } = self;
        let shared_steps = &spans.engine.shared_steps;
        shared_steps.enter(Phase::Waiting);
        let meanwhile = || {
            step_when_offered(stage, sync, || {
                step_shares(spans, names, optimizer, commons);
                shared_steps.enter(Phase::Waiting);
            });
            spans.help(&mut help);
        };
        sync.wait_all_doing(sync.step(), meanwhile).map_err(failed)?;
        if *stage != Stage::Stepped {
            step_shares(spans, names, optimizer, commons);
        }
        shared_steps.enter(Phase::Reducing);
        for (index, values) in values.iter_mut().enumerate().filter(|(index, _)| !commons.is_common(*index)) {
            let sum = commons.sum(index, 0..values.len());
            spans.reduce(&names[index], sum.len(), || optimizer.step_sum(index, 0, values, &sum));
        }
        *stage = Stage::Passing;
        self.engine.shared_steps.enter(Phase::Waiting);
        self.meet()?;
        self.engine.shared_steps.end_step();
        Ok(())
    }

    /// As [`super::DistributedOptimizer::gather`].
    pub fn gather(&mut self, index: usize, memory: impl FnOnce(&mut O) -> &mut [f32]) -> Result<(), EngineError> {
        if !self.is_shared(index) {
            return Ok(());
        }
        self.engine.allgather_shares(&format!("memory.{}", self.names[index]), memory(&mut self.optimizer))
    }

    /// The wrapped optimizer, for its learning rate and the like.
    pub fn inner(&mut self) -> &mut O {
        &mut self.optimizer
    }

    /// These are the parameters, and the common ones where all see them.
    fn check(&self, values: &[Values]) -> Result<(), OptimizerError> {
        if values.len() != self.names.len() {
            return Err(OptimizerError::Number { given: values.len(), n_parameters: self.names.len() });
        }
        for (index, (name, values)) in self.names.iter().zip(values).enumerate() {
            let size = self.commons.size(index);
            if values.len() != size {
                return Err(OptimizerError::Length { name: name.clone(), given: values.len(), size });
            }
            let is_here = matches!(values, Values::Common(common) if common.is_of(&self.commons));
            if self.is_shared(index) && !is_here {
                return Err(OptimizerError::NotCommon { name: name.clone() });
            }
        }
        Ok(())
    }

    fn meet(&mut self) -> Result<(), OptimizerError> {
        self.sync.advance();
        self.sync.wait_all(self.sync.step()).map_err(failed)
    }
}

/// Once all have offered their gradients.
fn step_when_offered(stage: &mut Stage, sync: &StepSync, step: impl FnOnce()) {
    if let Stage::Offered(offered) = *stage
        && sync.all_reached(offered)
    {
        step();
        *stage = Stage::Stepped;
    }
}

/// This rank's shares of the common parameters.
fn step_shares<O: StepsSums>(spans: &Spans<'_>, names: &[String], optimizer: &mut O, commons: &Commons) {
    spans.engine.shared_steps.enter(Phase::Reducing);
    for (index, name) in names.iter().enumerate() {
        let Some(mut values) = commons.values(index).map(Values::Common) else { continue };
        let own = spans.engine.share(values.len());
        let sum = commons.sum(index, own.clone());
        spans.reduce(name, sum.len(), || optimizer.step_sum(index, own.start, &mut values[own], &sum));
    }
}

/// What a recording shows of the steps: how long each gradient waits for the other ranks, is added up and stepped with, and how long this
/// rank helps others.
struct Spans<'e> {
    engine: &'e Engine,
}

impl Spans<'_> {
    fn offered(&self, name: &str) {
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
    fn help(&self, help: &mut impl FnMut() -> bool) {
        let Engine { recorded, shared_steps, .. } = self.engine;
        let began = std::time::Instant::now();
        if help() {
            shared_steps.helped_since(began);
            recorded.span(HELPING, "HELP", began);
        }
    }
}

const ALLREDUCE: &str = "ALLREDUCE";
/// The row of a recording in which this rank works for others.
const HELPING: &str = "help for other ranks";

fn failed(error: Error) -> OptimizerError {
    OptimizerError::Meeting { cause: EngineError::Failed(error.to_string().into()) }
}
