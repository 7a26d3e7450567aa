//! What is in use in a region, beside what is allowed: clusters, and cores by kind of node.

use std::collections::HashMap;

use corro_model::batchai::{ClusterSpec, Usage, VmPriority};
use corro_model::names::region;
use corro_model::vm_size::{self, FAMILIES, VmSize};
use corro_model::{ApiError, ClusterKey, GroupKey};
use corro_store::{ClusterRecord, State};

use crate::app::App;

/// What is allowed. Generous: the service's own defaults were for machines that cost money.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Clusters of one region.
    pub clusters: usize,
    /// Cores of dedicated nodes in one region.
    pub cores: i64,
    /// Cores of low-priority nodes in one region.
    pub low_priority_cores: i64,
    /// Workspaces of one resource group.
    pub workspaces: usize,
}

impl Default for Quotas {
    fn default() -> Self {
        Self { clusters: 200, cores: 100_000, low_priority_cores: 100_000, workspaces: 800 }
    }
}

impl Quotas {
    /// May this cluster be added?
    pub fn check_cluster(
        &self,
        state: &State,
        location: &str,
        key: &ClusterKey,
        spec: &ClusterSpec,
    ) -> Result<(), ApiError> {
        let in_use = clusters_in_region(state, location).count();
        if in_use >= self.clusters {
            return Err(quota_exceeded(
                "ClusterQuotaReached",
                "Microsoft.BatchAI/clusters",
                self.clusters as i64,
                in_use as i64,
            ));
        }
        self.check_cores(state, location, key, spec)
    }

    /// May the cluster grow as large as `spec` lets it?
    pub fn check_cores(
        &self,
        state: &State,
        location: &str,
        key: &ClusterKey,
        spec: &ClusterSpec,
    ) -> Result<(), ApiError> {
        let others = clusters_in_region(state, location).filter(|(other, _)| *other != key);
        let same = others.filter(|(_, cluster)| cluster.spec.vm_priority == spec.vm_priority);
        let in_use: i64 = same.map(|(_, cluster)| max_cores(&cluster.spec)).sum();
        let most = self.core_quota(spec.vm_priority);
        if in_use + max_cores(spec) > most {
            let kind = match spec.vm_priority {
                VmPriority::Dedicated => "vCPUs",
                VmPriority::LowPriority => "low-priority vCPUs",
            };
            return Err(quota_exceeded("CoreQuotaReached", kind, most, in_use));
        }
        Ok(())
    }

    fn core_quota(&self, priority: VmPriority) -> i64 {
        match priority {
            VmPriority::Dedicated => self.cores,
            VmPriority::LowPriority => self.low_priority_cores,
        }
    }

    pub fn check_workspaces(&self, state: &State, group: &GroupKey) -> Result<(), ApiError> {
        let in_use = state.workspaces_of(group).count();
        if in_use >= self.workspaces {
            let kind = "Microsoft.BatchAI/workspaces";
            return Err(quota_exceeded("WorkspaceQuotaReached", kind, self.workspaces as i64, in_use as i64));
        }
        Ok(())
    }
}

/// The service's own words; the support here is whoever runs the server.
fn quota_exceeded(code: &str, kind: &str, most: i64, in_use: i64) -> ApiError {
    let message = format!(
        "Operation results in exceeding quota limits of {kind}. Maximum allowed: {most}, Current in use: {in_use}. Please contact support to increase the quota for resource type {kind}"
    );
    ApiError::conflict(code, message)
}

/// The cores of the cluster at its largest.
fn max_cores(spec: &ClusterSpec) -> i64 {
    let scale = &spec.scale_settings;
    let manual = scale.manual.as_ref().map(|manual| manual.target_node_count);
    let most = manual.or(scale.auto_scale.as_ref().map(|auto| auto.maximum_node_count)).unwrap_or(0);
    let cores = vm_size::find(&spec.vm_size).map_or(0, |size| size.cores);
    i64::from(most) * i64::from(cores)
}

impl App {
    /// The service's 17 entries, in its order.
    pub fn usages(&self, location: &str) -> Vec<Usage> {
        let snapshot = self.snapshot();
        let location = region(location);
        let clusters: Vec<(&ClusterKey, &ClusterRecord)> = clusters_in_region(&snapshot, &location).collect();
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
        let mut usages = vec![Usage::count("Clusters", clusters.len() as i32, self.config.quotas.clusters as i64)];
        for (priority, word) in [(VmPriority::Dedicated, "Dedicated"), (VmPriority::LowPriority, "LowPriority")] {
            let (total, most) = (cores(priority, &|_| true), self.config.quotas.core_quota(priority));
            usages.push(Usage::count(format!("Total Cluster {word} Regional vCPUs"), total, most));
            for family in FAMILIES {
                let own = cores(priority, &|size| size.family() == Some(family));
                usages.push(Usage::count(format!("Standard {family} Family Cluster {word} vCPUs"), own, most));
            }
        }
        usages
    }
}

fn clusters_in_region<'a>(
    state: &'a State,
    location: &'a str,
) -> impl Iterator<Item = (&'a ClusterKey, &'a ClusterRecord)> + 'a {
    let here = move |key: &ClusterKey| {
        state.workspaces.get(&key.workspace()).is_some_and(|workspace| workspace.location == location)
    };
    state.clusters.iter().filter(move |(key, _)| here(key)).map(|(key, cluster)| (key, &**cluster))
}
