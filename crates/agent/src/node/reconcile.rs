//! Decides the node's next action from the desired and the local state. The driver calls it after every event until
//! there is no action, and executes the actions. Pure: never reads a clock, a disk or a process.

use std::sync::Arc;
use std::time::Duration;

use corro_model::AttemptId;
use corro_model::batchai::BatchAiError;
use corro_model::node::{
    DesiredNode, DesiredTask, ElasticWorld, GangAddress, Goal, Login, ObservedNode, ObservedTask, SetupOrder,
    SshEndpoint, TaskOrder, TaskPhase, Volume,
};

use crate::node::setup::SetupProgress;

/// State of this node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalNode {
    /// The cluster's volumes as last mounted or attempted.
    pub volumes: Option<Vec<Volume>>,
    /// Why they could not be mounted.
    pub problem: Option<BatchAiError>,
    pub setup: SetupProgress,
    /// Processes or a container here cannot be ended.
    pub stuck: Option<BatchAiError>,
    /// The login as last applied or attempted.
    pub login: Option<Login>,
    /// Endpoint of the SSH server, if it is running.
    pub ssh_endpoint: Option<SshEndpoint>,
    pub task: Option<LocalTask>,
    /// The last attempt that ended here and was cleaned up. It must never begin again.
    pub last_cleaned: Option<AttemptId>,
    /// The agent is shutting down.
    pub ending: bool,
}

/// The task on this node, and the instructions that it has received.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalTask {
    pub observed: ObservedTask,
    /// The ranks have been ordered to start as soon as the node is prepared.
    pub gang_given: bool,
    /// The decisions about an elastic attempt that were passed on.
    pub world: Option<Arc<ElasticWorld>>,
    /// Grace of the stop that was requested.
    pub stopping: Option<Duration>,
    /// Its leftovers are being removed.
    pub cleaning: bool,
}

/// An action for the driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Action<'a> {
    MountVolumes(&'a [Volume]),
    /// Run the cluster's setup task.
    SetUp(&'a SetupOrder),
    /// Start the SSH server for this login, or stop it.
    SetLogin(Option<&'a Login>),
    /// Start preparing.
    Begin(&'a TaskOrder),
    /// Report the task as ended without starting anything.
    Decline(&'a TaskOrder, DeclineReason),
    Run(&'a GangAddress),
    /// Start the ranks as soon as the node is prepared, with the node's own rendezvous.
    RunAlone,
    /// Run the processes of an elastic attempt by these decisions.
    UpdateWorld(&'a Arc<ElasticWorld>),
    Stop(Duration),
    /// Remove the leftovers of an ended task.
    Clean,
    Retire,
}

/// Why a task ends without being started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclineReason {
    /// It was stopped before it began.
    Stopped,
    /// It should run, but the agent that prepared it is gone.
    Restarted,
    /// The cluster's volumes are not mounted, or its setup task failed.
    NotReady,
}

/// Grace for a task that is no longer wanted at all.
pub const UNWANTED_GRACE: Duration = Duration::from_secs(1);

/// The next action; `None` if there is nothing to do but wait. Deterministic, so a repeated desired state changes
/// nothing.
pub fn next_action<'a>(desired: &'a DesiredNode, local: &LocalNode) -> Option<Action<'a>> {
    let wanted = desired.task.as_ref().filter(|_| !desired.retire);
    if !desired.retire && desired.login != local.login {
        return Some(Action::SetLogin(desired.login.as_ref()));
    }
    if let Some(task) = &local.task {
        return match wanted {
            Some(wanted) if wanted.order.attempt == task.observed.attempt => {
                remount(desired, local).or_else(|| steer(wanted, task))
            }
            _ => remove_unwanted(task),
        };
    }
    if desired.retire {
        return Some(Action::Retire);
    }
    if let Some(action) = remount(desired, local) {
        return Some(action);
    }
    match (&desired.setup, &local.setup) {
        (Some(setup), SetupProgress::NotBegun) if local.problem.is_none() => return Some(Action::SetUp(setup)),
        // Jobs wait for the setup task, unless they are to be stopped anyway.
        (Some(_), SetupProgress::Running) => {
            let stopped = wanted.filter(|wanted| matches!(wanted.goal, Goal::Stop { .. }));
            return stopped.map(|wanted| begin(wanted, local));
        }
        _ => {}
    }
    wanted.map(|wanted| begin(wanted, local))
}

fn remount<'a>(desired: &'a DesiredNode, local: &LocalNode) -> Option<Action<'a>> {
    (local.volumes.as_ref() != Some(&desired.volumes)).then_some(Action::MountVolumes(&desired.volumes))
}

fn begin<'a>(wanted: &'a DesiredTask, local: &LocalNode) -> Action<'a> {
    match wanted.goal {
        Goal::Stop { .. } => Action::Decline(&wanted.order, DeclineReason::Stopped),
        // Ranks start only on nodes that reported to be prepared, which this agent did not.
        Goal::Run { .. } => Action::Decline(&wanted.order, DeclineReason::Restarted),
        // Nothing is left of an earlier part in the same attempt: a node may leave an elastic job and come back.
        Goal::Elastic { .. } if local.problem().is_some() => Action::Decline(&wanted.order, DeclineReason::NotReady),
        Goal::Elastic { .. } => Action::Begin(&wanted.order),
        Goal::Prepare | Goal::PrepareAndRun if local.last_cleaned.as_ref() == Some(&wanted.order.attempt) => {
            Action::Decline(&wanted.order, DeclineReason::Restarted)
        }
        Goal::Prepare | Goal::PrepareAndRun if local.problem().is_some() => {
            Action::Decline(&wanted.order, DeclineReason::NotReady)
        }
        Goal::Prepare | Goal::PrepareAndRun => Action::Begin(&wanted.order),
    }
}

fn steer<'a>(wanted: &'a DesiredTask, task: &LocalTask) -> Option<Action<'a>> {
    if task.has_ended() {
        return None;
    }
    match &wanted.goal {
        Goal::Prepare => None,
        Goal::Run { gang } => (!task.gang_given && task.stopping.is_none()).then_some(Action::Run(gang)),
        Goal::PrepareAndRun => (!task.gang_given && task.stopping.is_none()).then_some(Action::RunAlone),
        Goal::Stop { grace_ms } => stop(task, Duration::from_millis(*grace_ms)),
        Goal::Elastic { world } => {
            let own = wanted.order.hosts.get(wanted.order.host_idx).map(|host| &host.node);
            let leaving = world.leaving.iter().find(|leaving| Some(&leaving.node) == own);
            let grace = leaving.map(|leaving| Duration::from_millis(leaving.grace_ms));
            let is_new = task.world.as_ref() != Some(world) && task.stopping.is_none();
            grace.and_then(|grace| stop(task, grace)).or_else(|| is_new.then_some(Action::UpdateWorld(world)))
        }
    }
}

fn remove_unwanted<'a>(task: &LocalTask) -> Option<Action<'a>> {
    match (task.cleaning, task.has_ended()) {
        (true, _) => None,
        (false, true) => Some(Action::Clean),
        (false, false) => stop(task, UNWANTED_GRACE),
    }
}

fn stop<'a>(task: &LocalTask, grace: Duration) -> Option<Action<'a>> {
    task.stopping.is_none_or(|given| grace < given).then_some(Action::Stop(grace))
}

/// Whether a task that was ordered to stop ended because of it, so that nothing else explains the job's failure. Without
/// rank exits there was no rank to run, or none was started.
pub fn ended_by_stop(task: &ObservedTask) -> bool {
    let ended = task.phase == TaskPhase::Ended { failure: None };
    ended && (task.exits.is_empty() || task.exits.iter().any(|exit| exit.stopped))
}

impl LocalTask {
    pub fn new(observed: ObservedTask) -> LocalTask {
        LocalTask { observed, gang_given: false, world: None, stopping: None, cleaning: false }
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.observed.phase, TaskPhase::Ended { .. })
    }
}

impl LocalNode {
    /// Why this node can take no tasks, permanently.
    pub fn problem(&self) -> Option<&BatchAiError> {
        self.problem.as_ref().or(self.stuck.as_ref()).or(match &self.setup {
            SetupProgress::Failed(error) => Some(error),
            _ => None,
        })
    }

    /// The report for the server. A task is included until nothing of it is left.
    pub fn observed(&self, wants_setup: bool) -> ObservedNode {
        let set_up = !wants_setup || self.setup == SetupProgress::Done;
        ObservedNode {
            ready: self.volumes.is_some() && self.problem().is_none() && set_up,
            problem: self.problem().cloned(),
            address: None,
            login: self.ssh_endpoint.clone(),
            task: self.task.as_ref().map(|task| task.observed.clone()),
            task_run_ms: None,
            task_remaining_ms: None,
            tunnels: true,
            retired: false,
            ending: self.ending,
        }
    }
}

#[cfg(test)]
#[path = "reconcile_tests.rs"]
mod tests;
