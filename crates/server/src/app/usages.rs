//! What is in use in a region, beside what is allowed: clusters, and cores by kind of node.

use std::collections::HashMap;

use corro_model::ClusterKey;
use corro_model::batchai::{Usage, VmPriority};
use corro_model::vm_size::{self, FAMILIES, VmSize};
use corro_store::{ClusterRecord, State};

use super::App;
use super::workspaces::region;

/// Clusters of one region, and cores of one kind in it.
const MAX_CLUSTERS: i64 = 200;
const MAX_CORES: i64 = 100_000;

impl App {
    /// The service's 17 entries, in its order.
    pub fn usages(&self, location: &str) -> Vec<Usage> {
        let snapshot = self.snapshot();
        let location = region(location);
        let clusters: Vec<(&ClusterKey, &ClusterRecord)> = in_region(&snapshot, &location).collect();
        let mut n_nodes: HashMap<&ClusterKey, i32> = HashMap::new();
        for node in snapshot.nodes.values() {
            *n_nodes.entry(&node.cluster).or_default() += 1;
        }
        let cores = |priority: VmPriority, wanted: &dyn Fn(&VmSize) -> bool| -> i32 {
            let own = clusters.iter().filter(|(_, cluster)| cluster.spec.vm_priority == priority);
            let sizes =
                own.filter_map(|(key, cluster)| Some((n_nodes.get(key)?, vm_size::find(&cluster.spec.vm_size)?)));
            sizes.filter(|(_, size)| wanted(size)).map(|(count, size)| count * size.cores as i32).sum()
        };
        let mut usages = vec![Usage::count("Clusters", clusters.len() as i32, MAX_CLUSTERS)];
        for (priority, word) in [(VmPriority::Dedicated, "Dedicated"), (VmPriority::LowPriority, "LowPriority")] {
            let total = cores(priority, &|_| true);
            usages.push(Usage::count(format!("Total Cluster {word} Regional vCPUs"), total, MAX_CORES));
            for family in FAMILIES {
                let own = cores(priority, &|size| size.family() == Some(family));
                usages.push(Usage::count(format!("Standard {family} Family Cluster {word} vCPUs"), own, MAX_CORES));
            }
        }
        usages
    }
}

fn in_region<'a>(
    state: &'a State,
    location: &'a str,
) -> impl Iterator<Item = (&'a ClusterKey, &'a ClusterRecord)> + 'a {
    let here = move |key: &ClusterKey| {
        state.workspaces.get(&key.workspace()).is_some_and(|workspace| workspace.location == location)
    };
    state.clusters.iter().filter(move |(key, _)| here(key)).map(|(key, cluster)| (key, &**cluster))
}
