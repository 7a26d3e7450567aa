//! Quotas and usage per region: clusters, and cores by VM family and priority.

use std::collections::HashMap;

use corro_model::batchai::{ClusterSpec, Usage, VmPriority};
use corro_model::names::region;
use corro_model::vm_size::{self, FAMILIES, VmSize};
use corro_model::{ApiError, ClusterKey, GroupKey};
use corro_store::{ClusterRecord, State};

use crate::app::App;

/// Quotas. The defaults are generous: those of the Azure service were meant for rented machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Maximum number of clusters per region.
    pub clusters: usize,
    /// Maximum number of cores of dedicated nodes per region.
    pub cores: i64,
    /// Maximum number of cores of low-priority nodes per region.
    pub low_priority_cores: i64,
    /// Maximum number of workspaces per resource group.
    pub workspaces: usize,
}

impl Default for Quotas {
    fn default() -> Self {
        Self { clusters: 200, cores: 100_000, low_priority_cores: 100_000, workspaces: 800 }
    }
}

impl Quotas {
    /// Checks whether a new cluster fits the quotas.
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

    /// Checks whether the cluster fits the core quota at the maximum size of `spec`.
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

/// Error in the Azure service's wording; "support" is the operator here.
fn quota_exceeded(code: &str, kind: &str, most: i64, in_use: i64) -> ApiError {
    let message = format!(
        "Operation results in exceeding quota limits of {kind}. Maximum allowed: {most}, Current in use: {in_use}. Please contact support to increase the quota for resource type {kind}"
    );
    ApiError::conflict(code, message)
}

/// Cores of the cluster at its maximum size.
fn max_cores(spec: &ClusterSpec) -> i64 {
    let scale = &spec.scale_settings;
    let manual = scale.manual.as_ref().map(|manual| manual.target_node_count);
    let most = manual.or(scale.auto_scale.as_ref().map(|auto| auto.maximum_node_count)).unwrap_or(0);
    let cores = vm_size::find(&spec.vm_size).map_or(0, |size| size.cores);
    i64::from(most) * i64::from(cores)
}

impl App {
    /// The 17 usage entries of the Azure service, in its order.
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
