//! The Python module `horovod._core`: the engine of this process, with tensors given by address, length and dtype.
//! Private to the Python package; `python/horovod/_core.pyi` describes it. Knows no framework.
//!
//! Reading order: `running` has the engine of the process, `engine` its start, shutdown and process sets, `elastic` its generations, `elastic_driver`
//! the decisions of `horovodrun`, `ops` the
//! operations on tensors, `outputs` their results, `devices` the GPUs, `gil` the release of the GIL, `errors` the mapping to Python
//! exceptions. `tensorflow` provides the operations as TensorFlow ops, `xla` to functions that JAX compiles.
//!
//! State shared between threads is in statics behind locks. Locks are taken with the GIL held and never held while it
//! is released. A fork also needs the GIL, so it never finds a lock taken.

mod devices;
mod elastic;
mod elastic_driver;
mod engine;
mod errors;
mod gil;
mod ops;
mod outputs;
mod running;
mod tensorflow;
mod xla;

use pyo3::prelude::*;

#[pymodule(gil_used = true)]
mod _core {
    use corro_collectives::coordinator::Kind;

    #[pymodule_export]
    use super::devices::{context_events_obstacle, open_device};
    #[pymodule_export]
    use super::elastic::{elastic_update, generation, is_elastic};
    #[pymodule_export]
    use super::elastic_driver::ElasticDriver;
    #[pymodule_export]
    use super::engine::{
        add_process_set, after_fork, at_exit, cross_rank, cross_size, init, is_homogeneous, is_initialized, local_rank,
        local_size, process_set_ranks, process_sets, rank, remove_process_set, shutdown, size, start_timeline,
        stop_timeline,
    };
    #[pymodule_export]
    use super::errors::NotPartOfJob;
    #[pymodule_export]
    use super::ops::{barrier, join, poll, submit, synchronize};
    #[pymodule_export]
    use super::outputs::Output;
    #[pymodule_export]
    use super::tensorflow::{register_tensorflow, tensorflow_symbols};
    #[pymodule_export]
    use super::xla::xla_handlers;

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
