//! Size of an elastic job: changes of the running and of earlier attempts, and nodes that are being given back.

use corro_model::batchai::{BatchAiError, SizeChange};
use corro_model::{NodeId, Timestamp};
use serde::{Deserialize, Serialize};

/// Changes of size that a record keeps; the history has all.
pub(crate) const MAX_SIZE_CHANGES: usize = 200;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElasticRecord {
    /// Oldest first.
    pub changes: Vec<SizeChange>,
    /// Nodes of the running attempt that are being given back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub releasing: Vec<Release>,
    /// Nodes on which the running attempt failed before it could use them; it gets none of them again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<NodeId>,
}

/// Node that an elastic job gives back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    pub node: NodeId,
    /// Processes that are left then are stopped.
    pub by: Timestamp,
    pub reason: BatchAiError,
}

impl ElasticRecord {
    /// Last change of the size.
    pub fn resized(&self) -> Option<Timestamp> {
        self.changes.last().map(|change| change.time)
    }

    pub fn release_of(&self, node: &NodeId) -> Option<&Release> {
        self.releasing.iter().find(|release| release.node == *node)
    }

    pub(crate) fn add_change(&mut self, change: SizeChange) {
        if self.changes.len() >= MAX_SIZE_CHANGES {
            self.changes.remove(0);
        }
        self.changes.push(change);
    }
}
