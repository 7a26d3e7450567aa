//! The Python module `horovod._core`: the engine of this process, by address, length and dtype of tensors. Entered by the Python files of
//! the package only; what it offers is described in `python/horovod/_core.pyi`. Knows no framework.
//!
//! Reading order: `engine` is the one engine of the process and its process sets, `calls` the operations on tensors, `outputs` what they
//! yield, `waiting` the one place where the GIL is released, `errors` the one that knows Python's exceptions.
//! `tensorflow` offers the operations to TensorFlow's graphs.
//!
//! What is shared between threads lies in statics behind locks that are taken with the GIL and never held while it is released. So a
//! fork, which needs the GIL too, never finds one of them taken.

mod engine;
mod errors;
mod gil;
mod ops;
mod outputs;
mod tensorflow;

use pyo3::prelude::*;

#[pymodule(gil_used = true)]
mod _core {
    use corro_collectives::coordinator::Kind;

    #[pymodule_export]
    use super::engine::{
        add_process_set, after_fork, at_exit, cross_rank, cross_size, init, is_homogeneous, is_initialized, local_rank,
        local_size, process_set_ranks, process_sets, rank, remove_process_set, shutdown, size, start_timeline,
        stop_timeline,
    };
    #[pymodule_export]
    use super::ops::{barrier, join, poll, submit, synchronize};
    #[pymodule_export]
    use super::outputs::Output;
    #[pymodule_export]
    use super::tensorflow::{register_tensorflow, tensorflow_symbols};

    #[pymodule_export]
    const ALLREDUCE: u8 = Kind::Allreduce as u8;
    #[pymodule_export]
    const ALLGATHER: u8 = Kind::Allgather as u8;
    #[pymodule_export]
    const BROADCAST: u8 = Kind::Broadcast as u8;
    #[pymodule_export]
    const ALLTOALL: u8 = Kind::Alltoall as u8;
    #[pymodule_export]
    const REDUCESCATTER: u8 = Kind::Reducescatter as u8;
}
