//! Errors of operations on device memory.

use crate::device::driver::DriverError;
use crate::error::Error;

/// Why an operation on device memory failed. The engine shuts down: other ranks may wait for this one.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DeviceError {
    /// A call of the driver or of one of its libraries failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// Memory for the fusion buffer could not be allocated.
    #[error(
        "no memory for a fusion buffer of {n_bytes} bytes on the GPU; set HOROVOD_FUSION_THRESHOLD to a smaller number of bytes \
         (default 134217728)"
    )]
    FusionBuffer {
        n_bytes: u64,
        #[source]
        cause: DriverError,
    },
    /// Memory for a result could not be allocated.
    #[error("no memory for a result of {n_bytes} bytes on the GPU")]
    Result {
        n_bytes: u64,
        #[source]
        cause: DriverError,
    },
    #[error("the GPU's memory cannot be shared with other processes; set CORRO_GPU_TRANSPORT=host")]
    CannotExport,
    /// The transport cannot be set up, or differs between ranks.
    #[error("{0}")]
    Transport(String),
    /// A rank that passed device memory before now passes another kind.
    #[error("a tensor of this rank is in host memory, but its earlier ones were in the memory of a GPU")]
    HostTensor,
    /// Another rank died or left, or the arguments are invalid.
    #[error(transparent)]
    Collective(#[from] Error),
}

impl DeviceError {
    pub fn fusion_buffer(cause: DriverError, n_bytes: u64) -> DeviceError {
        if cause.is_out_of_memory() { DeviceError::FusionBuffer { n_bytes, cause } } else { cause.into() }
    }

    pub fn result(cause: DriverError, n_bytes: u64) -> DeviceError {
        if cause.is_out_of_memory() { DeviceError::Result { n_bytes, cause } } else { cause.into() }
    }
}
