//! State of NVIDIA GPUs through NVML, which is loaded at run time: a machine without the library has no GPUs. The library
//! is opened once and kept. A value that a GPU does not support is absent.

use std::ffi::OsStr;

use corro_base::error_chain;
use corro_model::gpu::GpuReading;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::{GpuSource, MachineGpu, ReadError};

/// The name with the version comes with the driver; the plain one only with its development files.
const LIBRARY_NAMES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];

#[derive(Default)]
pub struct NvmlSource {
    library: Option<Nvml>,
}

impl GpuSource for NvmlSource {
    fn read(&mut self) -> Result<Vec<MachineGpu>, ReadError> {
        let library = match self.library.take() {
            Some(library) => library,
            None => open()?,
        };
        let count = match library.device_count() {
            Ok(count) => count,
            // The driver was reloaded: the next call opens the library anew.
            Err(error) => return Err(ReadError::Failed(describe("count the GPUs", &error))),
        };
        let gpus = (0..count).filter_map(|index| read_gpu(&library, index)).collect();
        self.library = Some(library);
        Ok(gpus)
    }
}

fn open() -> Result<Nvml, ReadError> {
    let mut failure = ReadError::NoDriver;
    for name in LIBRARY_NAMES {
        match Nvml::builder().lib_path(OsStr::new(name)).init() {
            Ok(library) => return Ok(library),
            Err(NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound | NvmlError::DriverNotLoaded) => {}
            Err(error) => failure = ReadError::Failed(describe("open NVML", &error)),
        }
    }
    Err(failure)
}

fn describe(action: &str, error: &NvmlError) -> String {
    format!("cannot {action}: {}", error_chain::join(error))
}

/// `None` for a GPU that is not this user's. One that is lost has its number only, if the driver still lists it.
fn read_gpu(library: &Nvml, index: u32) -> Option<MachineGpu> {
    let device = match library.device_by_index(index) {
        Ok(device) => device,
        Err(error) if is_loss(&error) || matches!(error, NvmlError::Unknown) => return Some(lost(index)),
        Err(_) => return None,
    };
    let memory = match device.memory_info() {
        Err(error) if is_loss(&error) => return Some(lost(index)),
        memory => memory.ok(),
    };
    let reading = GpuReading {
        gpu: index,
        name: device.name().unwrap_or_default(),
        bus_id: device.pci_info().map(|pci| pci.bus_id).unwrap_or_default(),
        utilization_percent: device.utilization_rates().ok().map(|rates| rates.gpu.min(100)),
        memory_used_bytes: memory.as_ref().map(|memory| memory.used),
        memory_total_bytes: memory.as_ref().map(|memory| memory.total),
        power_watts: device.power_usage().ok().map(|milliwatts| f64::from(milliwatts / 100) / 10.0),
        temperature_celsius: device.temperature(TemperatureSensor::Gpu).ok(),
        ecc_errors: ecc_errors(&device),
        ..GpuReading::default()
    };
    let uuid = device.uuid().unwrap_or_default();
    Some(MachineGpu { reading, uuid, device_number: device.minor_number().ok() })
}

/// Uncorrected errors since the driver was loaded; `None` for GPUs without ECC, or with it switched off.
fn ecc_errors(device: &Device<'_>) -> Option<u64> {
    device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).ok()
}

fn lost(index: u32) -> MachineGpu {
    let reading = GpuReading { gpu: index, lost: true, ..GpuReading::default() };
    MachineGpu { reading, ..MachineGpu::default() }
}

fn is_loss(error: &NvmlError) -> bool {
    matches!(error, NvmlError::GpuLost | NvmlError::ResetRequired)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_driver_has_no_gpus() {
        let mut source = NvmlSource::default();
        for _ in 0..2 {
            match source.read() {
                Ok(gpus) => eprintln!("{gpus:?}"),
                Err(error) => assert_eq!(error, ReadError::NoDriver),
            }
        }
    }

    #[test]
    fn errors_of_a_lost_gpu_are_known() {
        assert!(is_loss(&NvmlError::GpuLost) && is_loss(&NvmlError::ResetRequired));
        assert!(!is_loss(&NvmlError::NotSupported) && !is_loss(&NvmlError::NoPermission));
        assert_eq!((lost(3).reading.gpu, lost(3).reading.lost), (3, true));
    }
}
