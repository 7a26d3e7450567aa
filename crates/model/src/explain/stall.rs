//! Text about ranks that keep the others waiting. Pure.

use crate::batchai::{NodeProcesses, StalledCollective};

/// Ranks that are named at most.
const MAX_NAMED_RANKS: usize = 4;

/// Names the missing ranks with their nodes, the collective, and how long the others have waited.
pub fn describe_stall(awaited: &StalledCollective, nodes: &[NodeProcesses]) -> String {
    let node_of = |rank: usize| {
        let here = |node: &&NodeProcesses| {
            node.processes.iter().flat_map(|process| &process.engines).any(|engine| engine.rank == rank)
        };
        nodes.iter().find(here).map_or_else(String::new, |node| format!(" on node {}", node.node_id))
    };
    let named = awaited.ranks.iter().take(MAX_NAMED_RANKS).map(|rank| format!("rank {rank}{}", node_of(*rank)));
    let mut named = named.collect::<Vec<_>>().join(", ");
    let more = awaited.count.saturating_sub(awaited.ranks.len().min(MAX_NAMED_RANKS));
    if more > 0 {
        named += &format!(" and {more} more");
    }
    let (has, seconds) = (if awaited.count == 1 { "has" } else { "have" }, awaited.ms_ago / 1000);
    format!(
        "Its ranks wait for each other: {named} {has} not reached \"{}\", for which the others have waited \
         {seconds} s.",
        awaited.name
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_ranks_are_named_with_their_nodes() {
        let totals =
            json!({"ms": 1, "steps": 0, "operations": 0, "tensors": 0, "bytes": 0, "waitedMs": 0, "workedMs": 0});
        let engine = json!({"rank": 2, "size": 9, "totals": totals, "window": totals, "seenMsAgo": 0});
        let nodes: Vec<NodeProcesses> = serde_json::from_value(json!([
            {"nodeId": "tvm-257509324_2-20180718t174802z-p", "answered": true, "processes": [
                {"rank": 2, "pid": 1, "state": "S", "cpuPercent": 0.0, "memoryBytes": 0, "threads": 1, "processes": 1, "engines": [engine]}]}]))
        .expect("a literal");
        let one = StalledCollective { name: "loss".into(), ms_ago: 12_300, ranks: vec![2], count: 1 };
        assert_eq!(
            describe_stall(&one, &nodes),
            "Its ranks wait for each other: rank 2 on node tvm-257509324_2-20180718t174802z-p has not reached \"loss\", for \
             which the others have waited 12 s."
        );
        let many = StalledCollective { ranks: (1..6).collect(), count: 8, ..one };
        assert_eq!(
            describe_stall(&many, &[]),
            "Its ranks wait for each other: rank 1, rank 2, rank 3, rank 4 and 4 more have not reached \"loss\", for which the \
             others have waited 12 s."
        );
    }
}
