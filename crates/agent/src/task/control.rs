//! Control of a running task by the driver, and the reasons for which a task aborts.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use corro_model::node::{ElasticWorld, GangAddress, TaskFailure};

/// Instructions for the task beyond preparing. Fields are only ever set, never cleared; `world` is replaced.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskControl {
    pub gang: Option<GangAddress>,
    /// This node is the whole gang and need not wait for an address.
    pub alone: bool,
    /// The server's last decisions about an elastic attempt.
    pub world: Option<Arc<ElasticWorld>>,
    /// Stop; processes have this much time between SIGTERM and SIGKILL.
    pub stop: Option<Duration>,
    /// The whole gang has ended, so the rendezvous is no longer needed.
    pub gang_ended: bool,
}

/// Why a task ends before its ranks have run to completion.
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

/// Resolves when a stop is requested with less grace than `under_way`. Cancel safe.
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
