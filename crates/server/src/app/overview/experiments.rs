//! Experiments of all workspaces that the caller may read, with the states of their jobs.

use std::collections::BTreeMap;

use corro_model::batchai::{ExperimentSummary, JobCounts};
use corro_model::rbac::Right;
use corro_model::{ExperimentKey, Timestamp};

use crate::app::App;
use crate::app::access::caller::scope_of_key;
use crate::app::resources::lookup::group_name;

impl App {
    /// All readable experiments, ordered by id.
    pub fn all_experiments(&self) -> Vec<ExperimentSummary> {
        let snapshot = self.snapshot();
        let mut jobs: BTreeMap<ExperimentKey, (JobCounts, Option<Timestamp>)> = BTreeMap::new();
        for (key, job) in self.readable_jobs(&snapshot) {
            let (counts, newest) = jobs.entry(key.experiment()).or_default();
            counts.count(job.state().execution_state());
            *newest = (*newest).max(Some(job.submitted()));
        }
        let mut summaries = Vec::new();
        for (key, record) in &snapshot.experiments {
            let workspace = key.workspace();
            if !self.request.caller.may(Right::Read, &scope_of_key(workspace.as_str())) {
                continue;
            }
            let (counts, last_submission) = jobs.remove(key).unwrap_or_default();
            summaries.push(ExperimentSummary {
                id: self.experiment_id(&snapshot, key, &record.name),
                name: record.name.clone(),
                resource_group: group_name(&snapshot, &workspace.group()),
                workspace: snapshot.workspaces.get(&workspace).map_or_else(String::new, |w| w.name.clone()),
                creation_time: record.provisioning.creation_time,
                counts,
                last_submission,
            });
        }
        summaries.sort_by_cached_key(|experiment| experiment.id.to_lowercase());
        summaries
    }
}
