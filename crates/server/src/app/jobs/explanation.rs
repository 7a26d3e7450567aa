//! Explains the state of a job: the sentences of `model::explain` and the job's history lines. Requires read access to
//! the job. Actors and addresses of the history are for owners and left out here.

use std::time::{Duration, SystemTime};

use corro_model::ApiError;
use corro_model::batchai::engines::find_stall;
use corro_model::batchai::{ExecutionState, STDOUTERR};
use corro_model::explain::{self, Explanation, JobContext, JobNames, JobStep, explain};
use corro_model::history::{HistoryEntry, HistoryFilter};
use corro_shares::{PageRequest, SharePath};
use serde_json::Value;

use crate::app::App;
use crate::app::access::principals::principal_name;
use crate::app::jobs::output_files::output_tree;
use crate::app::resources::lookup::{JobPath, find_job};
use crate::app::webhook::describe_failed_posts;

/// Maximum number of history steps; only a job that was preempted for weeks has more.
const MAX_STEPS: usize = 200;
/// Ranks that wait for a collective for longer than this are reported as stalled. Training steps may be long.
const STALL_THRESHOLD_MS: u64 = 10_000;
/// A job that has written nothing for this long is reported as silent.
const SILENCE_THRESHOLD: Duration = Duration::from_secs(10);
/// Maximum number of log files checked.
const MAX_LOG_FILES: usize = 1000;

impl App {
    pub async fn job_explanation(&self, path: &JobPath) -> Result<Explanation, ApiError> {
        let job = self.job(path)?;
        let snapshot = self.snapshot();
        let (_, record) = find_job(&snapshot, path)?;
        let names =
            JobNames { group: &path.group, workspace: &path.workspace, experiment: &path.experiment, job: &path.job };
        let cluster = snapshot.clusters.get(&record.cluster).map(|cluster| &cluster.spec);
        let setup = cluster.map(|cluster| cluster.node_setup.as_ref());
        let volumes = setup.map(|setup| setup.and_then(|setup| setup.mount_volumes.clone()).unwrap_or_default());
        let context = JobContext {
            volumes: volumes.as_ref(),
            vm_size: cluster.map(|cluster| cluster.vm_size.as_str()),
            project: None,
            nodes: record.state().nodes(),
        };
        let mut explanation = explain(&job, names, context, self.now());
        if explanation.is_about_files() {
            let (app, path) = (self.clone(), path.clone());
            let files = tokio::task::spawn_blocking(move || app.project_files(&path)).await.ok().flatten();
            explanation = explain(&job, names, JobContext { project: files.as_ref(), ..context }, self.now());
        }
        explanation.owner = record.owner.as_deref().map(|id| principal_name(&snapshot, id));
        if let ExecutionState::Running = explanation.state {
            // Only the nodes know whether ranks are stalled, and when they wrote to logs that are on no share.
            let nodes = self.job_processes(path, false).await.map_or_else(|_| Vec::new(), |found| found.nodes);
            explanation.sentences.extend(explain::describe_lost_gpus(&nodes));
            let processes = nodes.iter().flat_map(|node| &node.processes);
            let stall = find_stall(processes, STALL_THRESHOLD_MS);
            explanation.sentences.extend(stall.map(|awaited| explain::describe_stall(&awaited, &nodes)));
            let (app, path) = (self.clone(), path.clone());
            let silent = tokio::task::spawn_blocking(move || app.time_since_last_output(&path)).await.ok().flatten();
            let running_for = record.state().started().map(|started| self.now().since(started)).unwrap_or_default();
            let silent = silent.or_else(|| explain::silence(&nodes, running_for));
            explanation.sentences.extend(silent.filter(|silent| *silent >= SILENCE_THRESHOLD).map(explain::silent));
        }
        if explanation.state == ExecutionState::Queued {
            let missing = self.fleet.provisioning_issues.cluster_errors(&snapshot, &record.cluster);
            explanation.sentences.extend(missing.into_iter().map(|error| error.message + "."));
        }
        let resource = [names.group, names.workspace, names.experiment, names.job].join("/").to_lowercase();
        let (kind, since) = (Some("job".to_owned()), Some(job.properties.provisioning.creation_time));
        let filter = HistoryFilter { resource: Some(resource), kind, since, ..HistoryFilter::newest(MAX_STEPS) };
        let entries = self.read_history(filter).await?;
        explanation.steps = entries.into_iter().rev().map(step).collect();
        explanation.sentences.extend(describe_failed_posts(&snapshot, &record, &explanation.steps));
        Ok(explanation)
    }
}

impl App {
    /// Time since a log of the job's processes last changed, if the logs are on a share. Blocking: reads a directory.
    fn time_since_last_output(&self, path: &JobPath) -> Option<Duration> {
        let snapshot = self.snapshot();
        let (_, job) = find_job(&snapshot, path).ok()?;
        let tree = output_tree(&snapshot, &job, STDOUTERR)?;
        let page = PageRequest { prefix: "std", from: "", limit: MAX_LOG_FILES, described: false };
        let listed = self.open_tree(&tree).ok()?.list_page(&SharePath::parse(&tree.inside).ok()?, page).ok()?;
        let last = listed.entries.iter().map(corro_shares::Entry::modified).max()?;
        SystemTime::now().duration_since(last).ok()
    }
}

fn step(entry: HistoryEntry) -> JobStep {
    let mut detail = entry.detail;
    if let Value::Object(fields) = &mut detail {
        fields.remove("from");
        if fields.is_empty() {
            detail = Value::Null;
        }
    }
    JobStep { time: entry.time, what: entry.what, detail }
}
