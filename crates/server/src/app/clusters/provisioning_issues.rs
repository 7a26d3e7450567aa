//! Why nodes that are asked for are not there yet, in the words of whoever makes them. `reconcile` tells; clusters and
//! explanations of jobs show it. In memory only: it is asked anew all the time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use corro_model::batchai::BatchAiError;
use corro_model::{ClusterKey, NodeId};
use corro_store::{NodeRecord, State};

use crate::provider::Provider;

#[derive(Clone, Default)]
pub struct Missing {
    said: Arc<Mutex<BTreeMap<NodeId, String>>>,
}

impl Missing {
    /// All that `provider` has to say of the nodes that wait for an agent.
    pub fn tell<'a>(&self, waiting: impl Iterator<Item = (&'a NodeId, &'a Arc<NodeRecord>)>, provider: &dyn Provider) {
        let said = waiting.filter_map(|(node, _)| Some((node.clone(), provider.says(node)?))).collect();
        *self.lock() = said;
    }

    /// What is said of the nodes of a cluster, and of how many the same.
    pub fn of_cluster(&self, state: &State, cluster: &ClusterKey) -> Vec<BatchAiError> {
        let said = self.lock();
        let mut nodes: BTreeMap<&str, Vec<&NodeId>> = BTreeMap::new();
        for (node, _) in state.nodes_of(cluster) {
            if let Some(said) = said.get(node) {
                nodes.entry(said).or_default().push(node);
            }
        }
        let error = |(said, nodes): (&str, Vec<&NodeId>)| {
            let are = if nodes.len() == 1 { "node is" } else { "nodes are" };
            let message = format!("{} {are} not there yet: {said}", nodes.len());
            nodes
                .iter()
                .fold(BatchAiError::new("NodesMissing", message), |error, node| error.with("Node", node.as_str()))
        };
        nodes.into_iter().map(error).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, String>> {
        self.said.lock().expect("no one panics while holding what is said")
    }
}
