//! Exponential backoff between starts of a node's agent. A node whose agent never joins is given up with an error that the cluster
//! shows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corro_model::NodeId;
use corro_model::batchai::BatchAiError;
use corro_model::state::NodeEvent;
use corro_store::{NodeRecord, State};

use super::nodes::waiting_for_agent;
use super::steps::Step;
use crate::provider::Provider;

/// Number of starts after which a node is given up.
const MAX_STARTS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct StartBackoff {
    started: HashMap<NodeId, (u32, Instant)>,
}

impl StartBackoff {
    /// Nodes without an agent whose pause is over.
    pub fn due(&mut self, state: &State) -> Vec<(NodeId, Arc<NodeRecord>)> {
        self.started.retain(|node, _| state.nodes.contains_key(node));
        let waiting = waiting_for_agent(state).filter(|(node, _)| match self.started.get(*node) {
            None => true,
            Some((n_starts, at)) => *n_starts < MAX_STARTS && at.elapsed() >= FIRST_PAUSE * 2u32.pow(n_starts - 1),
        });
        waiting.map(|(node, record)| (node.clone(), record.clone())).collect()
    }

    pub fn record_start(&mut self, node: &NodeId) {
        let n_starts = self.started.get(node).map_or(0, |(n_starts, _)| *n_starts);
        self.started.insert(node.clone(), (n_starts + 1, Instant::now()));
    }

    /// Steps that mark nodes broken whose agents were started [`MAX_STARTS`] times.
    pub fn give_up_steps(&self, state: &State, provider: &dyn Provider) -> Vec<Step> {
        let last_pause = FIRST_PAUSE * 2u32.pow(MAX_STARTS - 1);
        let exhausted = waiting_for_agent(state).filter(|(node, _)| {
            self.started.get(*node).is_some_and(|(n_starts, at)| *n_starts >= MAX_STARTS && at.elapsed() >= last_pause)
        });
        let give_up = |node: &NodeId| {
            let said = provider.provisioning_issue(node);
            let why = said.as_ref().map_or_else(String::new, |said| format!(": {said}"));
            let message = format!("The agent of node {node} was started {MAX_STARTS} times and never joined{why}");
            let hint = match said {
                Some(_) => "resize the cluster to 0 and back once the cause is fixed",
                None => {
                    "see agent.log in the node's directory below the server's data directory; resize the cluster to 0 and back once the cause is fixed"
                }
            };
            let error = BatchAiError::new("AgentNotStarted", message).with("Node", node.as_str()).with("Info", hint);
            Step::Node(node.clone(), NodeEvent::Broken { error, lost: false })
        };
        exhausted.map(|(node, _)| give_up(node)).collect()
    }
}
