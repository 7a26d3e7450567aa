//! The changes that a pass can decide, and their application inside one transaction. A step that no longer fits the state is
//! rejected by the state machines and skipped; the next pass decides again.

use corro_model::batchai::{AllocationState, BatchAiError, ProvisioningState};
use corro_model::state::{JobEvent, NodeEvent, NodeState, Preemption, Termination, TransitionError};
use corro_model::{ClusterKey, ExperimentKey, FileServerKey, GroupKey, JobKey, NodeId, Timestamp, WorkspaceKey};
use corro_sched::Target;
use corro_store::*;

use crate::app::access::caller::scope_of_key;
use crate::app::access::principals::revoke_roles_in_scope;
use crate::app::resources::operations::{is_goal_reached, is_goal_unreachable};
use crate::scheduler_view;

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Node(NodeId, NodeEvent),
    /// Record a node's address.
    SetAddress(NodeId, String),
    /// Assign an allocating node to a host, or to none: then any machine with a join token may take it.
    AssignHost(NodeId, Option<String>),
    RemoveHost(String),
    RemoveNode(NodeId),
    /// Place a job on these nodes, provided that the cluster still has the target size the plan was made for.
    Place(JobKey, Vec<NodeId>, Target),
    /// Give idle nodes to a running elastic job, provided that its cluster still has this target size.
    Grow(JobKey, Vec<NodeId>, Target, BatchAiError),
    /// Ask an elastic job to give nodes back by this time.
    Release(JobKey, Vec<NodeId>, Timestamp, BatchAiError),
    /// An elastic job goes on without this node. `true`: it does not get the node again.
    RemoveFromJob(JobKey, NodeId, BatchAiError, bool),
    /// Preempt a node.
    Preempt(NodeId, Preemption),
    /// Stop the attempt and requeue the job.
    Evict(JobKey, EvictionRecord),
    EndAttempt(JobKey, JobEvent),
    Requeue(JobKey, BatchAiError),
    /// Put a job whose attempt failed with this exit code and error back into the queue.
    Retry(JobKey, i32, BatchAiError),
    /// The job no longer waits for this one, which has succeeded.
    MeetDependency(JobKey, JobKey),
    Terminate(JobKey),
    Allocate(ClusterKey, usize, Target),
    Provisioned(ClusterKey),
    SetAllocationState(ClusterKey, AllocationState),
    RemoveJob(JobKey),
    RemoveExperiment(ExperimentKey),
    RemoveCluster(ClusterKey),
    FileServerProvisioned(FileServerKey),
    RemoveFileServer(FileServerKey),
    RemoveWorkspace(WorkspaceKey),
    RemoveAccount(String),
    RemoveGroup(GroupKey),
    ForgetOperation(String),
}

impl Step {
    /// Name of the step's kind, for traces.
    pub fn kind(&self) -> &'static str {
        match self {
            Step::Node(_, event) => event.name(),
            Step::SetAddress(..) => "address",
            Step::AssignHost(..) => "host",
            Step::RemoveHost(_) => "removeHost",
            Step::RemoveNode(_) => "removeNode",
            Step::Place(..) => "place",
            Step::Grow(..) => "grow",
            Step::Release(..) => "release",
            Step::RemoveFromJob(..) => "removeFromJob",
            Step::Preempt(..) => "preempt",
            Step::Evict(..) => "evict",
            Step::EndAttempt(..) => "endAttempt",
            Step::Requeue(..) => "requeue",
            Step::Retry(..) => "retry",
            Step::MeetDependency(..) => "meetDependency",
            Step::Terminate(_) => "terminate",
            Step::Allocate(..) => "allocate",
            Step::Provisioned(_) | Step::FileServerProvisioned(_) => "provisioned",
            Step::SetAllocationState(..) => "allocation",
            Step::RemoveJob(_) => "removeJob",
            Step::RemoveExperiment(_) => "removeExperiment",
            Step::RemoveCluster(_) => "removeCluster",
            Step::RemoveFileServer(_) => "removeFileServer",
            Step::RemoveWorkspace(_) => "removeWorkspace",
            Step::RemoveAccount(_) => "removeAccount",
            Step::RemoveGroup(_) => "removeGroup",
            Step::ForgetOperation(_) => "forgetOperation",
        }
    }
}

impl Step {
    /// Whether the step starts new work, which is postponed while the disk is full.
    pub fn starts_work(&self) -> bool {
        matches!(self, Step::Place(..) | Step::Grow(..) | Step::Allocate(..))
    }
}

pub fn apply(txn: &mut Txn, steps: Vec<Step>, now: Timestamp) {
    for step in steps {
        // Formatted only when debug logging is on: steps can be large.
        let debug_text = tracing::enabled!(tracing::Level::DEBUG).then(|| format!("{step:?}"));
        if let Err(refused) = apply_step(txn, step, now) {
            tracing::debug!(step = debug_text, %refused, "a step no longer applies to the current state; the next pass decides again");
        }
    }
    finish_operations(txn, now);
}

/// Ends long-running operations whose goal is reached. In the same commit as the change: a resource of the same name may be created
/// right afterwards.
fn finish_operations(txn: &mut Txn, now: Timestamp) {
    let reached = txn.state().open_operations().filter(|(_, operation)| is_goal_reached(txn.state(), &operation.goal));
    let reached = reached.map(|(id, operation)| (id.clone(), is_goal_unreachable(txn.state(), &operation.goal)));
    for (id, undone) in reached.collect::<Vec<_>>() {
        txn.update::<OperationRecord>(&id, |operation| (operation.ended, operation.undone) = (Some(now), undone));
    }
}

fn apply_step(txn: &mut Txn, step: Step, now: Timestamp) -> Result<(), TransitionError> {
    match step {
        Step::Node(id, event) => {
            tracing::info!(node = %id, event = event.name(), "node");
            txn.node_event(&id, event, now)?;
        }
        Step::SetAddress(id, address) => {
            tracing::info!(node = %id, address, "node address is recorded");
            txn.update::<NodeRecord>(&id, |node| node.address = address);
        }
        Step::AssignHost(id, host) => {
            let state = txn.get::<NodeRecord>(&id).map_or("gone", |node| node.state().name());
            if state != NodeState::Allocating.name() {
                return Err(TransitionError { thing: "node", state, event: "carried" });
            }
            tracing::info!(node = %id, host, "node is placed on a host");
            txn.update::<NodeRecord>(&id, |node| node.host = host);
        }
        Step::RemoveHost(key) => {
            tracing::info!(host = key, "host is removed");
            txn.remove::<HostRecord>(&key);
        }
        Step::RemoveNode(id) => {
            tracing::info!(node = %id, "node is gone");
            txn.remove::<NodeRecord>(&id);
        }
        Step::Place(job, nodes, target) => place(txn, &job, nodes, target, now)?,
        Step::Grow(job, nodes, target, reason) => {
            check_target(txn, &job, target, "grown")?;
            tracing::info!(%job, nodes = nodes.len(), reason = reason.message, "elastic job grows");
            txn.grow(&job, nodes, reason, now)?;
        }
        Step::Release(job, nodes, by, reason) => {
            tracing::info!(%job, nodes = nodes.len(), reason = reason.message, "elastic job gives nodes back");
            txn.release(&job, &nodes, by, &reason)?;
        }
        Step::RemoveFromJob(job, node, reason, refused) => {
            tracing::info!(%job, %node, reason = reason.message, "elastic job goes on without a node");
            txn.remove_node(&job, &node, reason, refused, now)?;
        }
        Step::Preempt(node, preemption) => {
            tracing::info!(%node, cause = ?preemption.cause, "a node is preempted");
            txn.preempt(&node, preemption);
        }
        Step::Evict(job, evicted) => {
            tracing::info!(%job, reason = evicted.reason.message, "job is evicted");
            let still = txn.get::<JobRecord>(&job).is_some_and(|job| job.attempts == evicted.attempt);
            if still {
                txn.update::<JobRecord>(&job, |job| job.evicted = Some(evicted));
            }
        }
        Step::EndAttempt(job, event) => {
            tracing::info!(%job, event = event.name(), "job");
            txn.end_attempt(&job, event, now)?;
        }
        Step::Requeue(job, reason) => {
            tracing::info!(%job, reason = reason.message, "job goes back to the queue");
            txn.requeue(&job, reason, now)?;
        }
        Step::Retry(job, exit_code, reason) => {
            tracing::info!(%job, code = reason.code, exit_code, "an attempt failed; job goes back to the queue");
            txn.retry(&job, exit_code, reason, now)?;
        }
        Step::MeetDependency(job, dependency) => {
            tracing::info!(%job, %dependency, "dependency is met");
            txn.meet_dependency(&job, &dependency)?;
        }
        Step::Terminate(job) => {
            let event = JobEvent::TerminateRequested { cause: termination_cause(txn, &job), at: now };
            txn.job_event(&job, event, now)?;
        }
        Step::Allocate(cluster, count, target) => allocate(txn, &cluster, count, target, now),
        Step::Provisioned(key) => {
            txn.update::<ClusterRecord>(&key, |c| c.provisioning.set_state(ProvisioningState::Succeeded, now));
        }
        Step::SetAllocationState(key, allocation) => {
            txn.update::<ClusterRecord>(&key, |c| {
                c.allocation = allocation;
                c.allocation_since = now;
            });
        }
        Step::RemoveJob(key) => txn.remove::<JobRecord>(&key),
        Step::RemoveExperiment(key) => txn.remove::<ExperimentRecord>(&key),
        Step::RemoveCluster(key) => txn.remove::<ClusterRecord>(&key),
        Step::FileServerProvisioned(key) => {
            txn.update::<FileServerRecord>(&key, |f| {
                let next = match f.provisioning.provisioning_state {
                    ProvisioningState::Creating => ProvisioningState::Updating,
                    ProvisioningState::Updating => ProvisioningState::Succeeded,
                    other => other,
                };
                f.provisioning.set_state(next, now);
            });
        }
        Step::RemoveFileServer(key) => txn.remove::<FileServerRecord>(&key),
        Step::RemoveWorkspace(key) => {
            txn.remove::<WorkspaceRecord>(&key);
            revoke_roles_in_scope(txn, &scope_of_key(key.as_str()));
        }
        Step::RemoveAccount(name) => txn.remove::<AccountRecord>(&name),
        Step::RemoveGroup(key) => {
            txn.remove::<GroupRecord>(&key);
            revoke_roles_in_scope(txn, &scope_of_key(key.as_str()));
        }
        Step::ForgetOperation(id) => txn.remove::<OperationRecord>(&id),
    }
    Ok(())
}

/// Cause of a termination by the planner: the cluster was deleted or resized.
fn termination_cause(txn: &Txn, job: &JobKey) -> Termination {
    let cluster = txn.get::<JobRecord>(job).and_then(|job| txn.get::<ClusterRecord>(&job.cluster));
    match cluster.is_none_or(|cluster| cluster.provisioning.is_deleting()) {
        true => Termination::ClusterDeleted,
        false => Termination::ClusterResized,
    }
}

/// Places a job on all nodes or none: every node is checked to be idle first.
fn place(
    txn: &mut Txn,
    job: &JobKey,
    nodes: Vec<NodeId>,
    target: Target,
    now: Timestamp,
) -> Result<(), TransitionError> {
    check_target(txn, job, target, "placed")?;
    for id in &nodes {
        let state = txn.get::<NodeRecord>(id).map_or("gone", |node| node.state().name());
        if state != NodeState::Idle.name() {
            return Err(TransitionError { thing: "node", state, event: "assigned" });
        }
    }
    tracing::info!(%job, nodes = nodes.len(), "job is placed");
    txn.place(job, nodes, now)
}

/// Refuses a step that was planned for another target size of the job's cluster.
fn check_target(txn: &Txn, job: &JobKey, target: Target, event: &'static str) -> Result<(), TransitionError> {
    let cluster = txn.get::<JobRecord>(job).and_then(|job| txn.get::<ClusterRecord>(&job.cluster));
    match cluster.is_none_or(|cluster| scheduler_view::target(&cluster) != target) {
        true => Err(TransitionError { thing: "cluster", state: "resized", event }),
        false => Ok(()),
    }
}

fn allocate(txn: &mut Txn, key: &ClusterKey, count: usize, target: Target, now: Timestamp) {
    let Some(cluster) = txn.get::<ClusterRecord>(key).filter(|cluster| scheduler_view::target(cluster) == target)
    else {
        return;
    };
    let addresses = free_addresses(txn.state(), count);
    for (offset, address) in (0..count as u32).zip(addresses) {
        let index = cluster.next_index + offset;
        let id = NodeId::new(cluster.pool, index, now);
        txn.put(id, NodeRecord::allocating(key.clone(), index, address, now));
    }
    txn.update::<ClusterRecord>(key, |c| c.next_index += count as u32);
}

/// Unused loopback addresses for local nodes, from 127.0.0.4 on, as the service's began at 10.0.0.4. Machines that join report their
/// own address.
fn free_addresses(state: &State, count: usize) -> Vec<String> {
    let used: std::collections::HashSet<&str> = state.nodes.values().map(|node| node.address.as_str()).collect();
    let candidates = (4u32..65_000).map(|n| format!("127.0.{}.{}", n / 256, n % 256));
    let free = candidates.filter(|address| !address.ends_with(".0") && !used.contains(address.as_str()));
    free.chain(std::iter::repeat("127.0.0.1".to_owned())).take(count).collect()
}
