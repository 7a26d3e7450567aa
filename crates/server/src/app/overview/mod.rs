//! Lists over all workspaces, restricted to what the caller may read, for the dashboard.

mod experiments;
mod search;

use std::cmp::Reverse;

use corro_model::batchai::*;
use corro_model::rbac::Right;
use corro_model::{JobKey, WorkspaceKey};
use corro_store::{JobRecord, State};

use crate::app::App;
use crate::app::access::caller::scope_of_key;
use crate::app::access::principals::principal_name;
use crate::app::jobs::queue_status::{QueueStatus, QueueStatuses};
use crate::app::resources::lookup::group_name;

/// Filter, order and size of a page of jobs.
pub struct JobQuery {
    /// Empty for all states.
    pub states: Vec<ExecutionState>,
    /// ARM id of a cluster.
    pub cluster: Option<String>,
    /// Text in the name of the job or its experiment, in lower case.
    pub text: String,
    pub order: JobOrder,
    pub limit: usize,
}

/// Order of jobs.
#[derive(Clone, Copy)]
pub enum JobOrder {
    /// Newest first, from jobs submitted before this sequence number.
    NewestBefore(u64),
    /// Queue order: by priority, then oldest first. Only one page.
    Queue,
}

impl App {
    /// All readable clusters, ordered by id.
    pub fn all_clusters(&self) -> Vec<Cluster> {
        let snapshot = self.snapshot();
        let clusters = snapshot.clusters.iter().map(|(key, record)| self.cluster_response(&snapshot, key, record));
        let mut clusters = self.filter_readable(clusters.collect(), |cluster| &cluster.id);
        clusters.sort_by_cached_key(|cluster| cluster.id.to_lowercase());
        clusters
    }

    /// Page of jobs, and the sequence number of the last one if another page follows.
    pub fn all_jobs(&self, query: &JobQuery) -> (JobSummaries, Option<u64>) {
        let snapshot = self.snapshot();
        let cluster = query.cluster.as_deref().map(str::to_lowercase);
        let mut page = JobSummaries::default();
        let mut found: Vec<(&JobKey, &JobRecord)> = Vec::new();
        for (key, job) in self.readable_jobs(&snapshot) {
            let id = job.spec.cluster.as_ref().map_or("", |cluster| &cluster.id);
            if cluster.as_ref().is_some_and(|cluster| *cluster != id.to_lowercase()) || !has_text(key, &query.text) {
                continue;
            }
            let state = job.state().execution_state();
            page.counts.count(state);
            let is_after = matches!(query.order, JobOrder::NewestBefore(number) if job.sequence >= number);
            if (query.states.is_empty() || query.states.contains(&state)) && !is_after {
                found.push((key, job));
            }
        }
        let place = |(_, job): &(&JobKey, &JobRecord)| match query.order {
            JobOrder::NewestBefore(_) => (None, u64::MAX - job.sequence),
            JobOrder::Queue => (Some(Reverse(job.spec.scheduling_priority)), job.sequence),
        };
        let more = found.len() > query.limit;
        if more {
            found.select_nth_unstable_by_key(query.limit, place);
            found.truncate(query.limit);
        }
        found.sort_unstable_by_key(place);
        let is_paged = more && matches!(query.order, JobOrder::NewestBefore(_));
        let last = found.last().filter(|_| is_paged).map(|(_, job)| job.sequence);
        let mut waits = QueueStatuses::compute(
            &snapshot,
            &self.fleet.expected_ends,
            &self.request.caller,
            &self.config.scheduling,
            &self.timeline(),
            found.iter().copied(),
        );
        page.value = found.iter().map(|(key, job)| self.job_summary(&snapshot, key, job, waits.remove(key))).collect();
        (page, last)
    }

    /// Readable jobs, ordered by key, so that each workspace is checked once.
    pub fn readable_jobs<'a>(&self, state: &'a State) -> impl Iterator<Item = (&'a JobKey, &'a JobRecord)> {
        let mut last: Option<(WorkspaceKey, bool)> = None;
        state.jobs.iter().map(|(key, job)| (key, &**job)).filter(move |(key, _)| match &last {
            Some((workspace, readable)) if is_inside(key, workspace) => *readable,
            _ => {
                let workspace = key.experiment().workspace();
                let readable = self.request.caller.may(Right::Read, &scope_of_key(workspace.as_str()));
                last = Some((workspace, readable));
                readable
            }
        })
    }

    fn job_summary(&self, state: &State, key: &JobKey, job: &JobRecord, wait: Option<QueueStatus>) -> JobSummary {
        let experiment_key = key.experiment();
        let workspace = experiment_key.workspace();
        let experiment = state.experiments.get(&experiment_key).map_or_else(String::new, |e| e.name.clone());
        let info = job.state().execution_info();
        let error = info.as_ref().and_then(|info| info.errors.first()).map(|error| error.message.clone());
        let (reason, waiting) = wait.map_or((None, None), |wait| (wait.reason, Some(wait.waiting)));
        JobSummary {
            id: format!("{}/jobs/{}", self.experiment_id(state, &experiment_key, &experiment), job.name),
            name: job.name.clone(),
            resource_group: group_name(state, &workspace.group()),
            workspace: state.workspaces.get(&workspace).map_or_else(String::new, |w| w.name.clone()),
            experiment,
            cluster_id: job.spec.cluster.as_ref().map_or_else(String::new, |cluster| cluster.id.clone()),
            owner: job.owner.as_deref().map(|id| principal_name(state, id)),
            sweep: job.spec.sweep.as_ref().map(|trial| trial.name.clone()),
            tool_type: job.spec.toolkit().expect("only valid jobs are stored"),
            priority: job.spec.scheduling_priority,
            node_count: job.spec.node_count,
            state: job.state().execution_state(),
            since: job.since(),
            creation_time: job.provisioning.creation_time,
            start_time: info.as_ref().map(|info| info.start_time),
            end_time: info.as_ref().and_then(|info| info.end_time),
            exit_code: info.as_ref().and_then(|info| info.exit_code),
            error,
            waiting_for: reason,
            position: waiting.as_ref().map(|waiting| waiting.position).filter(|position| *position > 0),
            estimated_start: waiting.as_ref().and_then(|waiting| waiting.estimated_start),
            estimate_basis: waiting.and_then(|waiting| waiting.estimate_basis),
            annotations: job.annotations.clone(),
        }
    }
}

fn is_inside(key: &JobKey, workspace: &WorkspaceKey) -> bool {
    key.as_str().strip_prefix(workspace.as_str()).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether the name of the experiment or job contains the text.
fn has_text(key: &JobKey, text: &str) -> bool {
    text.is_empty() || key.as_str().rsplit('/').take(2).any(|name| name.contains(text))
}
