//! Events that the driver reads from one queue. Sent by the connection, the running task, the setup task and the
//! cleaner. An event reports a fact and never carries a decision.

use tokio::sync::mpsc;
use tokio::time::Instant;

use corro_model::AttemptId;
use corro_model::batchai::BatchAiError;
use corro_model::node::{DesiredNode, ObservedElastic, RankExit, TaskPhase};

/// One fact about the node or its task.
#[derive(Debug)]
pub enum Event {
    /// The complete desired state, changed or not.
    Desired(Box<DesiredNode>),
    /// The server declared this node lost; the text is its reason.
    Fenced(String),
    Phase(AttemptId, TaskPhase),
    Exited(AttemptId, RankExit),
    /// The processes of an elastic attempt on this node.
    Elastic(AttemptId, Box<ObservedElastic>),
    /// Estimated end of the attempt, from the epochs that its processes print.
    ExpectedEnd(AttemptId, Instant),
    /// Processes or a container of a task cannot be ended. This node must get no further task.
    Stuck(Box<BatchAiError>),
    /// The setup task has ended.
    SetUp(Result<(), Box<BatchAiError>>),
    /// Everything that an attempt had on this node has been removed.
    Cleaned(AttemptId),
}

/// Capacity of the event queue. Senders wait when it is full; the driver never waits for them.
pub const QUEUE_CAPACITY: usize = 64;

/// Sends a task's events to the driver.
#[derive(Clone, Debug)]
pub struct Reporter {
    pub attempt: AttemptId,
    pub events: mpsc::Sender<Event>,
}

impl Reporter {
    pub async fn phase(&self, phase: TaskPhase) {
        // Fails only when the driver is gone, which is when the whole agent ends.
        let _ = self.events.send(Event::Phase(self.attempt.clone(), phase)).await;
    }

    pub async fn expected_end(&self, at: Instant) {
        let _ = self.events.send(Event::ExpectedEnd(self.attempt.clone(), at)).await;
    }

    pub async fn elastic(&self, observed: ObservedElastic) {
        let _ = self.events.send(Event::Elastic(self.attempt.clone(), Box::new(observed))).await;
    }

    pub async fn exited(&self, exit: RankExit) {
        let _ = self.events.send(Event::Exited(self.attempt.clone(), exit)).await;
    }
}
