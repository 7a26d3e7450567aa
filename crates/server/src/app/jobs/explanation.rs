//! Explains the state of a job: the sentences of `model::explain` and the job's history lines. Requires read access to
//! the job. Actors and addresses of the history are for owners and left out here.

use std::time::{Duration, SystemTime};

use corro_model::ApiError;
use corro_model::batchai::engines::find_stall;
use corro_model::batchai::{ExecutionState, STDOUTERR};
use corro_model::explain::{self, Explanation, JobNames, JobStep, explain};
use corro_model::history::{HistoryEntry, HistoryFilter};
use corro_shares::{PageRequest, SharePath};
use serde_json::Value;

use crate::app::App;
use crate::app::jobs::output_files::output_tree;
use crate::app::resources::lookup::{JobPath, find_job};

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
        let mut explanation = explain(&job, names, record.state().nodes(), self.now());
        // Only the nodes know whether ranks are stalled.
        if let ExecutionState::Running = explanation.state
            && let Ok(found) = self.job_processes(path, false).await
            && let Some(awaited) = find_stall(found.nodes.iter().flat_map(|node| &node.processes), STALL_THRESHOLD_MS)
        {
            explanation.sentences.push(explain::describe_stall(&awaited, &found.nodes));
        }
        if let ExecutionState::Running = explanation.state {
            let (app, path) = (self.clone(), path.clone());
            let silent = tokio::task::spawn_blocking(move || app.time_since_last_output(&path)).await.ok().flatten();
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
