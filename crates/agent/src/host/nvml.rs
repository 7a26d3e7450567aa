//! Inventory of NVIDIA GPUs through NVML, which is loaded at run time: a machine without the library has no GPUs.

use std::ffi::OsStr;

use corro_model::host::Gpu;
use nvml_wrapper::Nvml;

/// The name with the version comes with the driver; the plain one only with its development files.
const LIBRARY_NAMES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];

/// The GPUs of this machine, ordered by their index.
pub fn gpus() -> Vec<Gpu> {
    let open = |name: &&str| Nvml::builder().lib_path(OsStr::new(name)).init().ok();
    let Some(nvml) = LIBRARY_NAMES.iter().find_map(open) else { return Vec::new() };
    (0..nvml.device_count().unwrap_or(0)).filter_map(|index| gpu(&nvml, index)).collect()
}

/// `None` for a GPU that is lost or not this user's.
fn gpu(nvml: &Nvml, index: u32) -> Option<Gpu> {
    let device = nvml.device_by_index(index).ok()?;
    Some(Gpu { name: device.name().ok()?, memory_bytes: device.memory_info().ok()?.total })
}
