//! The tutorial's CIFAR-10 training in Rust: network, optimizer, augmentation and learning rate schedule on
//! `corro-collectives`, so that a first distributed training needs no Python and no download. Knows nothing of the
//! control plane; ranks communicate only through the collectives engine.
//!
//! # Reading order
//!
//! [`network`] defines what is trained: shapes, parameters and the meaning of a step. Its `reference` is the simple
//! implementation that the fast one is tested against. [`compute`] executes steps on the CPUs of one rank, with
//! [`thread_pool`]. [`rmsprop`] updates the weights, [`distributed`] with the gradients of all ranks. [`data`] provides
//! batches, [`random`] all random numbers. [`save`] writes models and checkpoints, [`report`] progress lines and
//! metrics. [`train`] combines them: the five Horovod steps, epochs, validation, the result.

pub mod compute;
pub mod data;
pub mod distributed;
pub mod network;
pub mod random;
pub mod report;
pub mod rmsprop;
pub mod save;
pub mod thread_pool;
pub mod train;
