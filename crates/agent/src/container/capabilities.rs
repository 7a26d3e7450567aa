//! Probes the machine and its container engine for what a container can use. Makes no decisions.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use tokio::task::spawn_blocking;

use super::engine::Engine;
use super::spec::{Capabilities, GpuSupport};
use crate::limits::{Capacity, gpus, kernel_max_processes};

/// Probes devices, capacity and the engine's GPU support.
pub async fn probe(engine: &Engine) -> Capabilities {
    let found = spawn_blocking(probe_devices).await.unwrap_or_default();
    let is_root = geteuid().is_root();
    // The engine's information is needed only in these cases.
    if is_root && !found.has_gpus {
        return found;
    }
    let Ok(info) = engine.docker.info().await else { return found };
    let is_rootless = info.security_options.iter().flatten().any(|option| option.contains("rootless"));
    let has_runtime = info.runtimes.is_some_and(|runtimes| runtimes.keys().any(|name| name.contains("nvidia")));
    let gpu_support = gpu_support(&engine.name, has_runtime, has_cdi_spec());
    Capabilities { gpu_support, engine_is_more_privileged: !is_root && !is_rootless, ..found }
}

/// How the engine provides GPUs. Podman uses only runtimes from its own configuration, and versions before 5.4 ignore
/// CDI names without an error: observed with 4.3; 5.4 works.
fn gpu_support(engine: &str, has_runtime: bool, has_cdi_spec: bool) -> GpuSupport {
    match engine.strip_prefix("Podman") {
        None if has_runtime => GpuSupport::Runtime,
        None => GpuSupport::None,
        Some(version) => {
            let mut numbers = version.trim().split('.').map(|word| word.parse::<u32>().unwrap_or_default());
            let supports_cdi = (numbers.next(), numbers.next()) >= (Some(5), Some(4));
            if supports_cdi && has_cdi_spec { GpuSupport::Cdi } else { GpuSupport::None }
        }
    }
}

/// Whether a CDI specification of the GPUs is installed.
fn has_cdi_spec() -> bool {
    ["/etc/cdi", "/var/run/cdi"]
        .iter()
        .any(|directory| !list_devices(directory, |name| name.contains("nvidia")).is_empty())
}

fn probe_devices() -> Capabilities {
    let has_gpus = !gpus::inventory().is_empty();
    let control_devices = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"];
    let control_devices = control_devices.into_iter().map(PathBuf::from).filter(|path| has_gpus && path.exists());
    Capabilities {
        capacity: Capacity::detect(),
        kernel_max_processes: kernel_max_processes(),
        has_gpus,
        gpu_control_devices: control_devices.collect(),
        gpu_support: GpuSupport::None,
        engine_is_more_privileged: false,
        fabric_devices: list_devices("/dev/infiniband", |_| true),
    }
}

fn list_devices(directory: &str, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(Path::new(directory)).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> =
        entries.filter(|entry| entry.file_name().to_str().is_some_and(&wanted)).map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_support_depends_on_engine_and_version() {
        assert_eq!(gpu_support("Docker 20.10.24", true, true), GpuSupport::Runtime);
        assert_eq!(gpu_support("Docker 20.10.24", false, true), GpuSupport::None);
        assert_eq!(gpu_support("Podman 5.4.2", true, true), GpuSupport::Cdi);
        assert_eq!(gpu_support("Podman 5.4.2", true, false), GpuSupport::None);
        assert_eq!(gpu_support("Podman 5.10.0", false, true), GpuSupport::Cdi);
        for older in ["Podman 4.3.1", "Podman 4.9.3", "Podman 5.3.2"] {
            assert_eq!(gpu_support(older, true, true), GpuSupport::None);
        }
        assert_eq!(gpu_support("Podman", true, true), GpuSupport::None);
    }
}
