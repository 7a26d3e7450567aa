//! Decides what a node does next, from what the server wants and what is here. Called by the driver after every event,
//! until it says nothing; the driver acts. Pure: never reads a clock, a disk or a process.

use std::time::Duration;

use corro_model::AttemptId;
use corro_model::batchai::BatchAiError;
use corro_model::node::{
    DesiredNode, DesiredTask, GangAddress, Goal, Login, LoginDoor, ObservedNode, ObservedTask, SetupOrder, TaskOrder,
    TaskPhase, Volume,
};

use crate::node::setup::SetupProgress;

/// What is on this node now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalNode {
    /// The cluster volumes as they were last mounted or tried.
    pub volumes: Option<Vec<Volume>>,
    /// Why they could not be mounted.
    pub problem: Option<BatchAiError>,
    pub setup: SetupProgress,
    /// Something runs here that cannot be ended.
    pub stuck: Option<BatchAiError>,
    /// Who may log in, as it was last done or tried.
    pub login: Option<Login>,
    /// Where, if the door could be opened.
    pub ssh_endpoint: Option<LoginDoor>,
    pub task: Option<LocalTask>,
    /// The last attempt that ended here and was cleaned up: it must never begin again.
    pub last_cleaned: Option<AttemptId>,
    /// The agent was told to end.
    pub ending: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LocalTask {
    pub observed: ObservedTask,
    /// The ranks have been told to start as soon as the node is prepared.
    pub gang_given: bool,
    /// With how much grace it has been told to stop.
    pub stopping: Option<Duration>,
    /// What it left is being removed.
    pub cleaning: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Action<'a> {
    MountVolumes(&'a [Volume]),
    /// Run the cluster's setup task.
    SetUp(&'a SetupOrder),
    /// Open the login door for this administrator, or close it.
    SetLogin(Option<&'a Login>),
    /// Start preparing.
    Begin(&'a TaskOrder),
    /// Report the task as ended without starting anything.
    Decline(&'a TaskOrder, DeclineReason),
    Run(&'a GangAddress),
    /// Start the ranks as soon as the node is prepared, wherever it says they meet.
    RunAlone,
    Stop(Duration),
    /// Remove what an ended task left.
    Clean,
    Retire,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclineReason {
    /// It is to be stopped before it began.
    Stopped,
    /// It is to run, but whoever prepared it is gone.
    Restarted,
    /// The cluster's volumes are not there, or its setup task failed.
    NotReady,
}

/// For a task that is no longer wanted at all.
pub const UNWANTED_GRACE: Duration = Duration::from_secs(1);

/// The next thing to do; `None` when there is nothing but to wait. The same question gets the same answer, so a desired
/// state that comes twice changes nothing.
pub fn next_action<'a>(desired: &'a DesiredNode, local: &LocalNode) -> Option<Action<'a>> {
    let wanted = desired.task.as_ref().filter(|_| !desired.retire);
    if !desired.retire && desired.login != local.login {
        return Some(Action::SetLogin(desired.login.as_ref()));
    }
    if let Some(task) = &local.task {
        return match wanted {
            Some(wanted) if wanted.order.attempt == task.observed.attempt => {
                remount(desired, local).or_else(|| steer(&wanted.goal, task))
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
        // Jobs wait for it, unless they are not to run anyway.
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
        // Ranks start only on nodes that said they are prepared, which this agent never did.
        Goal::Run { .. } => Action::Decline(&wanted.order, DeclineReason::Restarted),
        Goal::Prepare | Goal::PrepareAndRun if local.last_cleaned.as_ref() == Some(&wanted.order.attempt) => {
            Action::Decline(&wanted.order, DeclineReason::Restarted)
        }
        Goal::Prepare | Goal::PrepareAndRun if local.problem().is_some() => {
            Action::Decline(&wanted.order, DeclineReason::NotReady)
        }
        Goal::Prepare | Goal::PrepareAndRun => Action::Begin(&wanted.order),
    }
}

fn steer<'a>(goal: &'a Goal, task: &LocalTask) -> Option<Action<'a>> {
    if task.has_ended() {
        return None;
    }
    match goal {
        Goal::Prepare => None,
        Goal::Run { gang } => (!task.gang_given && task.stopping.is_none()).then_some(Action::Run(gang)),
        Goal::PrepareAndRun => (!task.gang_given && task.stopping.is_none()).then_some(Action::RunAlone),
        Goal::Stop { grace_ms } => stop(task, Duration::from_millis(*grace_ms)),
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

/// Did a task that was told to stop end because of that? Nothing else then says why the job failed. Without an end of a rank
/// there was none to run, or it never came to that.
pub fn ended_by_stop(task: &ObservedTask) -> bool {
    let ended = task.phase == TaskPhase::Ended { failure: None };
    ended && (task.exits.is_empty() || task.exits.iter().any(|exit| exit.stopped))
}

impl LocalTask {
    pub fn new(observed: ObservedTask) -> LocalTask {
        LocalTask { observed, gang_given: false, stopping: None, cleaning: false }
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.observed.phase, TaskPhase::Ended { .. })
    }
}

impl LocalNode {
    /// Why this node can take no task, and never will.
    pub fn problem(&self) -> Option<&BatchAiError> {
        self.problem.as_ref().or(self.stuck.as_ref()).or(match &self.setup {
            SetupProgress::Failed(error) => Some(error),
            _ => None,
        })
    }

    /// What the server is told, which wants a setup task or not. A task counts until nothing of it is left.
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
            retired: false,
            ending: self.ending,
        }
    }
}

#[cfg(test)]
#[path = "reconcile_tests.rs"]
mod tests;
