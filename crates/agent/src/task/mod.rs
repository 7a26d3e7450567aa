//! One attempt at a job on this node, from its directories to the last byte of its logs. The driver steers it through
//! [`TaskControl`] and receives its events. Always reports an end; never starts a second attempt.
//!
//! Reading order: [`control`], [`node_context`], [`job_env`] with [`env_vars`], [`prepare`], `gang` (with
//! `rendezvous_host` and [`remote_exec`]), `resource_limits`, `ranks` with [`processes`], [`exec_target`].

pub mod control;
pub mod env_vars;
pub mod exec_target;
mod gang;
pub mod job_env;
pub mod node_context;
pub mod prepare;
pub mod processes;
mod ranks;
pub mod remote_exec;
mod rendezvous_host;
mod resource_limits;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use corro_launch::kill_tagged::{kill_by_tag_prefix, kill_in_mount_namespace, processes_with_tag};
use corro_model::node::{TaskFailure, TaskOrder, TaskPhase, Volume};

use crate::container::lifecycle::Container;
use crate::events::{Event, Reporter};
use crate::limits::AppliedLimits;
use crate::output::counters::Counters;
use crate::output::execution_log::ExecutionLog;
use crate::ports::ReservedPorts;
use crate::storage::directories::JOBS;
use crate::task_errors;

use control::{TaskAbort, TaskControl, wait_for_stop};
use job_env::JobEnv;
use node_context::NodeContext;
use prepare::{container_start, preparation, python_env, python_packages, wheels};
use ranks::mpirun;
use remote_exec::RemoteExecServer;
use rendezvous_host::RendezvousHost;

/// State of an attempt.
#[derive(Debug)]
pub struct Task {
    pub context: NodeContext,
    pub order: Arc<TaskOrder>,
    /// The cluster's volumes on this node.
    pub cluster_volumes: Arc<[Volume]>,
    pub control: watch::Receiver<TaskControl>,
    pub reporter: Reporter,
    pub log: ExecutionLog,
    /// Open on the master only, and on each node of an elastic job.
    pub rendezvous: Option<RendezvousHost>,
    /// Performance counters, for clusters that configure them.
    pub counters: Option<Counters>,
    /// Limits of the task's processes on this node.
    pub applied_limits: AppliedLimits,
    /// The container of the job's processes, if it has one.
    pub container: Option<Container>,
    /// Server for commands of the job's other nodes, if there are any.
    pub remote_exec: Option<RemoteExecServer>,
    /// Ports reserved for processes that listen.
    pub ports: Option<ReservedPorts>,
    /// A process was killed by SIGKILL, and possibly its guard with it, which would have ended its descendants.
    pub was_killed: bool,
}

impl Task {
    /// Runs the whole attempt. Volumes are unmounted in any case, and the log is complete before the end is reported.
    pub async fn run(mut self) {
        self.log.redact(job_env::job_secrets(&self.order, None));
        self.log.line(self.title());
        self.order.lost_attempts.iter().for_each(|lost| self.log.line(lost));
        let mut end = self.execute_or_give_up().await;
        if let Some(remote_exec) = self.remote_exec.take() {
            remote_exec.close(REMOTE_EXEC_GRACE).await;
        }
        if let Some(counters) = self.counters.take() {
            counters.finish().await;
        }
        if self.was_killed {
            let jobs = self.context.directories.root().join(JOBS);
            let _ = spawn_blocking(move || kill_in_mount_namespace(&jobs)).await;
        }
        if let Err(left) = self.end_container().await {
            end = Err(left.into());
        }
        let failure = match end {
            Ok(()) | Err(TaskAbort::Stopped) => None,
            Err(TaskAbort::Failed(failure)) => Some(*failure),
        };
        let last_line = match &failure {
            Some(failure) => format!("Failed: {}: {}", failure.error.code, failure.error.message),
            None => "Finished on this node".to_owned(),
        };
        let (context, order, log) = self.clone_parts();
        // Joining fails only when the runtime ends.
        let _ = spawn_blocking(move || prepare::unmount_volumes(&context, &order, &log, &last_line)).await;
        self.context.gpus.release(&self.order.attempt);
        self.reporter.phase(TaskPhase::Ended { failure }).await;
        if self.rendezvous.is_some() {
            // Slower ranks on other nodes may still need the rendezvous. A dropped control means the same as the gang's
            // end.
            let _ = self.control.wait_for(|control| control.gang_ended).await;
        }
    }

    /// Ends the container before its volumes are unmounted.
    async fn end_container(&mut self) -> Result<(), TaskFailure> {
        let Some(container) = self.container.take() else { return Ok(()) };
        let Err(left) = container.remove(&self.log).await else { return Ok(()) };
        let failure = task_errors::container_left(&self.context.node, &left);
        let _ = self.reporter.events.send(Event::Stuck(Box::new(failure.error.clone()))).await;
        Err(failure)
    }

    /// Tag of a process of this task. Tags are unique, so that a sweep for one does not hit its siblings.
    pub fn tag(&self, process: &str) -> String {
        format!("{}{process}", self.context.tags.attempt_prefix(&self.order.attempt))
    }

    /// Enforces the end of a stop: if the guards fail, the agent kills by tag, and then declares the node unusable.
    async fn execute_or_give_up(&mut self) -> Result<(), TaskAbort> {
        let (control, tag, node) = (self.control.clone(), self.tag(""), self.context.node.clone());
        let events = self.reporter.events.clone();
        let left = tokio::select! {
            end = self.execute() => return end,
            left = stop_overdue(control, tag) => left,
        };
        let failure = task_errors::not_killed(&node, &left);
        let _ = events.send(Event::Stuck(Box::new(failure.error.clone()))).await;
        Err(failure.into())
    }

    async fn execute(&mut self) -> Result<(), TaskAbort> {
        let (context, order, log) = self.clone_parts();
        let volumes = Arc::clone(&self.cluster_volumes);
        let job_env = spawn_blocking(move || prepare::set_up_job(&context, &order, &volumes, &log)).await;
        let mut job_env = job_env.map_err(|_| task_errors::agent_panicked(&self.context.node))??;
        self.applied_limits = self.apply_limits();
        job_env.confinement.processors = self.applied_limits.pinned_cpus();
        self.set_gpu_variables(&mut job_env);
        // Also for ranks that a launcher starts on this node at the request of another node.
        let ports = self.context.config.ports.map(|ports| ("CORRO_PORTS".to_owned(), ports.to_string()));
        job_env.environment.variables.extend(ports);
        if self.order.counters {
            let gpus = (self.context.gpus.clone(), self.order.attempt.clone());
            self.counters = Counters::start(&job_env.logs, &self.context.node, self.tag(""), gpus);
        }
        container_start::enter(self, &mut job_env).await?;
        prepare::check_working_directory(self, &job_env).await?;
        prepare::add_compatibility(&self.context, &mut job_env, &self.log)?;
        self.install_ssh_shim(&mut job_env)?;
        if self.control.borrow().stop.is_some() {
            return Err(TaskAbort::Stopped);
        }
        if self.order.preparation.is_some() || self.order.python_environment.is_some() {
            let wheels = wheels::add_to_pip(self, &mut job_env).await?;
            let unshared = python_packages::provide(self, &mut job_env, &wheels).await?;
            // In a container a job may install anything.
            let venv = match job_env.container {
                None => python_env::create(self, &mut job_env).await?,
                Some(_) => None,
            };
            if let Some(packages) = unshared {
                packages.install(self, &mut job_env, venv).await?;
            }
        }
        // From here until the volumes are unmounted, `job exec` can start sessions.
        let job_env = Arc::new(job_env);
        let registration = self.context.exec_targets.register(&self.context.tags, &self.order, &job_env);
        let end = self.run_job(&job_env).await;
        registration.close().await;
        end
    }

    /// Everything that runs for the job: preparation, then ranks.
    async fn run_job(&mut self, job_env: &Arc<JobEnv>) -> Result<(), TaskAbort> {
        if let Some(line) = self.order.preparation.clone() {
            preparation::run_preparation(self, job_env, &line).await?;
        }
        if self.order.elastic {
            self.rendezvous = self.open_rendezvous().await?;
            return ranks::elastic::run(self, job_env).await;
        }
        let mpirun = mpirun::find(self, job_env).await?;
        self.rendezvous = self.open_rendezvous().await?;
        self.open_listeners(job_env).await?;
        let gang = match self.gang_address(mpirun.is_some()) {
            Some(gang) if self.control.borrow().alone => gang,
            gang => {
                self.log.line("Prepared: waiting for the other nodes");
                self.reporter.phase(TaskPhase::Prepared { gang: gang.clone() }).await;
                self.wait_for_gang(gang).await?
            }
        };
        if self.control.borrow().stop.is_some() {
            return Err(TaskAbort::Stopped);
        }
        ranks::run(self, job_env, &gang, mpirun.as_ref()).await
    }

    fn clone_parts(&self) -> (NodeContext, Arc<TaskOrder>, ExecutionLog) {
        (self.context.clone(), Arc::clone(&self.order), self.log.clone())
    }

    fn title(&self) -> String {
        let TaskOrder { workspace, experiment, job, hosts, host_idx, .. } = &*self.order;
        let role = if self.order.is_master() { "master".to_owned() } else { format!("node {}", host_idx + 1) };
        format!(
            "Job {workspace}/{experiment}/{job}, attempt {}, on {} ({role} of {})",
            self.order.attempt.number,
            self.context.node,
            hosts.len()
        )
    }
}

/// Resolves with the remaining processes when a stop has taken much longer than its grace.
async fn stop_overdue(mut control: watch::Receiver<TaskControl>, tag: String) -> Vec<u32> {
    let grace = wait_for_stop(&mut control, None).await;
    sleep(grace + GUARD_KILL_TIMEOUT).await;
    tracing::warn!(tag, "a task did not end in time: killing all processes with its tag");
    let swept = tag.clone();
    let _ = spawn_blocking(move || kill_by_tag_prefix(&swept)).await;
    sleep(SWEEP_TIMEOUT).await;
    spawn_blocking(move || processes_with_tag(&tag)).await.unwrap_or_default()
}

/// Grace for commands of other nodes when the job has ended on this one.
const REMOTE_EXEC_GRACE: Duration = Duration::from_secs(1);
/// How long guards may take after the grace; they give up after 10 s.
const GUARD_KILL_TIMEOUT: Duration = Duration::from_secs(12);
const SWEEP_TIMEOUT: Duration = Duration::from_secs(5);
