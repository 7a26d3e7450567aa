//! One attempt at a job on this node, from the first directory to the last byte of its logs. Started by the driver, which
//! steers it through [`Control`] and hears of it through events. Always reports an end; never starts a second attempt.

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

use corro_launch::sweep::{processes_with_tag, sweep, sweep_shown};
use corro_model::node::{TaskFailure, TaskOrder, TaskPhase, Volume};

use crate::container::lifecycle::Container;
use crate::events::{Event, Reporter};
use crate::limits::Held;
use crate::output::counters::Counters;
use crate::output::execution_log::ExecutionLog;
use crate::ports::Ports;
use crate::storage::directories::JOBS;
use crate::task_errors;

use control::{Control, Cut, stop_asked};
use job_env::Ground;
use node_context::Context;
use prepare::{container_start, python_env, wheels};
use ranks::mpirun;
use remote_exec::Remote;
use rendezvous_host::Meeting;

#[derive(Debug)]
pub struct Task {
    pub context: Context,
    pub order: Arc<TaskOrder>,
    /// Of the node, for all its jobs.
    pub cluster_volumes: Arc<[Volume]>,
    pub control: watch::Receiver<Control>,
    pub reporter: Reporter,
    pub log: ExecutionLog,
    /// Open on the master only.
    pub meeting: Option<Meeting>,
    /// Written for clusters that ask for them.
    pub counters: Option<Counters>,
    /// What its processes on this node are held to.
    pub held: Held,
    /// In which the job's processes run, if it has one.
    pub container: Option<Container>,
    /// Where the job's other nodes have commands started on this one, if the job may want that.
    pub remote: Option<Remote>,
    /// For processes that listen by themselves.
    pub ports: Option<Ports>,
    /// A process of it was killed, and perhaps its guard, which would have ended what it left.
    pub was_killed: bool,
}

impl Task {
    /// Lives through the whole attempt. The volumes go whatever happened, and the log is complete before the end is told.
    pub async fn run(mut self) {
        self.log.redact(job_env::secrets_of(&self.order, None));
        self.log.line(self.title());
        self.order.lost_attempts.iter().for_each(|lost| self.log.line(lost));
        let mut end = self.live_or_give_up().await;
        if let Some(remote) = self.remote.take() {
            remote.close(REMOTE_GRACE).await;
        }
        if let Some(counters) = self.counters.take() {
            counters.finish().await;
        }
        if self.was_killed {
            let jobs = self.context.directories.root().join(JOBS);
            let _ = spawn_blocking(move || sweep_shown(&jobs)).await;
        }
        if let Err(left) = self.leave_container().await {
            end = Err(left.into());
        }
        let failure = match end {
            Ok(()) | Err(Cut::Stopped) => None,
            Err(Cut::Failed(failure)) => Some(*failure),
        };
        let last_words = match &failure {
            Some(failure) => format!("Failed: {}: {}", failure.error.code, failure.error.message),
            None => "Finished on this node".to_owned(),
        };
        let (context, order, log) = self.parts();
        // Joining fails only when the runtime ends.
        let _ = spawn_blocking(move || prepare::take_away_volumes(&context, &order, &log, &last_words)).await;
        self.reporter.phase(TaskPhase::Ended { failure }).await;
        if self.meeting.is_some() {
            // Slower ranks on other nodes may still meet. A dropped control says the same.
            let _ = self.control.wait_for(|control| control.over).await;
        }
    }

    /// Everything in it ends, before its volumes go.
    async fn leave_container(&mut self) -> Result<(), TaskFailure> {
        let Some(container) = self.container.take() else { return Ok(()) };
        let Err(left) = container.end(&self.log).await else { return Ok(()) };
        let failure = task_errors::container_left(&self.context.node, &left);
        let _ = self.reporter.events.send(Event::Stuck(Box::new(failure.error.clone()))).await;
        Err(failure)
    }

    /// Names a process of this task. Every one has its own: a sweep for one must not hit its siblings.
    pub fn tag(&self, process: &str) -> String {
        format!("{}{process}", self.context.tags.of_attempt(&self.order.attempt))
    }

    /// A stop comes to its end whatever the processes do: after the guards the agent itself strikes, and then it says that
    /// this node cannot be used any more.
    async fn live_or_give_up(&mut self) -> Result<(), Cut> {
        let (control, tag, node) = (self.control.clone(), self.tag(""), self.context.node.clone());
        let events = self.reporter.events.clone();
        let left = tokio::select! {
            end = self.live() => return end,
            left = stop_overdue(control, tag) => left,
        };
        let failure = task_errors::not_killed(&node, &left);
        let _ = events.send(Event::Stuck(Box::new(failure.error.clone()))).await;
        Err(failure.into())
    }

    async fn live(&mut self) -> Result<(), Cut> {
        let (context, order, log) = self.parts();
        let volumes = Arc::clone(&self.cluster_volumes);
        let ground = spawn_blocking(move || prepare::lay_ground(&context, &order, &volumes, &log)).await;
        let mut ground = ground.map_err(|_| task_errors::agent_panicked(&self.context.node))??;
        self.held = self.hold();
        ground.confinement.processors = self.held.processors();
        self.show_gpus(&mut ground);
        // For the ranks that a launcher starts on this node too, whoever it was that asked for them.
        let ports = self.context.config.ports.map(|ports| ("CORRO_PORTS".to_owned(), ports.to_string()));
        ground.environment.variables.extend(ports);
        if self.order.counters {
            self.counters = Counters::start(&ground.logs, &self.context.node, self.tag(""));
        }
        container_start::enter(self, &mut ground).await?;
        prepare::add_compatibility(&self.context, &mut ground, &self.log)?;
        self.install_helper(&mut ground)?;
        if self.control.borrow().stop.is_some() {
            return Err(Cut::Stopped);
        }
        if self.order.preparation.is_some() {
            wheels::offer(self, &mut ground).await?;
            if ground.container.is_none() {
                // In a container of its own a job may install what it likes.
                python_env::make_environment(self, &mut ground).await?;
            }
        }
        // From here on somebody who logs in may stand beside the job, until its volumes go.
        let ground = Arc::new(ground);
        let stay = self.context.places.stay(&self.context.tags, &self.order, &ground);
        let end = self.act(&ground).await;
        stay.leave().await;
        end
    }

    /// Whatever runs of the job.
    async fn act(&mut self, ground: &Arc<Ground>) -> Result<(), Cut> {
        if let Some(line) = self.order.preparation.clone() {
            prepare::run_preparation(self, ground, &line).await?;
        }
        let mpirun = mpirun::find(self, ground).await?;
        self.meeting = self.open_meeting().await?;
        self.open_doors(ground).await?;
        let gang = match self.place_to_meet(mpirun.is_some()) {
            Some(gang) if self.control.borrow().alone => gang,
            gang => {
                self.log.line("Prepared: waiting for the other nodes");
                self.reporter.phase(TaskPhase::Prepared { gang: gang.clone() }).await;
                self.gang_is_ready(gang).await?
            }
        };
        if self.control.borrow().stop.is_some() {
            return Err(Cut::Stopped);
        }
        ranks::run(self, ground, &gang, mpirun.as_ref()).await
    }

    fn parts(&self) -> (Context, Arc<TaskOrder>, ExecutionLog) {
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

/// Resolves when a stop should have been over for long, with the processes that are left.
async fn stop_overdue(mut control: watch::Receiver<Control>, tag: String) -> Vec<u32> {
    let grace = stop_asked(&mut control, None).await;
    sleep(grace + GUARDS_WITHIN).await;
    tracing::warn!(tag, "a task did not end in time: everything that carries its name is killed");
    let swept = tag.clone();
    let _ = spawn_blocking(move || sweep(&swept)).await;
    sleep(SWEEP_WITHIN).await;
    spawn_blocking(move || processes_with_tag(&tag)).await.unwrap_or_default()
}

/// For what other nodes have started here, when the job is over on this one.
const REMOTE_GRACE: Duration = Duration::from_secs(1);
/// Guards give up after ten seconds.
const GUARDS_WITHIN: Duration = Duration::from_secs(12);
const SWEEP_WITHIN: Duration = Duration::from_secs(5);
