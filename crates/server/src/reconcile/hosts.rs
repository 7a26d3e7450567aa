//! Assigns nodes to hosts: each allocating node goes to a host that is heard, not cordoned and has capacity for its VM size. Also
//! removes nodes from hosts that are drained or removed. Pure.

use std::collections::BTreeMap;

use corro_model::batchai::VmPriority;
use corro_model::host::Capacity;
use corro_model::state::{NodeState, PreemptionCause};
use corro_model::{JobKey, NodeId, Timestamp};
use corro_store::{Drain, HostRecord, JobRecord, NodeRecord, State};

use super::steps::Step;
use crate::app::hosts::capacity::{free_capacity, node_demand, nodes_on_host};
use crate::scheduler_view::SchedulingConfig;

pub fn decide(state: &State, is_heard: impl Fn(&str) -> bool, rules: &SchedulingConfig, now: Timestamp) -> Vec<Step> {
    let mut steps = Vec::new();
    if state.hosts.is_empty() {
        return steps;
    }
    let accepts_nodes = |key: &str, host: &HostRecord| !host.cordoned && is_heard(key);
    let mut waiting: Vec<(&NodeId, &NodeRecord)> = Vec::new();
    for (id, node) in state.nodes.iter().filter(|(_, node)| *node.state() == NodeState::Allocating) {
        match node.host.as_ref().map(|key| state.hosts.get(key).is_some_and(|host| accepts_nodes(key, host))) {
            Some(true) => {}
            // The next pass chooses another host.
            Some(false) => steps.push(Step::AssignHost(id.clone(), None)),
            None => waiting.push((id, node)),
        }
    }
    for (key, host) in &state.hosts {
        steps.extend(drain_steps(state, key, host, rules, now));
        if host.removing && nodes_on_host(state, key).next().is_none() {
            steps.push(Step::RemoveHost(key.clone()));
        }
    }
    if waiting.is_empty() {
        return steps;
    }
    let available = state.hosts.iter().filter(|(key, host)| accepts_nodes(key, host));
    let mut free_capacity: BTreeMap<&str, Capacity> =
        available.map(|(key, host)| (key.as_str(), free_capacity(state, key, host))).collect();
    waiting.sort_by_key(|(_, node)| (is_low_priority(state, node), node.allocated, node.index));
    for (id, node) in waiting {
        let Some(need) = node_demand(state, node) else { continue };
        if let Some(host) = choose(&free_capacity, &need) {
            free_capacity.entry(host).and_modify(|free| *free = free.less(&need));
            steps.push(Step::AssignHost(id.clone(), Some(host.to_owned())));
        }
    }
    steps
}

/// Best fit: the host with the least free capacity, so that large hosts stay free for large nodes and GPUs for nodes that need them.
fn choose<'a>(free_capacity: &BTreeMap<&'a str, Capacity>, need: &Capacity) -> Option<&'a str> {
    let fitting = free_capacity.iter().filter(|(_, free)| free.holds(need));
    fitting.min_by_key(|(_, free)| (free.gpus, free.cores, free.memory_bytes)).map(|(host, _)| *host)
}

/// Preempts the nodes of a drained host: idle ones at once, busy ones when their jobs have ended, or now if so requested. Elastic
/// jobs go on without the nodes above their minimum, so those need not wait.
fn drain_steps(state: &State, key: &str, host: &HostRecord, rules: &SchedulingConfig, now: Timestamp) -> Vec<Step> {
    let Some(drain) = host.draining else { return Vec::new() };
    let mut surplus: BTreeMap<&JobKey, usize> = BTreeMap::new();
    let mut must_leave = |node: &NodeRecord| match node.state() {
        NodeState::Allocating | NodeState::Leaving => false,
        NodeState::Running { .. } if drain == Drain::Now => true,
        NodeState::Running { job, .. } => {
            let Some((key, record)) = state.jobs.get_key_value(job) else { return false };
            let left = surplus.entry(key).or_insert_with(|| surplus_nodes(state, record));
            let may_go = *left > 0;
            *left = left.saturating_sub(1);
            may_go
        }
        NodeState::Preparing | NodeState::Idle | NodeState::Unusable { .. } => true,
    };
    let taken_back = rules.preemption(PreemptionCause::Drained, now);
    let nodes = nodes_on_host(state, key).filter(|(_, node)| node.preempted().is_none() && must_leave(node));
    nodes.map(|(id, _)| Step::Preempt(id.clone(), taken_back)).collect()
}

/// Nodes that an elastic job can give up at once; none of a job of a fixed size.
fn surplus_nodes(state: &State, job: &JobRecord) -> usize {
    let Some(elastic) = job.spec.elastic else { return 0 };
    let is_kept = |id: &&NodeId| {
        let is_released = job.elastic().is_some_and(|elastic| elastic.release_of(id).is_some());
        !is_released && state.nodes.get(*id).is_some_and(|node| node.preempted().is_none())
    };
    let kept = job.state().nodes().iter().filter(is_kept).count();
    kept.saturating_sub(elastic.min_node_count.max(1) as usize)
}

fn is_low_priority(state: &State, node: &NodeRecord) -> bool {
    let cluster = state.clusters.get(&node.cluster);
    cluster.is_some_and(|cluster| cluster.spec.vm_priority == VmPriority::LowPriority)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use corro_model::host::Inventory;
    use corro_model::state::NodeEvent;

    use super::*;
    use crate::app::hosts::capacity::is_schedulable;
    use crate::testing::*;

    /// Adds a host. Nodes of the test state are Standard_D1: one core and 4 GiB.
    fn host(state: &mut State, name: &str, cores: u32) {
        let inventory = Inventory { cores, memory_bytes: 64 << 30, ..Inventory::default() };
        let record = HostRecord {
            name: name.to_owned(),
            credential_digest: String::new(),
            joined: NOW,
            token: String::new(),
            inventory,
            heard: NOW,
            cordoned: false,
            draining: None,
            removing: false,
        };
        state.put(name.to_owned(), Arc::new(record));
    }

    fn wait(state: &mut State, index: u32) {
        change(state, |txn| {
            txn.put(node_id(index), NodeRecord::allocating(cluster_key(), index, String::new(), NOW));
        });
    }

    fn decided(state: &State) -> Vec<Step> {
        decide(state, |_| true, &SchedulingConfig::DEFAULT, NOW)
    }

    fn on(index: u32, host: &str) -> Step {
        Step::AssignHost(node_id(index), Some(host.to_owned()))
    }

    #[test]
    fn nodes_go_to_the_fullest_host_that_fits() {
        let mut state = state(manual(4), 0);
        host(&mut state, "large", 8);
        host(&mut state, "small", 2);
        (1..=4).for_each(|index| wait(&mut state, index));
        assert_eq!(decided(&state), [on(1, "small"), on(2, "small"), on(3, "large"), on(4, "large")]);
        let silent = decide(&state, |host| host != "large", &SchedulingConfig::DEFAULT, NOW);
        assert_eq!(silent, [on(1, "small"), on(2, "small")], "a silent host gets no nodes");
        change(&mut state, |txn| {
            txn.update::<NodeRecord>(&node_id(1), |node| node.host = Some("small".to_owned()));
            txn.update::<HostRecord>(&"small".to_owned(), |host| host.cordoned = true);
        });
        let again = [Step::AssignHost(node_id(1), None), on(2, "large"), on(3, "large"), on(4, "large")];
        assert_eq!(decided(&state), again, "a cordoned host loses nodes that have not joined");
    }

    #[test]
    fn a_drained_host_takes_the_nodes_above_the_minimum_of_an_elastic_job_at_once() {
        let mut state = state(manual(3), 3);
        host(&mut state, "h", 8);
        let spec = serde_json::json!({
            "nodeCount": 3, "elastic": {"minNodeCount": 1, "maxNodeCount": 3},
            "horovodSettings": {"pythonScriptFilePath": "a.py"}
        });
        submit_spec(&mut state, "a", spec, &[]);
        start(&mut state, "a", &[1, 2, 3]);
        change(&mut state, |txn| {
            for index in 1..=3 {
                txn.update::<NodeRecord>(&node_id(index), |node| node.host = Some("h".to_owned()));
            }
            let drain = Some(Drain::InTurn);
            txn.update::<HostRecord>(&"h".to_owned(), |host| (host.cordoned, host.draining) = (true, drain));
        });
        let steps = decided(&state);
        assert_eq!(steps.len(), 2, "{steps:?}");
        change(&mut state, |txn| crate::reconcile::steps::apply(txn, steps, NOW));
        assert!(decided(&state).is_empty(), "the job keeps its minimum");
    }

    #[test]
    fn a_drained_host_keeps_running_jobs_unless_drained_now() {
        let mut state = state(manual(2), 2);
        host(&mut state, "h", 8);
        submit(&mut state, "a", 1, "PT1H");
        start(&mut state, "a", &[1]);
        let drain = |state: &mut State, how: Drain| {
            change(state, |txn| {
                for index in [1, 2] {
                    txn.update::<NodeRecord>(&node_id(index), |node| node.host = Some("h".to_owned()));
                }
                txn.update::<HostRecord>(&"h".to_owned(), |host| (host.cordoned, host.draining) = (true, Some(how)));
            });
        };
        assert!(decided(&state).is_empty());
        drain(&mut state, Drain::InTurn);
        let preempted = |steps: Vec<Step>| -> Vec<NodeId> {
            let node = |step: Step| match step {
                Step::Preempt(node, _) => node,
                other => panic!("{other:?}"),
            };
            steps.into_iter().map(node).collect()
        };
        assert_eq!(preempted(decided(&state)), [node_id(2)]);
        assert!(!is_schedulable(&state, &node_id(2)));
        drain(&mut state, Drain::Now);
        assert_eq!(preempted(decided(&state)), [node_id(1), node_id(2)]);
        // A host marked for removal goes once no node is left on it.
        end(&mut state, "a", NOW);
        change(&mut state, |txn| {
            txn.update::<HostRecord>(&"h".to_owned(), |host| host.removing = true);
            for index in [1, 2] {
                txn.node_event(&node_id(index), NodeEvent::Retired, NOW).expect("it is idle");
            }
        });
        assert!(decided(&state).is_empty(), "they are on their way out");
        change(&mut state, |txn| [1, 2].iter().for_each(|index| txn.remove::<NodeRecord>(&node_id(*index))));
        assert_eq!(decided(&state), [Step::RemoveHost("h".to_owned())]);
    }
}
