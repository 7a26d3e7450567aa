//! Nodes: list, and preempt on request. The reconciler acts on a preemption.

use corro_model::batchai::{NodeSummary, PreemptParameters, VmPriority};
use corro_model::rbac::Right;
use corro_model::state::{NodeState, Preemption, PreemptionCause};
use corro_model::{ApiError, JobKey, NodeId};
use corro_store::{NodeRecord, State};

use crate::app::App;
use crate::app::access::caller::scope_of_key;
use crate::app::resources::lookup::{find_cluster, group_name};

impl App {
    /// All nodes, ordered by id.
    pub fn nodes(&self) -> Vec<NodeSummary> {
        let snapshot = self.snapshot();
        let nodes = snapshot.nodes.iter().filter_map(|(id, node)| self.node_summary(&snapshot, id, node));
        let mut nodes: Vec<NodeSummary> = nodes.collect();
        nodes.sort_by(|one, other| one.node_id.as_str().cmp(other.node_id.as_str()));
        nodes
    }

    /// Preempts a node of a low-priority cluster. Its job gets SIGTERM, the grace period, and is queued again.
    pub async fn preempt_node(
        &self,
        (group, workspace, cluster): (String, String, String),
        node: String,
        body: PreemptParameters,
    ) -> Result<NodeSummary, ApiError> {
        let preemption = self.requested_preemption(&body)?;
        let app = self.clone();
        let commit = self.store.commit_relief(move |txn| {
            let (key, record) = find_cluster(txn.state(), &group, &workspace, &cluster)?;
            let missing = || {
                let message = format!("The cluster {cluster} has no node {node}: see 'corro node list'");
                ApiError::new(404, "NodeNotFound", message)
            };
            let id = NodeId::parse(&node).ok_or_else(missing)?;
            let found = txn.get::<NodeRecord>(&id).filter(|node| node.cluster == key).ok_or_else(missing)?;
            if record.spec.vm_priority != VmPriority::LowPriority {
                let message = format!(
                    "The node {node} belongs to the dedicated cluster {cluster}, whose nodes are not preempted: resize the cluster instead, or make it with --vm-priority lowpriority"
                );
                return Err(ApiError::conflict("NodeNotPreemptible", message));
            }
            if *found.state() == NodeState::Leaving {
                return Err(ApiError::conflict("NodeLeaves", format!("The node {node} is already leaving its cluster")));
            }
            // A second request changes nothing.
            txn.preempt(&id, preemption);
            let now = txn.get::<NodeRecord>(&id).ok_or_else(missing)?;
            app.node_summary(txn.state(), &id, &now).ok_or_else(missing)
        });
        commit.await
    }

    fn requested_preemption(&self, body: &PreemptParameters) -> Result<Preemption, ApiError> {
        let usual = self.config.scheduling.preemption(PreemptionCause::Asked, self.now());
        let Some(seconds) = body.grace_seconds else { return Ok(usual) };
        let most = PreemptParameters::MAX_GRACE_SECONDS;
        if !(0.0..=most).contains(&seconds) {
            let message = format!("the grace period is {seconds} s: use 0 to {most} s");
            return Err(ApiError::invalid("graceSeconds", message));
        }
        Ok(Preemption { grace_ms: (seconds * 1_000.0) as u64, ..usual })
    }

    fn node_summary(&self, state: &State, id: &NodeId, node: &NodeRecord) -> Option<NodeSummary> {
        let cluster = state.clusters.get(&node.cluster)?;
        let workspace = node.cluster.workspace();
        let job = match node.state() {
            NodeState::Running { job, .. } => self.readable_job_name(state, job),
            _ => None,
        };
        Some(NodeSummary {
            node_id: id.clone(),
            resource_group: group_name(state, &workspace.group()),
            workspace: state.workspaces.get(&workspace)?.name.clone(),
            cluster: cluster.name.clone(),
            cluster_id: self.cluster_id(state, &node.cluster, &cluster.name),
            vm_priority: cluster.spec.vm_priority,
            state: node.state().name().to_owned(),
            since: node.since(),
            job,
            preempted: node.preempted().copied(),
        })
    }

    /// Name of a job if the caller may read it: a cluster may run jobs of workspaces that the caller may not read.
    fn readable_job_name(&self, state: &State, key: &JobKey) -> Option<String> {
        let known = self.request.caller.may(Right::Read, &scope_of_key(key.as_str()));
        let job = state.jobs.get(key).filter(|_| known)?;
        let experiment = state.experiments.get(&key.experiment())?;
        Some(format!("{}/{}", experiment.name, job.name))
    }
}
