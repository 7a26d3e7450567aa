//! Reasons why requested nodes are not running yet, as the provider reports them. The reconciler updates them on every
//! full pass; cluster responses and job explanations show them. In memory only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use corro_model::batchai::BatchAiError;
use corro_model::{ClusterKey, NodeId};
use corro_store::{NodeRecord, State};

use crate::provider::Provider;

#[derive(Clone, Default)]
pub struct ProvisioningIssues {
    issues: Arc<Mutex<BTreeMap<NodeId, String>>>,
}

impl ProvisioningIssues {
    /// Replaces all issues by the provider's current ones for the nodes that wait for an agent.
    pub fn update<'a>(
        &self,
        waiting: impl Iterator<Item = (&'a NodeId, &'a Arc<NodeRecord>)>,
        provider: &dyn Provider,
    ) {
        let issues = waiting.filter_map(|(node, _)| Some((node.clone(), provider.provisioning_issue(node)?))).collect();
        *self.lock() = issues;
    }

    /// Errors for a cluster, one per distinct issue, with the affected nodes.
    pub fn cluster_errors(&self, state: &State, cluster: &ClusterKey) -> Vec<BatchAiError> {
        let issues = self.lock();
        let mut nodes: BTreeMap<&str, Vec<&NodeId>> = BTreeMap::new();
        for (node, _) in state.nodes_of(cluster) {
            if let Some(issue) = issues.get(node) {
                nodes.entry(issue).or_default().push(node);
            }
        }
        let error = |(issue, nodes): (&str, Vec<&NodeId>)| {
            let are = if nodes.len() == 1 { "node is" } else { "nodes are" };
            let message = format!("{} {are} not running yet: {issue}", nodes.len());
            nodes
                .iter()
                .fold(BatchAiError::new("NodesMissing", message), |error, node| error.with("Node", node.as_str()))
        };
        nodes.into_iter().map(error).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, String>> {
        self.issues.lock().expect("no one panics while holding the issues")
    }
}
