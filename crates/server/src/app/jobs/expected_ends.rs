//! When the running tasks of nodes may end, as their agents estimate from the epochs that the processes print. In memory: an agent tells it
//! again when it connects. An estimate that has passed is none.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use corro_model::NodeId;

#[derive(Clone, Default)]
pub struct ExpectedEnds(Arc<RwLock<HashMap<NodeId, Instant>>>);

impl ExpectedEnds {
    /// What the node's agent says now.
    pub fn set(&self, node: &NodeId, remaining: Option<Duration>) {
        let mut ends = self.0.write().expect("no one panics while holding the ends");
        match remaining.and_then(|remaining| Instant::now().checked_add(remaining)) {
            Some(end) => ends.insert(node.clone(), end),
            None => ends.remove(node),
        };
    }

    /// How long until the last of the nodes that have an estimate is done; `None` when none has.
    pub fn remaining<'a>(&self, nodes: impl IntoIterator<Item = &'a NodeId>) -> Option<Duration> {
        let ends = self.0.read().expect("no one panics while holding the ends");
        let last = nodes.into_iter().filter_map(|node| ends.get(node)).max()?;
        last.checked_duration_since(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_node_counts_and_what_has_passed_is_nothing() {
        let ends = ExpectedEnds::default();
        let [one, other] = [1, 2].map(crate::testing::node_id);
        assert_eq!(ends.remaining([&one, &other]), None);
        ends.set(&one, Some(Duration::from_secs(100)));
        ends.set(&other, Some(Duration::from_secs(200)));
        let remaining = ends.remaining([&one, &other]).expect("an estimate");
        assert!((100..=200).contains(&remaining.as_secs()), "{remaining:?}");
        ends.set(&other, Some(Duration::ZERO));
        assert!(ends.remaining([&other]).is_none_or(|remaining| remaining.is_zero()));
        ends.set(&one, None);
        assert_eq!(ends.remaining([&one]), None);
    }
}
