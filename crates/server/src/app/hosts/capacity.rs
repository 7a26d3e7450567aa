//! Capacity of hosts: the nodes on a host, the capacity left, and why nodes do not fit. Pure.

use std::sync::Arc;

use corro_model::host::Capacity;
use corro_model::state::NodeState;
use corro_model::{ClusterKey, NodeId, vm_size};
use corro_store::{HostRecord, NodeRecord, State};

/// Nodes assigned to a host. A lost node occupies no capacity.
pub fn nodes_on_host<'a>(state: &'a State, host: &'a str) -> impl Iterator<Item = (&'a NodeId, &'a Arc<NodeRecord>)> {
    let lost = |node: &NodeRecord| matches!(node.state(), NodeState::Unusable { lost: true, .. });
    state.nodes.iter().filter(move |(_, node)| node.host.as_deref() == Some(host) && !lost(node))
}

/// Capacity that a node of this record occupies.
pub fn node_demand(state: &State, node: &NodeRecord) -> Option<Capacity> {
    let cluster = state.clusters.get(&node.cluster)?;
    vm_size::find(&cluster.spec.vm_size).map(Capacity::of)
}

/// Capacity of a host that no node occupies.
pub fn free_capacity(state: &State, key: &str, record: &HostRecord) -> Capacity {
    let taken = nodes_on_host(state, key).filter_map(|(_, node)| node_demand(state, node));
    taken.fold(record.inventory.capacity(), |left, need| left.less(&need))
}

/// Whether the node's host accepts jobs (is not cordoned).
pub fn is_schedulable(state: &State, node: &NodeId) -> bool {
    let host = state.nodes.get(node).and_then(|node| state.hosts.get(node.host.as_ref()?));
    host.is_none_or(|host| !host.cordoned)
}

/// Reasons why the nodes of a cluster cannot run on the joined hosts: no capacity, or cordoned hosts. Empty if there
/// are no hosts.
pub fn host_shortages(state: &State, cluster: &ClusterKey) -> Vec<String> {
    let mut lacks = Vec::new();
    if state.hosts.is_empty() {
        return lacks;
    }
    let halted =
        state.nodes_of(cluster).filter(|(id, node)| *node.state() == NodeState::Idle && !is_schedulable(state, id));
    match halted.count() {
        0 => {}
        n => lacks.push(format!("{n} idle on a cordoned host")),
    }
    let homeless = |node: &NodeRecord| *node.state() == NodeState::Allocating && node.host.is_none();
    let Some((_, node)) = state.nodes_of(cluster).find(|(_, node)| homeless(node)) else { return lacks };
    let (Some(need), Some(size)) = (node_demand(state, node), state.clusters.get(cluster).map(|c| &c.spec.vm_size))
    else {
        return lacks;
    };
    let mut large = state.hosts.iter().filter(|(_, host)| host.inventory.capacity().holds(&need)).peekable();
    if large.peek().is_none() {
        let hosts = match state.hosts.len() {
            1 => "the one joined host is not".to_owned(),
            n => format!("none of the {n} joined hosts is"),
        };
        lacks.push(format!("{hosts} large enough for a node, which needs {need} ({size})"));
    } else if !large.any(|(key, host)| !host.cordoned && free_capacity(state, key, host).holds(&need)) {
        lacks.push(format!("no host has {need} free for a node ({size}); see 'corro host list'"));
    }
    lacks
}

/// Note for an idle host that is too small for every node that waits for a host.
pub fn too_small_note(state: &State, free: &Capacity) -> Option<String> {
    let waiting = state.nodes.values().filter(|node| *node.state() == NodeState::Allocating && node.host.is_none());
    let mut first = None;
    for node in waiting {
        let need = node_demand(state, node)?;
        if free.holds(&need) {
            return None;
        }
        first.get_or_insert((node, need));
    }
    let (node, need) = first?;
    let cluster = state.clusters.get(&node.cluster)?;
    let (name, size) = (&cluster.name, &cluster.spec.vm_size);
    Some(format!("too small for the requested nodes: cluster {name} needs {need} ({size}), this host has {free}"))
}
