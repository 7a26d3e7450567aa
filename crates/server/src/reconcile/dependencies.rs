//! Decides about queued jobs that wait for other jobs (`dependsOn`): a dependency that has succeeded is crossed off; one that
//! failed, was terminated or was deleted fails the job, and with it the jobs that wait for it. Pure. Looks only at ended
//! dependencies, so every pass decides from all of them.

use std::collections::{BTreeMap, VecDeque};

use corro_model::batchai::BatchAiError;
use corro_model::state::{JobEvent, JobState};
use corro_model::{JobKey, Timestamp};
use corro_store::State;

use super::steps::Step;
use crate::app::jobs::dependencies::reference_name;

/// Error code of jobs that were not started because a dependency did not succeed.
pub const DEPENDENCY_FAILED: &str = "DependencyFailed";

/// Error code of the state machine for jobs that were terminated.
const JOB_TERMINATED: &str = "JobTerminated";

/// Steps for all jobs that wait for a job that has ended, and for the waiting jobs of clusters that are being deleted.
pub fn decide(state: &State, now: Timestamp) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut failed: BTreeMap<&JobKey, Cause> = BTreeMap::new();
    // The failure of a job is one of the jobs that wait for it.
    let mut ended: VecDeque<&JobKey> = state.ended_dependencies().collect();
    while let Some(dependency) = ended.pop_front() {
        let cause = match state.jobs.get(dependency).map(|job| job.state()) {
            Some(JobState::Succeeded { .. }) => None,
            _ => Some(failed.get(dependency).cloned().unwrap_or_else(|| Cause::of(state, dependency))),
        };
        for key in state.dependents_of(dependency) {
            match &cause {
                None => steps.push(Step::MeetDependency(key.clone(), dependency.clone())),
                Some(cause) if !failed.contains_key(key) => {
                    let (error, cause) = cause.fail(state, key, dependency);
                    let event = JobEvent::Failed { exit_code: None, errors: vec![error], at: now };
                    steps.push(Step::EndAttempt(key.clone(), event));
                    failed.insert(key, cause);
                    ended.push_back(key);
                }
                Some(_) => {}
            }
        }
    }
    // The planner terminates the other jobs of such clusters.
    let deleting = state.clusters.iter().filter(|(_, cluster)| cluster.provisioning.is_deleting());
    let waiting = deleting.flat_map(|(cluster, _)| state.dependent_jobs_of(cluster)).map(|(key, _)| key);
    steps.extend(waiting.filter(|key| !failed.contains_key(key)).map(|key| Step::Terminate(key.clone())));
    steps
}

/// Why a job did not succeed.
#[derive(Clone)]
struct Cause {
    /// Root cause in a few words: `job train-1 failed with exit code 3`.
    root: String,
    /// The job itself was not started because of the root cause.
    is_indirect: bool,
}

impl Cause {
    /// Cause of a job that has ended or is gone.
    fn of(state: &State, key: &JobKey) -> Self {
        let direct = |root| Self { root, is_indirect: false };
        let name = reference_name(state, key, key);
        let Some(job) = state.jobs.get(key) else { return direct(format!("job {name} was deleted")) };
        let JobState::Failed { exit_code, errors, .. } = job.state() else {
            return direct(format!("job {name} did not succeed"));
        };
        let error = errors.first();
        match (error.map(|error| error.code.as_str()), exit_code) {
            (Some(JOB_TERMINATED), _) if job.provisioning.is_deleting() => direct(format!("job {name} was deleted")),
            (Some(JOB_TERMINATED), _) => direct(format!("job {name} was terminated")),
            (Some(DEPENDENCY_FAILED), _) => {
                let root = error.and_then(|error| error.details.iter().find(|detail| detail.name == "Cause"));
                let root = root.map_or_else(|| format!("job {name} was not started"), |root| root.value.clone());
                Self { root, is_indirect: true }
            }
            (_, Some(code)) => direct(format!("job {name} failed with exit code {code}")),
            (_, None) => {
                let message = error.map_or("", |error| error.message.as_str());
                // The first clause: what follows it is detail.
                let clause = message.split(": ").next().and_then(|text| text.split(". ").next()).unwrap_or_default();
                direct(format!("job {name} failed ({clause})"))
            }
        }
    }

    /// The error of a job that waited for `dependency`, and the cause for the jobs that wait for it.
    fn fail(&self, state: &State, job: &JobKey, dependency: &JobKey) -> (BatchAiError, Self) {
        let (root, name) = (&self.root, reference_name(state, job, dependency));
        let message = match self.is_indirect {
            false => format!("The job was not started because {root}: fix the cause, then submit both jobs again"),
            true => format!(
                "The job was not started because job {name}, for which it waited, was not either: {root}. Fix the cause, then submit these jobs again"
            ),
        };
        let error = BatchAiError::new(DEPENDENCY_FAILED, message).with("Dependency", name).with("Cause", root);
        (error, Self { root: root.clone(), is_indirect: true })
    }
}

#[cfg(test)]
mod tests;
