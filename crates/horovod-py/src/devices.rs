//! GPUs of this process: opens them for the engine, and orders the streams of frameworks with its stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use corro_base::error_chain;
use corro_collectives::device::context::{DeviceContext, DeviceEvent};
use corro_collectives::device::cuda::api::ContextEvents;
use corro_collectives::device::driver::{DriverError, Stream};
use pyo3::prelude::*;

/// Position in the engine's stream that each stream of a device has waited for last. Waiting for an earlier one adds nothing.
static WAITED: Mutex<Option<HashMap<(i32, u64), u64>>> = Mutex::new(None);

/// Opens a GPU. Returns why the engine cannot access its memory, or None if it can.
#[pyfunction]
pub fn open_device(ordinal: i32) -> Option<String> {
    DeviceContext::open(ordinal).err().map(|error| error_chain::join(&error))
}

/// Why work cannot be ordered with all streams of a GPU's context, as is needed for a framework that does not tell its stream; None if it
/// can.
#[pyfunction]
pub fn context_events_obstacle() -> Option<String> {
    ContextEvents::open().err().map(|error| error_chain::join(&error))
}

/// Event after the work submitted to a stream so far. Takes no GIL.
pub fn record(ordinal: i32, stream: Stream) -> Result<Arc<DeviceEvent>, String> {
    let failed = |error: &dyn std::error::Error| format!("GPU {ordinal}: {}", error_chain::join(error));
    let context = DeviceContext::open(ordinal).map_err(|error| failed(&error))?;
    context.record(stream).map_err(|error| failed(&error))
}

/// Makes later work in a stream wait for an event of the engine's stream, unless it has waited for a later one already.
pub fn wait_once(stream: Stream, event: &DeviceEvent) -> Result<(), DriverError> {
    if event.stream() == stream {
        return Ok(());
    }
    if event.stream() != event.context().stream {
        return event.wait_in(stream);
    }
    let mut waited = WAITED.lock().unwrap_or_else(PoisonError::into_inner);
    let last = waited.get_or_insert_default().entry((event.context().ordinal, stream.0)).or_default();
    if *last > event.position() {
        return Ok(());
    }
    event.wait_in(stream)?;
    *last = event.position() + 1;
    Ok(())
}
