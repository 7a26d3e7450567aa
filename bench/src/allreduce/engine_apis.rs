//! Calls of our rank into the engine: each public API of `corro-collectives` is a [`CollectiveApi`]. Measures nothing.

use anyhow::Result;
use corro_collectives::bootstrap::launch_env::Launch;
use corro_collectives::coordinator::{Kind, Request, SetId};
use corro_collectives::engine::ops::Reduce;
use corro_collectives::engine::submission::{OutputBuffer, TensorBuffers};
use corro_collectives::{Communicator, Dtype, Engine, Options, ReduceOp, World};

use super::table::{NAMED, ORDERED};
use super::worker::CollectiveApi;

/// Connects to the other ranks through one API. The environment gives this rank's position.
pub type Connect = fn() -> Result<Box<dyn CollectiveApi>>;

/// Connected one after the other, so that none slows another down.
pub const APIS: [Connect; 2] = [connect_ordered, connect_named];

fn connect_ordered() -> Result<Box<dyn CollectiveApi>> {
    let world = World::connect(&Launch::from_environment()?, &Options::DEFAULT)?;
    Ok(Box::new(OrderedApi(world.communicator()?)))
}

fn connect_named() -> Result<Box<dyn CollectiveApi>> {
    Ok(Box::new(NamedApi(Engine::start()?)))
}

/// Ordered API: all ranks call in the same order, nothing is negotiated.
struct OrderedApi(Communicator);

impl CollectiveApi for OrderedApi {
    fn name(&self) -> &'static str {
        ORDERED
    }

    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn call(&mut self, tensors: &mut [&mut [f32]]) -> Result<()> {
        match tensors {
            [tensor] => self.0.allreduce(tensor, ReduceOp::Sum)?,
            tensors => self.0.grouped_allreduce(tensors, ReduceOp::Sum)?,
        }
        Ok(())
    }
}

/// Named API: every tensor has a name; a step submits all of them and then waits for all of them.
struct NamedApi(Engine);

impl CollectiveApi for NamedApi {
    fn name(&self) -> &'static str {
        NAMED
    }

    fn rank(&self) -> usize {
        self.0.rank_info().rank
    }

    fn size(&self) -> usize {
        self.0.rank_info().size
    }

    fn call(&mut self, tensors: &mut [&mut [f32]]) -> Result<()> {
        if let [tensor] = tensors {
            return Ok(self.0.allreduce("one", tensor, Reduce::SUM)?);
        }
        let submit = |(idx, tensor): (usize, &mut &mut [f32])| {
            let buffers = TensorBuffers {
                input: tensor.as_ptr().cast(),
                n_bytes: 4 * tensor.len(),
                output: OutputBuffer::SameSize(tensor.as_mut_ptr().cast()),
            };
            // SAFETY: no safe call submits a slice without waiting. The slices are borrowed until the end of this function,
            // which waits for every handle.
            unsafe { self.0.submit(vec![sum_request(format!("t{idx}"), tensor.len())], vec![buffers], false, None) }
        };
        let handles: Vec<_> = tensors.iter_mut().enumerate().map(submit).collect();
        let wait = |handle: Result<_, _>| handle.and_then(|handle| self.0.synchronize(&handle));
        // Waits for all of them, also after one that failed.
        let outcomes: Vec<_> = handles.into_iter().map(wait).collect();
        outcomes.into_iter().try_for_each(|outcome| Ok(outcome.map(drop)?))
    }
}

fn sum_request(name: String, length: usize) -> Request {
    Request {
        set: SetId::GLOBAL,
        kind: Kind::Allreduce,
        name: name.as_str().into(),
        dtype: Dtype::F32,
        shape: vec![length as u64],
        root: 0,
        device: -1,
        prescale: 1.0,
        postscale: 1.0,
        op: ReduceOp::Sum,
        splits: Vec::new(),
    }
}
