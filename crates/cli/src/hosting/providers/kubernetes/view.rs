//! What this server knows of its pods: those that the API showed, and those that it is about to make. Answers whether a node
//! lives, what it waits for, and what has to be deleted for it to be gone. Pure: told by others, asks nobody.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corro_model::NodeId;
use tokio::sync::Notify;

use super::seen::{Fate, Seen};

/// A deletion that had no effect is asked for again after this.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// After this nobody hears the machine of a pod, and its agent has ended by itself: it lost the server long ago.
const FORCE_AFTER: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct View {
    /// Why it is not known how things stand now, if so.
    blind: Blind,
    pods: BTreeMap<String, Known>,
    making: HashMap<NodeId, Making>,
    /// How the last pod of a node went, while somebody may ask.
    ends: HashMap<NodeId, String>,
}

#[derive(Default)]
enum Blind {
    No,
    #[default]
    NotYetLooked,
    Because(String),
}

struct Known {
    seen: Seen,
    since: Instant,
    /// It was there before this server was.
    inherited: bool,
    /// When its end was first and last asked for.
    asked: Option<(Instant, Instant)>,
}

impl Known {
    /// A server that ended between making a pod and its secret left one that waits for ever: it counts only when its secret
    /// was seen to.
    fn may_lack_secret(&self) -> bool {
        self.inherited && matches!(self.seen.fate, Fate::Waits(_))
    }

    fn is_alive(&self) -> bool {
        self.seen.fate.is_alive() && !self.may_lack_secret()
    }
}

struct Making {
    name: String,
    trouble: Option<String>,
    given_up: bool,
    changed: Arc<Notify>,
}

/// A pod whose end is to be asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Removal {
    pub name: String,
    /// Seconds; `None` is the pod's own.
    pub grace: Option<u32>,
}

impl View {
    pub fn is_alive(&self, node: &NodeId) -> Option<bool> {
        if self.making.contains_key(node) {
            return Some(true);
        }
        matches!(self.blind, Blind::No).then(|| self.pods_of(node).any(|(_, pod)| pod.is_alive()))
    }

    /// What keeps a node from being there, or how it ended.
    pub fn provisioning_issue(&self, node: &NodeId) -> Option<String> {
        let making = self.making.get(node).and_then(|making| making.trouble.clone());
        let of_pods = || {
            let mut pods = self.pods_of(node).collect::<Vec<_>>();
            pods.sort_by_key(|(_, pod)| (!pod.seen.fate.is_alive(), Reverse(pod.since)));
            pods.into_iter().find_map(|(_, pod)| match &pod.seen.fate {
                Fate::Ended(why) => Some(why.clone()),
                Fate::Waits(why) => why.clone(),
                Fate::Runs => None,
            })
        };
        let blind = || match &self.blind {
            Blind::Because(why) => Some(format!("the Kubernetes API cannot be asked: {why}")),
            Blind::No | Blind::NotYetLooked => None,
        };
        making.or_else(of_pods).or_else(|| self.ends.get(node).cloned()).or_else(blind)
    }

    /// All pods there are, by a look that began at `began`.
    pub fn listed(&mut self, pods: Vec<(String, Seen)>, began: Instant, now: Instant) {
        let first = matches!(self.blind, Blind::NotYetLooked);
        let mut before = std::mem::take(&mut self.pods);
        for (name, seen) in pods {
            let known = match before.remove(&name) {
                Some(known) => Known { seen, ..known },
                None => Known { seen, since: now, inherited: first, asked: None },
            };
            self.pods.insert(name, known);
        }
        for (name, known) in before {
            // One that was made meanwhile need not be in the list.
            match known.since >= began {
                true => drop(self.pods.insert(name, known)),
                false => self.note_end(&name, known),
            }
        }
        self.blind = Blind::No;
    }

    pub fn changed(&mut self, name: String, seen: Seen, now: Instant) {
        match self.pods.get_mut(&name) {
            Some(known) => known.seen = seen,
            None => drop(self.pods.insert(name, Known { seen, since: now, inherited: false, asked: None })),
        }
    }

    pub fn deleted(&mut self, name: &str) {
        if let Some(known) = self.pods.remove(name) {
            self.note_end(name, known);
        }
    }

    pub fn lost_sight(&mut self, why: String) {
        self.blind = Blind::Because(why);
    }

    fn note_end(&mut self, name: &str, known: Known) {
        let why = match (known.seen.fate, known.seen.disruption) {
            (Fate::Ended(why), _) => why,
            (_, Some(why)) => why,
            _ => format!("pod {name} was deleted"),
        };
        self.ends.insert(known.seen.node, why);
    }

    /// A pod is to be made for the node, by the name that is returned: `name`, or that of one which may lack its secret.
    /// `None` when one is being made already.
    pub fn begin(&mut self, node: &NodeId, name: String) -> Option<(String, Arc<Notify>)> {
        if self.making.contains_key(node) {
            return None;
        }
        let unsure = self.pods_of(node).find(|(_, pod)| pod.may_lack_secret() && !pod.seen.deleting);
        let name = unsure.map_or(name, |(name, _)| name.clone());
        self.ends.remove(node);
        let changed = Arc::new(Notify::new());
        let making = Making { name: name.clone(), trouble: None, given_up: false, changed: changed.clone() };
        self.making.insert(node.clone(), making);
        Some((name, changed))
    }

    pub fn is_given_up(&self, node: &NodeId) -> bool {
        self.making.get(node).is_some_and(|making| making.given_up)
    }

    pub fn hindered(&mut self, node: &NodeId, why: &str) {
        if let Some(making) = self.making.get_mut(node) {
            making.trouble = Some(format!("pod {} cannot be made: {why}", making.name));
        }
    }

    /// It is made, or will not be.
    pub fn made(&mut self, node: &NodeId, pod: Option<(String, Seen)>, now: Instant) {
        self.making.remove(node);
        let Some((name, seen)) = pod else { return };
        match self.pods.get_mut(&name) {
            Some(known) => known.inherited = false,
            None => self.changed(name, seen, now),
        }
    }

    /// What has to be asked for until nothing of the node is left; `None` when that holds.
    pub fn remove(&mut self, node: &NodeId, polite: bool, now: Instant) -> Option<Vec<Removal>> {
        if let Some(making) = self.making.get_mut(node) {
            making.given_up = true;
            making.changed.notify_one();
            return Some(Vec::new());
        }
        let mut left = self.pods.iter_mut().filter(|(_, pod)| pod.seen.node == *node).peekable();
        match left.peek() {
            None if matches!(self.blind, Blind::No) => {
                self.ends.remove(node);
                None
            }
            _ => Some(left.filter_map(|(name, pod)| removal(name, pod, polite, now)).collect()),
        }
    }

    /// The node's pods are asked to end in their own time.
    pub fn ask_to_stop(&self, node: &NodeId) -> Vec<Removal> {
        let pods = self.pods_of(node).filter(|(_, pod)| !pod.seen.deleting);
        pods.map(|(name, _)| Removal { name: name.clone(), grace: None }).collect()
    }

    /// Nodes that the API shows pods of.
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        self.pods.values().map(|pod| pod.seen.node.clone()).collect()
    }

    /// Pods of nodes that nobody knows (any more).
    pub fn orphans(&mut self, nodes: &BTreeSet<NodeId>, known: &BTreeSet<NodeId>, now: Instant) -> Vec<Removal> {
        self.ends.retain(|node, _| known.contains(node));
        let is_orphan = |pod: &Known| nodes.contains(&pod.seen.node) && !known.contains(&pod.seen.node);
        let pods = self.pods.iter_mut().filter(|(_, pod)| is_orphan(pod));
        pods.filter_map(|(name, pod)| removal(name, pod, false, now)).collect()
    }

    fn pods_of<'a>(&'a self, node: &'a NodeId) -> impl Iterator<Item = (&'a String, &'a Known)> {
        self.pods.iter().filter(move |(_, pod)| pod.seen.node == *node)
    }
}

/// Grace of 0 takes the pod out of the list without asking its machine, so it is for those whose processes have ended, and
/// for machines that nobody hears. Any other is asked for with 1 second, and is gone when the machine says so.
fn removal(name: &str, pod: &mut Known, polite: bool, now: Instant) -> Option<Removal> {
    // Only an agent can end by itself.
    if polite && pod.seen.fate == Fate::Runs {
        return None;
    }
    let first = pod.asked.map(|(first, _)| first);
    let unheard = first.is_some_and(|first| now.duration_since(first) >= FORCE_AFTER);
    let grace = u32::from(pod.seen.fate.is_alive() && !unheard);
    let just_asked = pod.asked.is_some_and(|(_, last)| now.duration_since(last) < ASK_AGAIN);
    (!just_asked).then(|| ask(name, pod, grace, now))
}

fn ask(name: &str, pod: &mut Known, grace: u32, now: Instant) -> Removal {
    let first = pod.asked.map_or(now, |(first, _)| first);
    pod.asked = Some((first, now));
    Removal { name: name.to_owned(), grace: Some(grace) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u32) -> NodeId {
        NodeId::parse(&format!("tvm-{number}_1-x-p")).expect("an id")
    }

    fn pod(number: u32, fate: Fate) -> (String, Seen) {
        (format!("p{number}"), Seen { node: node(number), fate, deleting: false, disruption: None })
    }

    fn ended() -> Fate {
        Fate::Ended("pod p1 failed: Evicted".to_owned())
    }

    fn removal(name: &str, grace: u32) -> Vec<Removal> {
        vec![Removal { name: name.to_owned(), grace: Some(grace) }]
    }

    #[test]
    fn who_has_not_looked_cannot_know() {
        let (mut view, now) = (View::default(), Instant::now());
        assert_eq!(view.is_alive(&node(1)), None);
        assert_eq!(view.remove(&node(1), false, now), Some(vec![]), "it may be there");
        view.listed(vec![pod(1, Fate::Runs), pod(2, ended())], now, now);
        assert_eq!([1, 2, 3].map(|number| view.is_alive(&node(number))), [Some(true), Some(false), Some(false)]);
        view.lost_sight("connection refused".to_owned());
        assert_eq!([1, 2, 3].map(|number| view.is_alive(&node(number))), [None; 3]);
        assert!(view.says(&node(3)).is_some_and(|says| says.contains("connection refused")));
        assert_eq!(view.remove(&node(3), false, now), Some(vec![]));
        view.listed(vec![], now + Duration::from_secs(1), now);
        assert_eq!(view.remove(&node(1), false, now), None);
    }

    #[test]
    fn a_pod_that_is_made_during_a_look_is_not_missed() {
        let (mut view, now) = (View::default(), Instant::now());
        let second = Duration::from_secs(1);
        view.listed(vec![], now, now);
        view.begin(&node(1), "p1".to_owned()).expect("nobody makes it");
        assert!(view.begin(&node(1), "other".to_owned()).is_none(), "one at a time");
        assert_eq!(view.is_alive(&node(1)), Some(true));
        view.made(&node(1), Some(pod(1, Fate::Waits(None))), now + second);
        view.listed(vec![], now, now + second);
        assert_eq!(view.is_alive(&node(1)), Some(true), "the look began before");
        view.listed(vec![], now + second * 2, now + second * 2);
        assert_eq!(view.is_alive(&node(1)), Some(false));
        assert_eq!(view.says(&node(1)).as_deref(), Some("pod p1 was deleted"));
    }

    #[test]
    fn what_hinders_is_told_and_a_node_that_is_given_up_is_not_gone_before_its_maker_knows() {
        let (mut view, now) = (View::default(), Instant::now());
        view.listed(vec![], now, now);
        view.begin(&node(1), "p1".to_owned()).expect("nobody makes it");
        view.hindered(&node(1), "exceeded quota");
        assert_eq!(view.says(&node(1)).as_deref(), Some("pod p1 cannot be made: exceeded quota"));
        assert_eq!(view.remove(&node(1), false, now), Some(vec![]));
        assert!(view.is_given_up(&node(1)));
        view.made(&node(1), None, now);
        assert_eq!(view.remove(&node(1), false, now), None);
    }

    #[test]
    fn pods_go_with_the_grace_that_is_safe() {
        let (mut view, now) = (View::default(), Instant::now());
        view.listed(vec![pod(1, Fate::Runs), pod(2, ended()), pod(3, Fate::Waits(None))], now, now);
        assert_eq!(view.remove(&node(1), true, now), Some(vec![]), "its agent ends by itself");
        assert_eq!(view.remove(&node(1), false, now), Some(removal("p1", 1)));
        assert_eq!(view.remove(&node(1), false, now), Some(vec![]), "just asked");
        assert_eq!(view.remove(&node(1), false, now + ASK_AGAIN), Some(removal("p1", 1)));
        assert_eq!(view.remove(&node(1), false, now + FORCE_AFTER), Some(removal("p1", 0)), "nobody hears its machine");
        assert_eq!(view.remove(&node(2), true, now), Some(removal("p2", 0)));
        assert_eq!(view.remove(&node(3), true, now), Some(removal("p3", 1)));
        view.deleted("p1");
        assert_eq!(view.remove(&node(1), false, now), None);
    }

    #[test]
    fn a_pod_without_its_secret_is_seen_to_after_a_restart() {
        let (mut view, now) = (View::default(), Instant::now());
        view.listed(vec![pod(1, Fate::Waits(None)), pod(2, Fate::Runs)], now, now);
        assert_eq!(view.is_alive(&node(1)), Some(false), "so that it is started again");
        let (name, _) = view.begin(&node(1), "new".to_owned()).expect("nobody makes it");
        assert_eq!(name, "p1", "it keeps its place in the queue");
        view.made(&node(1), Some(pod(1, Fate::Waits(None))), now);
        assert_eq!(view.is_alive(&node(1)), Some(true));
        assert_eq!(view.is_alive(&node(2)), Some(true));
    }

    #[test]
    fn orphans_are_those_whose_node_nobody_knows() {
        let (mut view, now) = (View::default(), Instant::now());
        view.listed(vec![pod(1, Fate::Runs), pod(2, Fate::Runs)], now, now);
        let nodes = view.nodes();
        view.changed("p3".to_owned(), pod(3, Fate::Runs).1, now);
        assert_eq!(view.orphans(&nodes, &BTreeSet::from([node(1)]), now), removal("p2", 1), "p3 came after the look");
    }

    #[test]
    fn why_a_pod_went_is_remembered() {
        let (mut view, now) = (View::default(), Instant::now());
        view.listed(vec![pod(1, ended()), pod(2, Fate::Runs)], now, now);
        assert_eq!(view.says(&node(1)).as_deref(), Some("pod p1 failed: Evicted"));
        let drained = "pod p2 was taken away: EvictionByEvictionAPI".to_owned();
        view.changed("p2".to_owned(), Seen { disruption: Some(drained.clone()), ..pod(2, Fate::Runs).1 }, now);
        view.deleted("p2");
        assert_eq!(view.says(&node(2)), Some(drained));
        view.orphans(&BTreeSet::new(), &BTreeSet::new(), now);
        assert_eq!(view.says(&node(2)), None);
    }
}
