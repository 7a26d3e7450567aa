//! The machine's GPUs: where their state is read ([`nvml`], and [`readings_file`] for tests), the thread that reads it
//! ([`sampler`]), the GPUs that the node's task may use ([`selection`], [`monitor`]) and the errors of the driver in
//! the kernel's log ([`mod@kernel_log`]). Reads on request only, never claims a GPU, and never waits for a driver that
//! hangs.

pub mod kernel_log;
pub mod monitor;
mod nvml;
mod readings_file;
pub mod sampler;
pub mod selection;
mod tracker;

use std::fmt;

use corro_model::gpu::GpuReading;
use corro_model::host::Gpu;

pub use self::readings_file::fake_numbers;

use self::kernel_log::KernelLog;
use self::readings_file::ReadingsFile;

/// A GPU of this machine, with the names by which it can be chosen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineGpu {
    pub reading: GpuReading,
    /// `GPU-5b8a…`; empty if it is not known.
    pub uuid: String,
    /// Number of its device file, `/dev/nvidiaN`.
    pub device_number: Option<u32>,
}

/// Source of the state of GPUs. Used by one thread, which it may block.
pub trait GpuSource: Send {
    /// The GPUs that can be found now, ordered by their number. The error says why none can be read.
    fn read(&mut self) -> Result<Vec<MachineGpu>, ReadError>;
}

/// Reason why no GPU can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// This machine has no driver, or no GPU.
    NoDriver,
    /// The driver is there and does not work.
    Failed(String),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::NoDriver => f.write_str("there is no NVIDIA driver"),
            ReadError::Failed(why) => f.write_str(why),
        }
    }
}

/// The source of this machine: the driver, or the file that a test names.
pub fn source() -> Box<dyn GpuSource> {
    match ReadingsFile::from_environment() {
        Some(file) => Box::new(file),
        None => Box::new(nvml::NvmlSource::default()),
    }
}

/// The kernel's log of this machine, or that of the file that a test names.
pub fn kernel_log() -> Box<dyn KernelLog> {
    match ReadingsFile::from_environment() {
        Some(file) => Box::new(file),
        None => Box::new(kernel_log::MachineLog),
    }
}

/// Names and memory of the machine's GPUs, ordered by their number. Blocks on the driver.
pub fn inventory() -> Vec<Gpu> {
    let gpus = source().read().unwrap_or_default().into_iter().map(|gpu| gpu.reading);
    let has_answered = |reading: &GpuReading| !reading.lost && reading.memory_total_bytes.is_some();
    gpus.filter(has_answered)
        .map(|reading| Gpu { memory_bytes: reading.memory_total_bytes.unwrap_or_default(), name: reading.name })
        .collect()
}
