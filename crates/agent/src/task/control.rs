//! How the driver steers a running task, and how a task aborts: the desired gang and stop deadline, and the reasons for an early end.

use std::future::pending;
use std::time::Duration;

use tokio::sync::watch;

use corro_model::node::{GangAddress, TaskFailure};

/// What the task is to do beyond preparing. Only ever gains.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskControl {
    pub gang: Option<GangAddress>,
    /// This node is the whole gang: it need not wait for one.
    pub alone: bool,
    /// Stop, with this much time for a polite end.
    pub stop: Option<Duration>,
    /// The whole gang has ended: nobody needs the meeting point any more.
    pub gang_ended: bool,
}

/// Why a task ends before all its ranks have run to their end.
#[derive(Debug)]
pub enum TaskAbort {
    Stopped,
    Failed(Box<TaskFailure>),
}

impl From<TaskFailure> for TaskAbort {
    fn from(failure: TaskFailure) -> TaskAbort {
        TaskAbort::Failed(Box::new(failure))
    }
}

/// Resolves when a stop is wanted that is more urgent than the one under way. May be cancelled and called again.
pub async fn wait_for_stop(control: &mut watch::Receiver<TaskControl>, under_way: Option<Duration>) -> Duration {
    loop {
        if let Some(grace) = control.borrow_and_update().stop
            && under_way.is_none_or(|given| grace < given)
        {
            return grace;
        }
        if control.changed().await.is_err() {
            // The driver is gone, and this task is about to be aborted.
            pending::<()>().await;
        }
    }
}
