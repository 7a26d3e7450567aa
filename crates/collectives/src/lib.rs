//! Collective operations between the processes of a job: the engine of Corro's Horovod, also usable as a Rust library.
//! Owns its threads; needs no server and no async runtime.
//!
//! A job is `size` processes, called ranks and numbered from 0. Each reads its rank and the rendezvous from the variables of its launcher
//! (`corro run`, Horovod's, `torchrun`, `mpirun`, `srun`); without any, the job has one rank, as in the examples here. Ranks of one machine
//! communicate through shared memory, others over TCP. When a rank dies, all operations of the other ranks fail with its rank and host.
//!
//! # The ordered API: `Communicator`
//!
//! All ranks call the same operations in the same order, and the calling thread does the work, as in MPI. This is the fastest API.
//!
//! ```
//! use corro_collectives::{Launch, Options, ReduceOp, World};
//!
//! let world = World::connect(&Launch::from_environment()?, &Options::DEFAULT)?;
//! let mut all = world.communicator()?;
//! let mut mean = [1.0f32, 2.0, 3.0];
//! all.allreduce(&mut mean, ReduceOp::Average)?;
//! let ranks = all.allgather(&[world.rank() as i64])?;
//! assert_eq!(ranks.len(), world.size());
//! # assert_eq!(mean, [1.0, 2.0, 3.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The named API: `Engine`
//!
//! Operations have names. Each rank submits them in any order, from any thread, and an operation runs once all ranks have submitted it.
//! These are Horovod's semantics, for gradients that become ready in a different order on each rank.
//!
//! ```
//! use corro_collectives::{Engine, Reduce, SetId};
//!
//! let engine = Engine::start()?;
//! // Returns at once; the operation runs in the background.
//! let sum = engine.allreduce_async("sum", vec![1i32, 2], Reduce::SUM);
//! let mut weights = [0.5f32; 4];
//! engine.broadcast("weights", &mut weights, 0, SetId::GLOBAL)?;
//! let sum = engine.finish(sum)?;
//! # assert_eq!((sum, weights), (vec![1, 2], [0.5; 4]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Training
//!
//! [`DistributedOptimizer`] steps any optimizer with the averaged gradients of all ranks. `examples/five_steps.rs` is a complete training.
//!
//! ```
//! use corro_collectives::optimizer::{Config, DistributedOptimizer, broadcast_parameters, scale_learning_rate};
//! use corro_collectives::{Engine, ReduceOp, affinity};
//!
//! let engine = Engine::start()?;                                           // 1. init
//! affinity::pin(engine.rank_info())?;                                         // 2. pin
//! let rate = scale_learning_rate(&engine, 0.1, ReduceOp::Average);         // 3. scale
//! let descend = |_: usize, parameter: &mut [f32], gradient: &[f32]| {
//!     parameter.iter_mut().zip(gradient).for_each(|(value, slope)| *value -= rate * slope);
//! };
//! let parameters = [("weight", 2), ("bias", 1)];
//! let mut optimizer = DistributedOptimizer::new(&engine, descend, &parameters, Config::DEFAULT)?; // 4. wrap
//! let (mut weight, mut bias) = ([0.0f32; 2], [0.0f32]);
//! broadcast_parameters(&engine, &mut [&mut weight, &mut bias], 0)?;        // 5. broadcast
//!
//! // The backward pass: each gradient is submitted as soon as it is computed.
//! optimizer.submit(1, &[1.0])?;
//! optimizer.submit(0, &[2.0, 3.0])?;
//! optimizer.step(&mut [&mut weight, &mut bias])?;
//! # let size = engine.rank_info().size as f32;
//! # assert_eq!((weight, bias), ([-0.1 * size * 2.0, -0.1 * size * 3.0], [-0.1 * size]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Reading order
//!
//! [`dtype`] and [`op`] define elements and reductions, [`reduce`] computes them on buffers, [`compression`] converts to half precision for
//! transfer. [`bootstrap`] reads the launcher's variables and finds the other ranks, [`auth`] authenticates them, [`affinity`] counts and
//! assigns cores. [`world`] connects the ranks as [`options`] say and keeps the connections in `world_state`. [`communicator`] is the
//! ordered API: it selects an [`algorithm`] over [`transport`]; [`error`] has its errors, `close_on_fork` keeps its sockets out of forked
//! children. [`device`] executes operations on the memory of GPUs, as [`device_transport`] names them. [`coordinator`] is Horovod's negotiation, [`engine`] the named API on top of both, [`optimizer`] the training interface. [`elastic`] starts
//! engines in a job whose ranks change.
//! [`settings`] lists the environment variables, [`observe`] has timeline, status and autotuning.

// Unit tests share the ranks of `tests/ranks`, which name the crate.
#[cfg(test)]
extern crate self as corro_collectives;

pub mod affinity;
pub mod algorithm;
pub mod algorithm_override;
pub mod auth;
pub mod bootstrap;
mod close_on_fork;
pub mod communicator;
pub mod compression;
pub mod coordinator;
pub mod device;
pub mod device_transport;
pub mod dtype;
pub mod elastic;
pub mod engine;
pub mod error;
pub mod observe;
pub mod op;
pub mod optimizer;
pub mod options;
mod peer_process;
pub mod reduce;
pub mod settings;
pub mod transport;
pub mod world;
mod world_state;

pub use bootstrap::launch_env::Launch;
pub use bootstrap::rank_info::RankInfo;
pub use communicator::Communicator;
pub use communicator::typed::Scale;
pub use compression::Compression;
pub use coordinator::SetId;
pub use dtype::{Dtype, Element};
pub use engine::handle::EngineError;
pub use engine::ops::Reduce;
pub use engine::ops::asynchronous::PendingResult;
pub use engine::{Engine, StartError};
pub use error::Error;
pub use op::{Combine, ReduceOp};
pub use optimizer::DistributedOptimizer;
pub use options::{DirectRead, Options, Transport};
pub use settings::Settings;
pub use transport::connect::error::ConnectError;
pub use world::World;
