//! The tutorial's training in Rust: its network, optimizer, augmentation and schedule, on `corro-collectives`, so that a first
//! distributed training needs no Python and no download. Entered by `corro train` and the benchmarks; knows nothing of the
//! control plane, and meets the other ranks only through the engine.
//!
//! # Reading order
//!
//! [`network`] says what is trained: shapes, parameters, what a step means; its `reference` is the plain version that the fast one is
//! held against. [`compute`] does the steps on the processors of one rank, with [`thread_pool`]. [`rmsprop`] moves the weights, [`distributed`] for all
//! ranks. [`data`] brings
//! batches, [`random`] is where all chance comes from. [`save`] writes models and checkpoints, [`report`] tells people and
//! programs how it goes, and [`train`] is the whole: the five steps, epochs, validation, the result.

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
