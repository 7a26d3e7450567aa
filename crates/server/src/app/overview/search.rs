//! Search by part of a name over clusters, experiments, shares, nodes and jobs that the caller may read.

use corro_model::batchai::{SearchResult, SearchResultKind};
use corro_model::rbac::Right;

use crate::app::App;
use crate::app::access::caller::scope_of_key;

impl App {
    /// The `limit` best matches: exact names, then prefixes, then substrings. Blocking: lists shares on the disk.
    pub fn search(&self, text: &str, limit: usize) -> Vec<SearchResult> {
        if text.is_empty() {
            return Vec::new();
        }
        let snapshot = self.snapshot();
        let readable = |key: &str| self.request.caller.may(Right::Read, &scope_of_key(key));
        let mut found: Vec<(MatchRank, SearchResult)> = Vec::new();
        let mut offer = |fresh: u64, found_one: SearchResult| {
            if let Some(kind_of_match) = match_name(&found_one.name.to_lowercase(), text) {
                found.push((MatchRank { kind_of_match, kind: found_one.kind, older: u64::MAX - fresh }, found_one));
            }
        };
        for (key, cluster) in snapshot.clusters.iter().filter(|(key, _)| readable(key.as_str())) {
            let place = snapshot.workspaces.get(&key.workspace()).map_or_else(String::new, |w| w.name.clone());
            let (name, id) = (cluster.name.clone(), self.cluster_id(&snapshot, key, &cluster.name));
            offer(0, SearchResult { kind: SearchResultKind::Cluster, name, id, place, state: None });
        }
        for (key, experiment) in snapshot.experiments.iter().filter(|(key, _)| readable(key.as_str())) {
            let place = snapshot.workspaces.get(&key.workspace()).map_or_else(String::new, |w| w.name.clone());
            let (name, id) = (experiment.name.clone(), self.experiment_id(&snapshot, key, &experiment.name));
            offer(0, SearchResult { kind: SearchResultKind::Experiment, name, id, place, state: None });
        }
        for share in self.all_shares() {
            let (name, id, place) = (share.name, share.account_id, share.account);
            offer(0, SearchResult { kind: SearchResultKind::Share, name, id, place, state: None });
        }
        for node in self.filter_readable(self.nodes(), |node| &node.cluster_id) {
            let (name, id) = (node.node_id.to_string(), node.cluster_id);
            offer(
                0,
                SearchResult { kind: SearchResultKind::Node, name, id, place: node.cluster, state: Some(node.state) },
            );
        }
        for (key, job) in self.readable_jobs(&snapshot) {
            // Most jobs do not match: skip the formatting for them.
            if match_name(&job.name.to_lowercase(), text).is_none() {
                continue;
            }
            let experiment = snapshot.experiments.get(&key.experiment()).map_or_else(String::new, |e| e.name.clone());
            let id = format!("{}/jobs/{}", self.experiment_id(&snapshot, &key.experiment(), &experiment), job.name);
            let state = Some(job.state().name().to_owned());
            offer(
                job.sequence,
                SearchResult { kind: SearchResultKind::Job, name: job.name.clone(), id, place: experiment, state },
            );
        }
        found.sort_by_cached_key(|(rank, found)| (*rank, found.name.to_lowercase()));
        found.into_iter().take(limit).map(|(_, found)| found).collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct MatchRank {
    kind_of_match: MatchKind,
    kind: SearchResultKind,
    /// Orders newer jobs first.
    older: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum MatchKind {
    Whole,
    Beginning,
    Inside,
}

fn match_name(name: &str, text: &str) -> Option<MatchKind> {
    match name.find(text)? {
        0 if name.len() == text.len() => Some(MatchKind::Whole),
        0 => Some(MatchKind::Beginning),
        _ => Some(MatchKind::Inside),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_matches_sort_first() {
        assert_eq!(match_name("train", "train"), Some(MatchKind::Whole));
        assert_eq!(match_name("train-2", "train"), Some(MatchKind::Beginning));
        assert_eq!(match_name("my-train", "train"), Some(MatchKind::Inside));
        assert_eq!(match_name("test", "train"), None);
        assert!(MatchKind::Whole < MatchKind::Beginning && MatchKind::Beginning < MatchKind::Inside);
    }
}
