//! Looks at this machine and its engine for what a container can be given. Decides nothing.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use tokio::task::spawn_blocking;

use super::engine::Engine;
use super::plan::Machine;
use crate::limits::Capacity;

pub async fn look(engine: &Engine) -> Machine {
    let seen = spawn_blocking(devices).await.unwrap_or_default();
    let is_root = geteuid().is_root();
    // Asked only where it matters.
    if is_root && seen.gpu_devices.is_empty() {
        return seen;
    }
    let Ok(info) = engine.docker.info().await else { return seen };
    let is_rootless = info.security_options.iter().flatten().any(|option| option.contains("rootless"));
    let gives_gpus = info.runtimes.is_some_and(|runtimes| runtimes.keys().any(|name| name.contains("nvidia")));
    Machine { engine_gives_gpus: gives_gpus, engine_has_more_rights: !is_root && !is_rootless, ..seen }
}

fn devices() -> Machine {
    let is_gpu = |name: &str| {
        name.strip_prefix("nvidia").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()) && !rest.is_empty())
    };
    let cards = below("/dev", is_gpu);
    let beside = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"];
    let beside = beside.into_iter().map(PathBuf::from).filter(|path| !cards.is_empty() && path.exists());
    Machine {
        capacity: Capacity::here(),
        gpu_devices: cards.clone().into_iter().chain(beside).collect(),
        engine_gives_gpus: false,
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
