//! Horovod's operations as TensorFlow ops, registered through TensorFlow's C API at run time: nothing is compiled
//! against TensorFlow. `python/horovod/tensorflow/native.py` resolves the functions in the loaded library and passes
//! their addresses.
//!
//! `api` is the used part of the C API, `kernel` has the asynchronous kernels, `context` one execution of an op,
//! `completion` the thread that waits in place of TensorFlow's threads, `done_callback` the notification of TensorFlow, `gpu` what differs for
//! tensors in the memory of a GPU.
//! One op carries all requests of its kind of one step, so that they are in flight together.
//!
//! No code here takes the GIL. None of it works in a forked child, where TensorFlow does not work either.

mod api;
mod completion;
mod context;
mod done_callback;
mod gpu;
mod kernel;

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use corro_collectives::Engine;
use pyo3::prelude::*;

use crate::errors;
use api::{Api, Status};
use done_callback::LIBSTDCXX_SYMBOL;

/// The TensorFlow of this process. A second one in the same process is not supported.
static API: OnceLock<Api> = OnceLock::new();
/// The engine that `engine` started, behind a lock that is taken without the GIL.
static CURRENT_ENGINE: Mutex<Weak<Engine>> = Mutex::new(Weak::new());

/// One op per Horovod name; the names appear in messages and graphs.
const OP_NAMES: [&CStr; 8] = [
    c"HorovodAllreduce",
    c"HorovodGroupedAllreduce",
    c"HorovodAllgather",
    c"HorovodGroupedAllgather",
    c"HorovodBroadcast",
    c"HorovodAlltoall",
    c"HorovodReducescatter",
    c"HorovodGroupedReducescatter",
];

const ATTRIBUTES: [&CStr; 9] = [
    c"T: list(type) >= 1",
    // One line per request: number of tensors, a blank, the name.
    c"requests: string",
    c"kind: int",
    c"grouped: bool",
    c"reduce_op: int",
    // Factors are doubles, but attributes only have floats: the bits are passed as integers.
    c"prescale_bits: int",
    c"postscale_bits: int",
    c"root_rank: int",
    c"process_set_id: int",
];

/// Registers the ops with the TensorFlow whose functions are at the given addresses. Does nothing the second time.
#[pyfunction]
pub fn register_tensorflow(symbols: HashMap<String, usize>) -> PyResult<()> {
    if API.get().is_some() {
        return Ok(());
    }
    if !symbols.contains_key(LIBSTDCXX_SYMBOL) {
        return Err(errors::value_error("this TensorFlow does not use libstdc++, whose std::function is needed"));
    }
    // SAFETY: native.py passes the addresses of the functions of these names in TensorFlow's library, which is never
    // unloaded.
    let api = unsafe { Api::from_symbols(&symbols) }
        .map_err(|name| errors::value_error(format!("this TensorFlow has no {name}")))?;
    let api = API.get_or_init(|| api);
    for name in OP_NAMES {
        define(api, name)
            .map_err(|text| errors::value_error(format!("{} cannot be registered: {text}", name.to_string_lossy())))?;
    }
    define_join(api).map_err(|text| errors::value_error(format!("HorovodJoin cannot be registered: {text}")))
}

/// Names of the TensorFlow functions that registration needs.
#[pyfunction]
pub fn tensorflow_symbols() -> Vec<&'static str> {
    [api::SYMBOLS, &[LIBSTDCXX_SYMBOL]].concat()
}

/// Ops executed from now on use this engine.
pub fn on_started(engine: &Arc<Engine>) {
    *CURRENT_ENGINE.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(engine);
}

/// The engine, for threads without the GIL.
pub fn current_engine() -> Option<Arc<Engine>> {
    CURRENT_ENGINE.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
}

fn api() -> &'static Api {
    API.get().expect("TensorFlow calls only what was registered")
}

fn define(api: &Api, name: &CStr) -> Result<(), String> {
    let is_alltoall = name == c"HorovodAlltoall";
    let keeps_shapes = name.to_bytes().ends_with(b"llreduce") || name == c"HorovodBroadcast";
    let status = Status::new(api);
    // SAFETY: the registration takes ownership of the builders; TensorFlow copies the strings; the functions have the
    // required types.
    unsafe {
        let definition = (api.new_op_definition)(name.as_ptr());
        for attribute in ATTRIBUTES {
            (api.add_attribute)(definition, attribute.as_ptr());
        }
        (api.add_input)(definition, c"tensors: T".as_ptr());
        (api.add_output)(definition, c"outputs: T".as_ptr());
        if is_alltoall {
            (api.add_input)(definition, c"splits: int32".as_ptr());
            (api.add_output)(definition, c"received_splits: int32".as_ptr());
        }
        // Stateful: neither constant-folded nor pruned from a tf.function.
        (api.set_stateful)(definition, true);
        (api.set_shape_function)(definition, if keeps_shapes { kernel::same_shapes } else { kernel::unknown_shapes });
        (api.register_op)(definition, status.raw());
        status.check()?;
    }
    for (device, create) in [(c"CPU", kernel::create as api::Create), (c"GPU", kernel::create_on_gpu)] {
        let kernel_name = CString::new([name.to_bytes(), device.to_bytes()].concat()).expect("no zero in it");
        // SAFETY: as above.
        unsafe {
            let builder =
                (api.new_kernel)(name.as_ptr(), device.as_ptr(), create, kernel::compute_async, kernel::delete);
            if is_alltoall && device == c"GPU" {
                (api.host_memory)(builder, c"splits".as_ptr());
                (api.host_memory)(builder, c"received_splits".as_ptr());
            }
            (api.register_kernel)(kernel_name.as_ptr(), builder, status.raw());
        }
        status.check()?;
    }
    Ok(())
}

fn define_join(api: &Api) -> Result<(), String> {
    let (name, status) = (c"HorovodJoin".as_ptr(), Status::new(api));
    // SAFETY: as in `define`.
    unsafe {
        let definition = (api.new_op_definition)(name);
        (api.add_output)(definition, c"last_joined_rank: int32".as_ptr());
        (api.set_stateful)(definition, true);
        (api.set_shape_function)(definition, kernel::unknown_shapes);
        (api.register_op)(definition, status.raw());
        status.check()?;
        let (create, compute) = (kernel::create_join, kernel::compute_join_async);
        for (device, kernel_name) in [(c"CPU", c"HorovodJoinCPU"), (c"GPU", c"HorovodJoinGPU")] {
            let builder = (api.new_kernel)(name, device.as_ptr(), create, compute, kernel::delete);
            (api.host_memory)(builder, c"last_joined_rank".as_ptr());
            (api.register_kernel)(kernel_name.as_ptr(), builder, status.raw());
            status.check()?;
        }
        Ok(())
    }
}
