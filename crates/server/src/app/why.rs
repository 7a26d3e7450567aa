//! Why a job is as it is: `model::explain`'s words, and the job's own lines of the history. Whoever may read the job may read
//! both; who caused what, and from where, is for owners and not told here.

use corro_model::ApiError;
use corro_model::batchai::ExecutionState;
use corro_model::batchai::engines::stuck;
use corro_model::explain::{self, Explanation, JobNames, JobStep, explain};
use corro_model::history::{HistoryEntry, HistoryFilter};
use serde_json::Value;

use super::App;
use super::jobs::{JobPath, find_job};

/// More than any job has steps, but for one that was preempted for weeks.
const MOST_STEPS: usize = 200;
/// Steps of a training may be long; whoever waits for longer than this is said to hang.
const STUCK_MS: u64 = 10_000;

impl App {
    pub async fn job_why(&self, path: &JobPath) -> Result<Explanation, ApiError> {
        let job = self.job(path)?;
        let snapshot = self.snapshot();
        let (_, record) = find_job(&snapshot, path)?;
        let names =
            JobNames { group: &path.group, workspace: &path.workspace, experiment: &path.experiment, job: &path.job };
        let mut said = explain(&job, names, record.state().nodes(), self.now());
        // Its ranks may hang, which only its nodes know.
        if let ExecutionState::Running = said.state
            && let Ok(found) = self.job_processes(path, false).await
            && let Some(awaited) = stuck(found.nodes.iter().flat_map(|node| &node.processes), STUCK_MS)
        {
            said.sentences.push(explain::stuck(&awaited, &found.nodes));
        }
        if said.state == ExecutionState::Queued {
            let missing = self.missing.of_cluster(&snapshot, &record.cluster);
            said.sentences.extend(missing.into_iter().map(|error| error.message + "."));
        }
        let resource = [names.group, names.workspace, names.experiment, names.job].join("/").to_lowercase();
        let (kind, since) = (Some("job".to_owned()), Some(job.properties.provisioning.creation_time));
        let filter = HistoryFilter { resource: Some(resource), kind, since, ..HistoryFilter::newest(MOST_STEPS) };
        let entries = self.read_history(filter).await?;
        said.steps = entries.into_iter().rev().map(step).collect();
        Ok(said)
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
