//! State of the GPUs of a host that its nodes may use, read every few seconds in the background for the host's reports.

use std::time::Duration;

use corro_model::gpu::GpuReading;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;

use crate::gpu::monitor::READ_TIMEOUT;
use crate::gpu::sampler::GpuSampler;
use crate::limits::gpus;

/// Time between two readings, as of the server's measurements of nodes.
const READ_INTERVAL: Duration = Duration::from_secs(10);

/// Background task that reads until dropped.
#[derive(Debug)]
pub struct GpuStates {
    latest: watch::Receiver<Vec<GpuReading>>,
    task: JoinHandle<()>,
}

impl GpuStates {
    /// Starts reading the first `limit` of the GPUs that this process may use.
    pub fn start(limit: Option<u32>) -> GpuStates {
        let (sender, latest) = watch::channel(Vec::new());
        let task = tokio::spawn(async move {
            let sampler = GpuSampler::default();
            // As of the start, like the inventory, so that a GPU that vanishes is shown as lost.
            let Ok(selection) = spawn_blocking(move || gpus::assignable(limit)).await else { return };
            loop {
                let (sampler, selection) = (sampler.clone(), selection.clone());
                let read = spawn_blocking(move || selection.readings(&sampler.read(READ_TIMEOUT)));
                let Ok(readings) = read.await else { return };
                sender.send_replace(readings);
                sleep(READ_INTERVAL).await;
            }
        });
        GpuStates { latest, task }
    }

    pub fn latest(&self) -> Vec<GpuReading> {
        self.latest.borrow().clone()
    }
}

impl Drop for GpuStates {
    fn drop(&mut self) {
        self.task.abort();
    }
}
