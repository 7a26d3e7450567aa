//! Why a job is as it is: `model::explain`'s words, and the job's own lines of the history. Whoever may read the job may read
//! both; who caused what, and from where, is for owners and not told here.

use std::time::{Duration, SystemTime};

use corro_model::ApiError;
use corro_model::batchai::engines::stuck;
use corro_model::batchai::{ExecutionState, STDOUTERR};
use corro_model::explain::{self, Explanation, JobNames, JobStep, explain};
use corro_model::history::{HistoryEntry, HistoryFilter};
use corro_shares::{PageRequest, SharePath};
use serde_json::Value;

use crate::app::App;
use crate::app::jobs::output_files::output_tree;
use crate::app::resources::lookup::{JobPath, find_job};

/// More than any job has steps, but for one that was preempted for weeks.
const MOST_STEPS: usize = 200;
/// Steps of a training may be long; whoever waits for longer than this is said to hang.
const STUCK_MS: u64 = 10_000;
/// A job that has written nothing for so long is said to be silent.
const SILENT: Duration = Duration::from_secs(10);
/// Logs that are looked at.
const MOST_LOGS: usize = 1000;

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
        if let ExecutionState::Running = said.state {
            let (app, path) = (self.clone(), path.clone());
            let silent = tokio::task::spawn_blocking(move || app.silent_for(&path)).await.ok().flatten();
            said.sentences.extend(silent.filter(|silent| *silent >= SILENT).map(explain::silent));
        }
        if said.state == ExecutionState::Queued {
            let missing = self.fleet.provisioning_issues.of_cluster(&snapshot, &record.cluster);
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

impl App {
    /// How long ago the logs of a job's processes have last changed, where they lie on a share. Blocking: reads a directory.
    fn silent_for(&self, path: &JobPath) -> Option<Duration> {
        let snapshot = self.snapshot();
        let (_, job) = find_job(&snapshot, path).ok()?;
        let tree = output_tree(&snapshot, &job, STDOUTERR)?;
        let page = PageRequest { prefix: "std", from: "", limit: MOST_LOGS, described: false };
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
