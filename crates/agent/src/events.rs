//! What can happen to a node: the one queue that the driver reads. Filled by the connection, by the running task and by
//! the cleaner. Never carries a decision.

use tokio::sync::mpsc;
use tokio::time::Instant;

use corro_model::AttemptId;
use corro_model::batchai::BatchAiError;
use corro_model::node::{DesiredNode, RankExit, TaskPhase};

#[derive(Debug)]
pub enum Event {
    /// The whole desired state, new or not.
    Desired(Box<DesiredNode>),
    /// The server no longer wants to hear of this node.
    Fenced(String),
    Phase(AttemptId, TaskPhase),
    Exited(AttemptId, RankExit),
    /// When the attempt may end, by the epochs that its processes print.
    ExpectedEnd(AttemptId, Instant),
    /// Processes of a task cannot be ended: this node must not be given another.
    Stuck(Box<BatchAiError>),
    /// The setup task has ended.
    SetUp(Result<(), Box<BatchAiError>>),
    /// Everything an attempt had on this node is removed.
    Cleaned(AttemptId),
}

/// Senders wait when the driver is behind; it never waits for them.
pub const QUEUE: usize = 64;

/// A task's voice.
#[derive(Clone, Debug)]
pub struct Reporter {
    pub attempt: AttemptId,
    pub events: mpsc::Sender<Event>,
}

impl Reporter {
    pub async fn phase(&self, phase: TaskPhase) {
        // The driver is gone only when the whole agent ends.
        let _ = self.events.send(Event::Phase(self.attempt.clone(), phase)).await;
    }

    pub async fn expected_end(&self, at: Instant) {
        let _ = self.events.send(Event::ExpectedEnd(self.attempt.clone(), at)).await;
    }

    pub async fn exited(&self, exit: RankExit) {
        let _ = self.events.send(Event::Exited(self.attempt.clone(), exit)).await;
    }
}
