//! Looks at this machine and its engine for what a container can be given. Decides nothing.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use tokio::task::spawn_blocking;

use super::engine::Engine;
use super::spec::{GivesGpus, Machine};
use crate::limits::{Capacity, gpus, kernel_processes};

pub async fn look(engine: &Engine) -> Machine {
    let seen = spawn_blocking(devices).await.unwrap_or_default();
    let is_root = geteuid().is_root();
    // Asked only where it matters.
    if is_root && !seen.has_gpus {
        return seen;
    }
    let Ok(info) = engine.docker.info().await else { return seen };
    let is_rootless = info.security_options.iter().flatten().any(|option| option.contains("rootless"));
    let has_runtime = info.runtimes.is_some_and(|runtimes| runtimes.keys().any(|name| name.contains("nvidia")));
    let gives_gpus = gives_gpus(&engine.name, has_runtime, is_described());
    Machine { gives_gpus, engine_has_more_rights: !is_root && !is_rootless, ..seen }
}

/// Podman takes runtimes from its own settings alone, whatever its clients ask for, and older ones no names either: they say yes, and
/// give nothing. 4.3 was seen to do so, 5.4 to give what is named.
fn gives_gpus(engine: &str, has_runtime: bool, is_described: bool) -> GivesGpus {
    match engine.strip_prefix("Podman") {
        None if has_runtime => GivesGpus::ByRuntime,
        None => GivesGpus::Not,
        Some(version) => {
            let mut numbers = version.trim().split('.').map(|word| word.parse::<u32>().unwrap_or_default());
            let listens = (numbers.next(), numbers.next()) >= (Some(5), Some(4));
            if listens && is_described { GivesGpus::ByName } else { GivesGpus::Not }
        }
    }
}

/// Is there a description of the GPUs for engines that give devices by name (CDI)?
fn is_described() -> bool {
    ["/etc/cdi", "/var/run/cdi"].iter().any(|directory| !below(directory, |name| name.contains("nvidia")).is_empty())
}

fn devices() -> Machine {
    let has_gpus = !gpus::inventory().is_empty();
    let beside = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"];
    let beside = beside.into_iter().map(PathBuf::from).filter(|path| has_gpus && path.exists());
    Machine {
        capacity: Capacity::here(),
        kernel_processes: kernel_processes(),
        has_gpus,
        beside_gpus: beside.collect(),
        gives_gpus: GivesGpus::Not,
        engine_has_more_rights: false,
        fabric_devices: below("/dev/infiniband", |_| true),
    }
}

fn below(directory: &str, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
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
    fn an_engine_is_asked_for_gpus_in_the_way_it_listens_to() {
        assert_eq!(gives_gpus("Docker 20.10.24", true, true), GivesGpus::ByRuntime);
        assert_eq!(gives_gpus("Docker 20.10.24", false, true), GivesGpus::Not);
        assert_eq!(gives_gpus("Podman 5.4.2", true, true), GivesGpus::ByName);
        assert_eq!(gives_gpus("Podman 5.4.2", true, false), GivesGpus::Not);
        assert_eq!(gives_gpus("Podman 5.10.0", false, true), GivesGpus::ByName);
        for older in ["Podman 4.3.1", "Podman 4.9.3", "Podman 5.3.2"] {
            assert_eq!(gives_gpus(older, true, true), GivesGpus::Not);
        }
        assert_eq!(gives_gpus("Podman", true, true), GivesGpus::Not);
    }
}
