//! Estimated ends of running tasks. Agents derive them from the epochs that the processes print. In memory only: agents
//! report again after each connect. An estimate in the past counts as none.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use corro_model::NodeId;

#[derive(Clone, Default)]
pub struct ExpectedEnds(Arc<RwLock<HashMap<NodeId, Instant>>>);

impl ExpectedEnds {
    /// Records an agent's report; `None` removes the estimate.
    pub fn set(&self, node: &NodeId, remaining: Option<Duration>) {
        let mut ends = self.0.write().expect("no one panics while holding the ends");
        match remaining.and_then(|remaining| Instant::now().checked_add(remaining)) {
            Some(end) => ends.insert(node.clone(), end),
            None => ends.remove(node),
        };
    }

    /// Time until the last of the nodes with an estimate ends; `None` if none has one.
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
    fn the_latest_estimate_counts_and_past_ones_are_ignored() {
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
