//! Resource limits of a task: applies them, sets the GPU variables, and reports exceeded limits.

use std::time::Duration;

use corro_model::gpu::XidError;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::limits::gpus::{self, Gpus};
use crate::limits::{AppliedLimits, Capacity};
use crate::task::Task;
use crate::task::env_vars;
use crate::task::job_env::JobEnv;

/// The other ranks of a failed job are stopped only after that.
const GPU_ERRORS_TIMEOUT: Duration = Duration::from_secs(1);

impl Task {
    /// Applies the job's limits and claims its GPUs. Container engines limit what they run themselves.
    pub(super) fn apply_limits(&self) -> AppliedLimits {
        let on_host = self.order.container.is_none() || self.order.containers_on_host;
        let limits = self.order.limits.as_ref().filter(|_| on_host);
        let (mut applied_limits, [memory, processors, processes]) =
            self.context.cgroups.apply(&self.order, limits, Capacity::detect());
        applied_limits.gpus = Gpus::claim(self.order.gpus, &gpus::inventory());
        self.context.gpus.assign(&self.order.attempt, applied_limits.gpus.selection(self.order.gpus));
        if on_host {
            self.log.line(format_args!("Memory for this job on this node: {memory}"));
            self.log.line(format_args!("Processors for this job on this node: {processors}"));
            self.log.line(format_args!("Processes for this job on this node: {processes}"));
        }
        if let Some(gpus) = applied_limits.gpus.describe(self.order.gpus).filter(|_| on_host) {
            self.log.line(format_args!("GPUs for this job on this node: {gpus}"));
        }
        applied_limits
    }

    /// Restricts processes to the claimed GPUs, unless the job sets the variable itself. Container engines have their
    /// own mechanism.
    pub(super) fn set_gpu_variables(&self, job_env: &mut JobEnv) {
        let is_set_by_job =
            self.order.environment.iter().any(|variable| variable.name == gpus::VISIBLE_DEVICES_VARIABLE)
                || self.order.secrets.iter().any(|secret| secret.name == gpus::VISIBLE_DEVICES_VARIABLE);
        for (name, value) in env_vars::gpu_count_variables(self.applied_limits.gpus.count(self.order.gpus)) {
            let is_users = self.order.environment.iter().any(|variable| variable.name == name);
            if !is_users {
                job_env.environment.variables.insert(name, value);
            }
        }
        if let Some(numbers) = self.applied_limits.gpus.visible_devices().filter(|_| !is_set_by_job) {
            job_env.environment.variables.insert(gpus::VISIBLE_DEVICES_VARIABLE.to_owned(), numbers);
            // The numbers are those of the PCI bus order, not of CUDA's default, fastest first.
            job_env
                .environment
                .variables
                .entry(gpus::DEVICE_ORDER_VARIABLE.to_owned())
                .or_insert_with(|| "PCI_BUS_ID".to_owned());
        }
    }

    /// Errors of the job's GPUs in the kernel's log, which also go to the execution log. Limited in time.
    pub async fn gpu_errors(&self) -> Vec<XidError> {
        let (monitor, attempt) = (self.context.gpus.clone(), self.order.attempt.clone());
        if !monitor.has_gpus(&attempt) {
            return Vec::new();
        }
        let reading = spawn_blocking(move || monitor.errors(&attempt));
        let Ok(Ok(errors)) = timeout(GPU_ERRORS_TIMEOUT, reading).await else { return Vec::new() };
        for error in &errors {
            self.log.line(format_args!("Error of a GPU in the kernel's log: {}", error.describe()));
        }
        errors
    }

    /// Message if the OOM killer killed processes of this job.
    pub async fn out_of_memory(&self) -> Option<String> {
        let why = match &self.container {
            Some(container) => container.out_of_memory().await?,
            None => self.context.cgroups.out_of_memory(&self.applied_limits)?,
        };
        self.log.line(format_args!("Out of memory: {why}"));
        Some(why)
    }

    /// Message if the limit on processes refused forks.
    pub async fn out_of_processes(&self) -> Option<String> {
        let why = match &self.container {
            Some(container) => container.out_of_processes().await?,
            None => self.context.cgroups.out_of_processes(&self.applied_limits)?,
        };
        self.log.line(format_args!("Out of processes: {why}"));
        Some(why)
    }
}
