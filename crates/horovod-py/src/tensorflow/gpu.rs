//! Tensors in the memory of a GPU: kernels for TensorFlow's device "GPU". Never blocks.
//!
//! TensorFlow's C API does not tell the stream of its own CUDA device: `TF_GetStream` serves pluggable devices only, and `SP_Stream` is a
//! type of the plug-in (TensorFlow 2.6 to 2.21). Inputs and results are therefore ordered with all streams of the device's context
//! ([`Stream::CONTEXT`]), which needs a driver of CUDA 12.5 or later. That includes TensorFlow's stream, in whose order it also reuses
//! memory. Never ran on a GPU: no build of TensorFlow for GPUs was at hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use corro_base::error_chain;
use corro_collectives::device::context::DeviceEvent;
use corro_collectives::device::cuda;
use corro_collectives::device::driver::{DriverError, Stream};
use corro_collectives::engine::handle::{DeviceOutput, Outcome, Output};
use corro_collectives::{Dtype, Engine};

use super::api::Code;
use super::context::{Failure, OpContext, TensorRef};
use crate::devices;

/// The GPU of the first operation, -1 before. The engine uses one GPU of the process.
static ORDINAL: AtomicI32 = AtomicI32::new(-1);

/// Number of the GPU whose memory has the tensors.
pub fn ordinal_of(tensors: &[TensorRef]) -> Result<i32, Failure> {
    let known = ORDINAL.load(Ordering::Relaxed);
    let Some(tensor) = tensors.iter().find(|tensor| tensor.n_bytes() > 0) else { return Ok(known.max(0)) };
    let ordinal =
        cuda::device_of(tensor.address()).map_err(|error| failed("cannot find the GPU of a tensor", &error))?;
    match ORDINAL.compare_exchange(-1, ordinal, Ordering::Relaxed, Ordering::Relaxed) {
        Err(first) if first != ordinal => Err(Failure::argument(format!(
            "a tensor is on GPU {ordinal}, and earlier ones are on GPU {first}: a rank uses one GPU. Select it with \
             tf.config.set_visible_devices"
        ))),
        _ => Ok(ordinal),
    }
}

/// Event after all work that was submitted to the GPU so far. Record it after the outputs are allocated: their memory may still be in use.
pub fn ready(ordinal: i32) -> Result<Arc<DeviceEvent>, Failure> {
    devices::record(ordinal, Stream::CONTEXT).map_err(|text| Failure { code: Code::Unknown, text })
}

/// Makes later work of the GPU wait for the results of a call; does nothing for results in main memory.
pub fn wait_in_streams(outcome: &Outcome, engine: &Engine) -> Result<(), Failure> {
    for device in outcome.outputs.iter().filter_map(|output| output.device.as_ref()) {
        if let Some(text) = engine.ended()
            && !device.done.is_complete().map_err(|error| driver_failed(&error))?
        {
            return Err(Failure { code: Code::Unknown, text: text.to_string() });
        }
        devices::wait_once(Stream::CONTEXT, &device.done).map_err(|error| driver_failed(&error))?;
    }
    Ok(())
}

/// Sets an output to a copy of a result that the engine has allocated on the GPU.
pub fn set_output(
    context: &OpContext,
    index: usize,
    dtype: Dtype,
    output: &Output,
    device: &DeviceOutput,
) -> Result<(), Failure> {
    let n_bytes = output.shape.iter().product::<u64>() as usize * dtype.size();
    let target = context.allocate(index, dtype, &output.shape, n_bytes)?;
    let Some(memory) = device.memory.as_ref().filter(|_| n_bytes > 0) else { return Ok(()) };
    // SAFETY: TensorFlow allocated `n_bytes` for the output and frees them in the order of its stream, which waits for the copy.
    let copied =
        unsafe { device.done.context().copy_result(memory, &device.done, target.address(), n_bytes, Stream::CONTEXT) };
    copied.map_err(|error| driver_failed(&error))
}

fn failed(what: &str, error: &dyn std::error::Error) -> Failure {
    Failure { code: Code::Unknown, text: format!("{what}: {}", error_chain::join(error)) }
}

fn driver_failed(error: &DriverError) -> Failure {
    Failure { code: Code::Unknown, text: error.to_string() }
}
