//! Cache of this server's pods: those that the API reported and those that are being created. Decides whether a node is alive, what it
//! waits for, and which pods to delete for it to be gone. Pure: makes no API calls.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corro_model::NodeId;
use tokio::sync::Notify;

use super::pod_status::{AgentPhase, PodState};

/// A deletion without effect is requested again after this.
const DELETE_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// A pod that is still there so long after its deletion was requested is deleted by force. Its machine is unreachable, and its agent has
/// ended by itself because it lost the server.
const FORCE_DELETE_AFTER: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct PodCache {
    sync: SyncState,
    /// By pod name.
    pods: BTreeMap<String, CachedPod>,
    creating: HashMap<NodeId, Creation>,
    /// Why the last pod of a node ended, while the server knows the node.
    end_reasons: HashMap<NodeId, String>,
}

/// Whether the cache reflects the cluster.
#[derive(Default)]
enum SyncState {
    Synced,
    #[default]
    NeverListed,
    /// The API cannot be reached, for this reason.
    Unreachable(String),
}

struct CachedPod {
    state: PodState,
    /// Time at which this process first saw it.
    since: Instant,
    /// Whether an earlier run of the server created it.
    is_inherited: bool,
    /// Times of the first and the last deletion request.
    delete_requests: Option<(Instant, Instant)>,
}

impl CachedPod {
    /// A server that ended between creating a pod and its secret leaves a pod that is pending forever. An inherited pending pod therefore
    /// counts as alive only after its secret was created again.
    fn may_lack_secret(&self) -> bool {
        self.is_inherited && matches!(self.state.phase, AgentPhase::Pending(_))
    }

    fn is_alive(&self) -> bool {
        self.state.phase.is_alive() && !self.may_lack_secret()
    }
}

/// A pod that is being created.
struct Creation {
    name: String,
    last_error: Option<String>,
    is_cancelled: bool,
    /// Notified when the creation is cancelled.
    cancelled: Arc<Notify>,
}

/// A pod to delete.
#[derive(Debug, PartialEq, Eq)]
pub struct PodDeletion {
    pub name: String,
    /// Grace period; `None` uses the pod's own.
    pub grace_seconds: Option<u32>,
}

impl PodCache {
    /// `None` if the API cannot be reached.
    pub fn is_alive(&self, node: &NodeId) -> Option<bool> {
        if self.creating.contains_key(node) {
            return Some(true);
        }
        matches!(self.sync, SyncState::Synced).then(|| self.pods_of(node).any(|(_, pod)| pod.is_alive()))
    }

    /// Why a node is not running yet, or why it ended.
    pub fn explain(&self, node: &NodeId) -> Option<String> {
        let creation = self.creating.get(node).and_then(|creation| creation.last_error.clone());
        let from_pods = || {
            let mut pods = self.pods_of(node).collect::<Vec<_>>();
            pods.sort_by_key(|(_, pod)| (!pod.state.phase.is_alive(), Reverse(pod.since)));
            pods.into_iter().find_map(|(_, pod)| match &pod.state.phase {
                AgentPhase::Ended(why) => Some(why.clone()),
                AgentPhase::Pending(why) => why.clone(),
                AgentPhase::Running => None,
            })
        };
        let from_sync = || match &self.sync {
            SyncState::Unreachable(why) => Some(format!("the Kubernetes API cannot be reached: {why}")),
            SyncState::Synced | SyncState::NeverListed => None,
        };
        creation.or_else(from_pods).or_else(|| self.end_reasons.get(node).cloned()).or_else(from_sync)
    }

    /// Replaces the cache with a list that was requested at `began`.
    pub fn on_list(&mut self, pods: Vec<(String, PodState)>, began: Instant, now: Instant) {
        let is_first = matches!(self.sync, SyncState::NeverListed);
        let mut before = std::mem::take(&mut self.pods);
        for (name, state) in pods {
            let pod = match before.remove(&name) {
                Some(pod) => CachedPod { state, ..pod },
                None => CachedPod { state, since: now, is_inherited: is_first, delete_requests: None },
            };
            self.pods.insert(name, pod);
        }
        for (name, pod) in before {
            // A pod that was created after the request may be missing from the list.
            match pod.since >= began {
                true => drop(self.pods.insert(name, pod)),
                false => self.record_end(&name, pod),
            }
        }
        self.sync = SyncState::Synced;
    }

    /// Handles a watch event: a pod was added or modified.
    pub fn on_changed(&mut self, name: String, state: PodState, now: Instant) {
        match self.pods.get_mut(&name) {
            Some(pod) => pod.state = state,
            None => {
                let pod = CachedPod { state, since: now, is_inherited: false, delete_requests: None };
                self.pods.insert(name, pod);
            }
        }
    }

    /// Handles a watch event: a pod was deleted.
    pub fn on_deleted(&mut self, name: &str) {
        if let Some(pod) = self.pods.remove(name) {
            self.record_end(name, pod);
        }
    }

    /// Notes that a list or watch failed. The cache is not trusted until the next list.
    pub fn on_unreachable(&mut self, why: String) {
        self.sync = SyncState::Unreachable(why);
    }

    fn record_end(&mut self, name: &str, pod: CachedPod) {
        let why = match (pod.state.phase, pod.state.disruption) {
            (AgentPhase::Ended(why), _) => why,
            (_, Some(why)) => why,
            _ => format!("pod {name} was deleted"),
        };
        self.end_reasons.insert(pod.state.node, why);
    }

    /// Begins to create a pod for the node. Returns its name, which is `name` or that of an inherited pod that may lack its secret, and a
    /// notification of cancellation. `None` if a creation is in progress.
    pub fn begin_creation(&mut self, node: &NodeId, name: String) -> Option<(String, Arc<Notify>)> {
        if self.creating.contains_key(node) {
            return None;
        }
        let incomplete = self.pods_of(node).find(|(_, pod)| pod.may_lack_secret() && !pod.state.is_deleting);
        let name = incomplete.map_or(name, |(name, _)| name.clone());
        self.end_reasons.remove(node);
        let cancelled = Arc::new(Notify::new());
        let creation =
            Creation { name: name.clone(), last_error: None, is_cancelled: false, cancelled: cancelled.clone() };
        self.creating.insert(node.clone(), creation);
        Some((name, cancelled))
    }

    pub fn is_creation_cancelled(&self, node: &NodeId) -> bool {
        self.creating.get(node).is_some_and(|creation| creation.is_cancelled)
    }

    /// Records the error of an attempt; the creation goes on.
    pub fn on_creation_error(&mut self, node: &NodeId, why: &str) {
        if let Some(creation) = self.creating.get_mut(node) {
            creation.last_error = Some(format!("pod {} cannot be created: {why}", creation.name));
        }
    }

    /// Ends a creation. `pod` is `None` if it was cancelled and no pod exists.
    pub fn end_creation(&mut self, node: &NodeId, pod: Option<(String, PodState)>, now: Instant) {
        self.creating.remove(node);
        let Some((name, state)) = pod else { return };
        match self.pods.get_mut(&name) {
            Some(pod) => pod.is_inherited = false,
            None => self.on_changed(name, state, now),
        }
    }

    /// Deletions to request so that nothing of the node is left; `None` once nothing is. Cancels a creation in progress.
    pub fn plan_removal(&mut self, node: &NodeId, polite: bool, now: Instant) -> Option<Vec<PodDeletion>> {
        if let Some(creation) = self.creating.get_mut(node) {
            creation.is_cancelled = true;
            creation.cancelled.notify_one();
            return Some(Vec::new());
        }
        let mut remaining = self.pods.iter_mut().filter(|(_, pod)| pod.state.node == *node).peekable();
        match remaining.peek() {
            None if matches!(self.sync, SyncState::Synced) => {
                self.end_reasons.remove(node);
                None
            }
            _ => Some(remaining.filter_map(|(name, pod)| plan_deletion(name, pod, polite, now)).collect()),
        }
    }

    /// Deletions of the node's pods with their own grace periods.
    pub fn plan_stop(&self, node: &NodeId) -> Vec<PodDeletion> {
        let pods = self.pods_of(node).filter(|(_, pod)| !pod.state.is_deleting);
        pods.map(|(name, _)| PodDeletion { name: name.clone(), grace_seconds: None }).collect()
    }

    /// Nodes that have pods.
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        self.pods.values().map(|pod| pod.state.node.clone()).collect()
    }

    /// Deletions of pods whose node is in `nodes` and not in `known`. Forgets the end reasons of unknown nodes.
    pub fn plan_orphan_deletions(
        &mut self,
        nodes: &BTreeSet<NodeId>,
        known: &BTreeSet<NodeId>,
        now: Instant,
    ) -> Vec<PodDeletion> {
        self.end_reasons.retain(|node, _| known.contains(node));
        let is_orphan = |pod: &CachedPod| nodes.contains(&pod.state.node) && !known.contains(&pod.state.node);
        let pods = self.pods.iter_mut().filter(|(_, pod)| is_orphan(pod));
        pods.filter_map(|(name, pod)| plan_deletion(name, pod, false, now)).collect()
    }

    fn pods_of<'a>(&'a self, node: &'a NodeId) -> impl Iterator<Item = (&'a String, &'a CachedPod)> {
        self.pods.iter().filter(move |(_, pod)| pod.state.node == *node)
    }
}

/// Decides whether to request a deletion now, and with which grace period. 0 removes the pod object without waiting for its machine, so it is
/// used for pods whose processes have ended and for unreachable machines. Otherwise 1 second: the pod is gone when its machine confirms.
fn plan_deletion(name: &str, pod: &mut CachedPod, polite: bool, now: Instant) -> Option<PodDeletion> {
    // A running agent ends by itself.
    if polite && pod.state.phase == AgentPhase::Running {
        return None;
    }
    if pod.delete_requests.is_some_and(|(_, last)| now.duration_since(last) < DELETE_RETRY_INTERVAL) {
        return None;
    }
    let first_request = pod.delete_requests.map_or(now, |(first, _)| first);
    let is_unreachable = now.duration_since(first_request) >= FORCE_DELETE_AFTER;
    let grace = u32::from(pod.state.phase.is_alive() && !is_unreachable);
    pod.delete_requests = Some((first_request, now));
    Some(PodDeletion { name: name.to_owned(), grace_seconds: Some(grace) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u32) -> NodeId {
        NodeId::parse(&format!("tvm-{number}_1-x-p")).expect("an id")
    }

    fn pod(number: u32, phase: AgentPhase) -> (String, PodState) {
        (format!("p{number}"), PodState { node: node(number), phase, is_deleting: false, disruption: None })
    }

    fn ended() -> AgentPhase {
        AgentPhase::Ended("pod p1 failed: Evicted".to_owned())
    }

    fn deletion(name: &str, grace: u32) -> Vec<PodDeletion> {
        vec![PodDeletion { name: name.to_owned(), grace_seconds: Some(grace) }]
    }

    #[test]
    fn nothing_is_known_before_the_first_list() {
        let (mut cache, now) = (PodCache::default(), Instant::now());
        assert_eq!(cache.is_alive(&node(1)), None);
        assert_eq!(cache.plan_removal(&node(1), false, now), Some(vec![]), "it may be there");
        cache.on_list(vec![pod(1, AgentPhase::Running), pod(2, ended())], now, now);
        assert_eq!([1, 2, 3].map(|number| cache.is_alive(&node(number))), [Some(true), Some(false), Some(false)]);
        cache.on_unreachable("connection refused".to_owned());
        assert_eq!([1, 2, 3].map(|number| cache.is_alive(&node(number))), [None; 3]);
        assert!(cache.explain(&node(3)).is_some_and(|reason| reason.contains("connection refused")));
        assert_eq!(cache.plan_removal(&node(3), false, now), Some(vec![]));
        cache.on_list(vec![], now + Duration::from_secs(1), now);
        assert_eq!(cache.plan_removal(&node(1), false, now), None);
    }

    #[test]
    fn a_pod_created_during_a_list_stays_in_the_cache() {
        let (mut cache, now) = (PodCache::default(), Instant::now());
        let second = Duration::from_secs(1);
        cache.on_list(vec![], now, now);
        cache.begin_creation(&node(1), "p1".to_owned()).expect("no creation is in progress");
        assert!(cache.begin_creation(&node(1), "other".to_owned()).is_none(), "one at a time");
        assert_eq!(cache.is_alive(&node(1)), Some(true));
        cache.end_creation(&node(1), Some(pod(1, AgentPhase::Pending(None))), now + second);
        cache.on_list(vec![], now, now + second);
        assert_eq!(cache.is_alive(&node(1)), Some(true), "the list was requested before");
        cache.on_list(vec![], now + second * 2, now + second * 2);
        assert_eq!(cache.is_alive(&node(1)), Some(false));
        assert_eq!(cache.explain(&node(1)).as_deref(), Some("pod p1 was deleted"));
    }

    #[test]
    fn a_cancelled_creation_keeps_its_node_until_it_ends() {
        let (mut cache, now) = (PodCache::default(), Instant::now());
        cache.on_list(vec![], now, now);
        cache.begin_creation(&node(1), "p1".to_owned()).expect("no creation is in progress");
        cache.on_creation_error(&node(1), "exceeded quota");
        assert_eq!(cache.explain(&node(1)).as_deref(), Some("pod p1 cannot be created: exceeded quota"));
        assert_eq!(cache.plan_removal(&node(1), false, now), Some(vec![]));
        assert!(cache.is_creation_cancelled(&node(1)));
        cache.end_creation(&node(1), None, now);
        assert_eq!(cache.plan_removal(&node(1), false, now), None);
    }

    #[test]
    fn the_grace_period_of_a_deletion_is_safe() {
        let (mut cache, now) = (PodCache::default(), Instant::now());
        cache.on_list(vec![pod(1, AgentPhase::Running), pod(2, ended()), pod(3, AgentPhase::Pending(None))], now, now);
        assert_eq!(cache.plan_removal(&node(1), true, now), Some(vec![]), "its agent ends by itself");
        assert_eq!(cache.plan_removal(&node(1), false, now), Some(deletion("p1", 1)));
        assert_eq!(cache.plan_removal(&node(1), false, now), Some(vec![]), "just requested");
        assert_eq!(cache.plan_removal(&node(1), false, now + DELETE_RETRY_INTERVAL), Some(deletion("p1", 1)));
        assert_eq!(
            cache.plan_removal(&node(1), false, now + FORCE_DELETE_AFTER),
            Some(deletion("p1", 0)),
            "its machine is unreachable"
        );
        assert_eq!(cache.plan_removal(&node(2), true, now), Some(deletion("p2", 0)));
        assert_eq!(cache.plan_removal(&node(3), true, now), Some(deletion("p3", 1)));
        cache.on_deleted("p1");
        assert_eq!(cache.plan_removal(&node(1), false, now), None);
    }

    #[test]
    fn an_inherited_pending_pod_is_created_again_under_its_name() {
        let (mut cache, now) = (PodCache::default(), Instant::now());
        cache.on_list(vec![pod(1, AgentPhase::Pending(None)), pod(2, AgentPhase::Running)], now, now);
        assert_eq!(cache.is_alive(&node(1)), Some(false), "so that it is started again");
        let (name, _) = cache.begin_creation(&node(1), "new".to_owned()).expect("no creation is in progress");
        assert_eq!(name, "p1", "it keeps its place in the queue");
        cache.end_creation(&node(1), Some(pod(1, AgentPhase::Pending(None))), now);
        assert_eq!(cache.is_alive(&node(1)), Some(true));
        assert_eq!(cache.is_alive(&node(2)), Some(true));
    }

    #[test]
    fn pods_of_unknown_nodes_are_orphans() {
        let (mut cache, now) = (PodCache::default(), Instant::now());
        cache.on_list(vec![pod(1, AgentPhase::Running), pod(2, AgentPhase::Running)], now, now);
        let nodes = cache.nodes();
        cache.on_changed("p3".to_owned(), pod(3, AgentPhase::Running).1, now);
        assert_eq!(
            cache.plan_orphan_deletions(&nodes, &BTreeSet::from([node(1)]), now),
            deletion("p2", 1),
            "p3 came after the list"
        );
    }

    #[test]
    fn the_reason_of_an_end_is_remembered() {
        let (mut cache, now) = (PodCache::default(), Instant::now());
        cache.on_list(vec![pod(1, ended()), pod(2, AgentPhase::Running)], now, now);
        assert_eq!(cache.explain(&node(1)).as_deref(), Some("pod p1 failed: Evicted"));
        let drained = "pod p2 was evicted: EvictionByEvictionAPI".to_owned();
        cache.on_changed(
            "p2".to_owned(),
            PodState { disruption: Some(drained.clone()), ..pod(2, AgentPhase::Running).1 },
            now,
        );
        cache.on_deleted("p2");
        assert_eq!(cache.explain(&node(2)), Some(drained));
        cache.plan_orphan_deletions(&BTreeSet::new(), &BTreeSet::new(), now);
        assert_eq!(cache.explain(&node(2)), None);
    }
}
