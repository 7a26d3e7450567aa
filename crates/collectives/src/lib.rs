//! Collective operations between the processes of a job: the engine under Corro's Horovod, and a Rust library of its own.
//! Owns its threads, needs no server and no async runtime.
//!
//! A job is `size` processes, called ranks and numbered from 0. Each finds its place and the others from the variables of its launcher
//! (`corro run`, Horovod's, `torchrun`, `mpirun`, `srun`); without any it is alone, as in the examples here. Ranks of one machine
//! share memory, others talk over TCP. When a rank dies, what the others do and try next fails with its name and host.
//!
//! # The direct door
//!
//! All ranks call the same operations in the same order, and the calling thread does the work: the fastest way, for programs that know
//! their order.
//!
//! ```
//! use corro_collectives::{Launch, Options, ReduceOp, World};
//!
//! let world = World::connect(&Launch::from_environment()?, &Options::PLAIN)?;
//! let mut all = world.communicator()?;
//! let mut mean = [1.0f32, 2.0, 3.0];
//! all.allreduce(&mut mean, ReduceOp::Average)?;
//! let everybody = all.allgather(&[world.rank() as i64])?;
//! assert_eq!(everybody.len(), world.size());
//! # assert_eq!(mean, [1.0, 2.0, 3.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The negotiated door
//!
//! Operations have names, and each rank calls them in its own order, from any thread; what all ranks have asked for is done. Horovod's
//! semantics, for gradients that become ready as they like.
//!
//! ```
//! use corro_collectives::{Engine, Reduce, SetId};
//!
//! let engine = Engine::start()?;
//! // Handed over, and under way while this rank goes on.
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
//! [`DistributedOptimizer`] lets any optimizer step with the gradients of all ranks. `examples/five_steps.rs` is a whole training.
//!
//! ```
//! use corro_collectives::optimizer::{Config, DistributedOptimizer, broadcast_parameters, scale_learning_rate};
//! use corro_collectives::{Engine, ReduceOp, cores};
//!
//! let engine = Engine::start()?;                                           // 1. init
//! cores::pin(engine.rank_info())?;                                             // 2. pin
//! let rate = scale_learning_rate(&engine, 0.1, ReduceOp::Average);         // 3. scale
//! let descend = |_: usize, parameter: &mut [f32], gradient: &[f32]| {
//!     parameter.iter_mut().zip(gradient).for_each(|(value, slope)| *value -= rate * slope);
//! };
//! let parameters = [("weight", 2), ("bias", 1)];
//! let mut optimizer = DistributedOptimizer::new(&engine, descend, &parameters, Config::PLAIN)?; // 4. wrap
//! let (mut weight, mut bias) = ([0.0f32; 2], [0.0f32]);
//! broadcast_parameters(&engine, &mut [&mut weight, &mut bias], 0)?;        // 5. broadcast
//!
//! // The backward pass: each gradient travels as soon as it is there.
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
//! [`dtype`] and [`op`] say what is reduced and how, [`reduce`] does it to the bytes of buffers, [`compression`]
//! makes them shorter for the way. [`bootstrap`] finds the other ranks,
//! [`trust`] lets them prove that they belong to the job, [`cores`] counts the processors they have. [`world`] connects them as [`options`] say;
//! [`communicator`] is the direct door, which picks an [`algorithm`] over what [`transport`] offers; [`error`] is what can go wrong
//! there, `fork` keeps their sockets out of forked children. [`coordinator`] is Horovod's agreement on what is performed when, [`engine`] the negotiated door built on both,
//! [`optimizer`] stands before it. [`settings`] has every variable that turns the engine's behaviour, [`observe`] shows what it does.

pub mod algorithm;
pub mod bootstrap;
pub mod communicator;
pub mod compression;
pub mod coordinator;
pub mod cores;
pub mod dtype;
pub mod engine;
pub mod error;
mod fork;
pub mod observe;
pub mod op;
pub mod optimizer;
pub mod options;
pub mod reduce;
pub mod settings;
pub mod transport;
pub mod trust;
pub mod world;

pub use bootstrap::place::{Launch, Place};
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
pub use transport::connect::ConnectError;
pub use world::World;
