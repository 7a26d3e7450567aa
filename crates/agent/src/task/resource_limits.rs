//! Resource limits of a task: what its processes may use, the GPUs they see, and whether a limit was exceeded.

use crate::limits::gpus::{self, Gpus};
use crate::limits::{Capacity, Held};
use crate::task::Task;
use crate::task::env_vars;
use crate::task::job_env::Ground;

impl Task {
    /// Container engines hold what they run themselves.
    pub(super) fn hold(&self) -> Held {
        let on_host = self.order.container.is_none() || self.order.containers_on_host;
        let limits = self.order.limits.as_ref().filter(|_| on_host);
        let (mut held, [memory, processors, processes]) =
            self.context.groups.hold(&self.order, limits, Capacity::here());
        held.gpus = Gpus::claim(self.order.gpus, &gpus::inventory());
        if on_host {
            self.log.line(format_args!("Memory for this job on this node: {memory}"));
            self.log.line(format_args!("Processors for this job on this node: {processors}"));
            self.log.line(format_args!("Processes for this job on this node: {processes}"));
        }
        if let Some(gpus) = held.gpus.words(self.order.gpus).filter(|_| on_host) {
            self.log.line(format_args!("GPUs for this job on this node: {gpus}"));
        }
        held
    }

    /// Processes see the node's own GPUs only, unless the job says itself which it wants; engines show them to containers in their own way.
    pub(super) fn show_gpus(&self, ground: &mut Ground) {
        let says_itself = self.order.environment.iter().any(|variable| variable.name == gpus::VARIABLE)
            || self.order.secrets.iter().any(|secret| secret.name == gpus::VARIABLE);
        for (name, value) in env_vars::number_of_gpus(self.held.gpus.count(self.order.gpus)) {
            let is_users = self.order.environment.iter().any(|variable| variable.name == name);
            if !is_users {
                ground.environment.variables.insert(name, value);
            }
        }
        if let Some(numbers) = self.held.gpus.variable().filter(|_| !says_itself) {
            ground.environment.variables.insert(gpus::VARIABLE.to_owned(), numbers);
            // The numbers are the machine's, not those of the fastest first.
            ground.environment.variables.entry(gpus::ORDER.to_owned()).or_insert_with(|| "PCI_BUS_ID".to_owned());
        }
    }

    /// Why the kernel killed processes of this job, if it did.
    pub async fn out_of_memory(&self) -> Option<String> {
        let why = match &self.container {
            Some(container) => container.out_of_memory().await?,
            None => self.context.groups.exceeded(&self.held)?,
        };
        self.log.line(format_args!("Out of memory: {why}"));
        Some(why)
    }

    /// The limit of processes, if some were not started because of it.
    pub async fn out_of_processes(&self) -> Option<String> {
        let why = match &self.container {
            Some(container) => container.out_of_processes().await?,
            None => self.context.groups.out_of_processes(&self.held)?,
        };
        self.log.line(format_args!("Out of processes: {why}"));
        Some(why)
    }
}
