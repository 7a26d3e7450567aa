//! Stops trials of sweeps early, by the rule that their jobs carry. Every second it reads what is new of the curves of running trials, decides with
//! [`corro_sched::successive_halving`] and terminates jobs through their state machine. It works beside the reconciler, whose passes never wait for it.
//! Nothing is stored besides the jobs: a restarted server reads the same curves and decides the same.

mod trial_curves;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use corro_model::batchai::{SweepTrial, trial_job_prefix};
use corro_model::metrics::{Axis, format_value};
use corro_model::state::{JobEvent, JobState, Termination};
use corro_model::{ApiError, ExperimentKey, JobKey};
use corro_sched::successive_halving::{EarlyStop, HalvingRule, TrialProgress};
use corro_store::{JobRecord, State};
use tokio::sync::watch;

use self::trial_curves::TrialCurves;
use crate::app::App;

/// Pause between two looks at the sweeps.
const INTERVAL: Duration = Duration::from_secs(1);
/// Longest time of reading curves in one look. Trials that are not read have their turn in the next.
const MAX_READ_TIME: Duration = Duration::from_secs(2);

/// Runs until the server stops.
pub async fn run(app: App, mut stopping: watch::Receiver<bool>) {
    let mut curves = TrialCurves::default();
    let mut has_failed = false;
    loop {
        tokio::select! {
            // An error means that the sender is gone, and the server with it.
            _ = stopping.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
        if running_sweeps(&app.snapshot()).is_empty() {
            curves.clear();
            continue;
        }
        let reader = app.clone();
        let decided = tokio::task::spawn_blocking(move || {
            let stops = decide(&reader, &mut curves, Instant::now() + MAX_READ_TIME);
            (stops, curves)
        });
        let stops = match decided.await {
            Ok((stops, read)) => {
                curves = read;
                stops
            }
            Err(error) => {
                tracing::error!(%error, "the trials of sweeps could not be compared; they are read from the beginning");
                curves = TrialCurves::default();
                continue;
            }
        };
        match stop_trials(&app, stops).await {
            Ok(()) => has_failed = false,
            // Logged once until it succeeds again.
            Err(error) if !std::mem::replace(&mut has_failed, true) => {
                tracing::error!(%error, "trials of a sweep cannot be stopped; it is tried again");
            }
            Err(_) => {}
        }
    }
}

/// A trial to stop.
#[derive(Clone, Debug, PartialEq)]
struct TrialStop {
    job: JobKey,
    guid: String,
    reason: String,
}

/// A sweep in its experiment. Its name is in lower case.
type SweepKey = (ExperimentKey, String);

/// Sweeps with a stopping rule and a running trial, each with one of its running trials.
fn running_sweeps(state: &State) -> BTreeMap<SweepKey, &SweepTrial> {
    let running = state.active_jobs().filter(|(_, job)| matches!(job.state(), JobState::Running { .. }));
    running
        .filter_map(|(key, job)| {
            let trial = job.spec.sweep.as_deref().filter(|trial| trial.stopping.is_some())?;
            Some(((key.experiment(), trial.name.to_lowercase()), trial))
        })
        .collect()
}

/// All trials of a sweep that exist.
fn trials_of<'a>(state: &'a State, (experiment, sweep): &SweepKey) -> Vec<(&'a JobKey, &'a JobRecord)> {
    let first = trial_job_prefix(sweep);
    let prefix = experiment.job(&first);
    let jobs = state.jobs_from(experiment, &first);
    jobs.take_while(|(key, _)| key.as_str().starts_with(prefix.as_str()))
        .filter(|(_, job)| job.spec.sweep.as_ref().is_some_and(|trial| trial.name.to_lowercase() == *sweep))
        .filter(|(_, job)| !job.provisioning.is_deleting())
        .collect()
}

/// Reads the curves of all sweeps with running trials until the deadline, and decides. Blocking.
fn decide(app: &App, curves: &mut TrialCurves, deadline: Instant) -> Vec<TrialStop> {
    let state = app.snapshot();
    let sweeps: Vec<_> =
        running_sweeps(&state).into_iter().map(|(key, trial)| (trial, trials_of(&state, &key))).collect();
    curves.read(app, &state, &sweeps, deadline);
    let stops = sweeps.iter().filter_map(|(trial, jobs)| {
        let rule = HalvingRule { goal: trial.goal, stopping: trial.stopping.as_ref()? };
        let progress: Vec<TrialProgress> = jobs
            .iter()
            .map(|(_, job)| TrialProgress {
                is_running: matches!(job.state(), JobState::Running { .. }),
                rungs: curves.rungs(&job.guid).to_vec(),
            })
            .collect();
        let stop = |stop: EarlyStop| {
            let (key, job) = jobs[stop.trial];
            let reason = reason(trial, &stop, curves.axis(&job.guid));
            TrialStop { job: key.clone(), guid: job.guid.clone(), reason }
        };
        Some(rule.choose_stops(&progress).into_iter().map(stop).collect::<Vec<_>>())
    });
    stops.flatten().collect()
}

/// Terminates the jobs that still run.
async fn stop_trials(app: &App, stops: Vec<TrialStop>) -> Result<(), ApiError> {
    if stops.is_empty() {
        return Ok(());
    }
    let now = app.now();
    let commit = app.store.commit_relief(move |txn| {
        for TrialStop { job: key, guid, reason } in &stops {
            let job = txn.get::<JobRecord>(key);
            if job.is_none_or(|job| job.guid != *guid || !matches!(job.state(), JobState::Running { .. })) {
                continue;
            }
            tracing::info!(job = %key, reason, "a trial is stopped early");
            let cause = Termination::StoppedEarly { reason: reason.clone() };
            if let Err(refused) = txn.job_event(key, JobEvent::TerminateRequested { cause, at: now }, now) {
                tracing::debug!(job = %key, %refused, "a trial ended by itself");
            }
        }
        Ok::<_, ApiError>(())
    });
    commit.await
}

/// The reason of a stop, as the job's error says it.
fn reason(trial: &SweepTrial, stop: &EarlyStop, axis: Axis) -> String {
    let metric = trial.metric.as_deref().unwrap_or("the metric");
    let best = match stop.n_best {
        1 => format!("the best of {} trials", stop.n_trials),
        n_best => format!("among the best {n_best} of {} trials", stop.n_trials),
    };
    let point = match axis {
        Axis::Count => "point",
        axis => axis.as_str(),
    };
    let value = format_value(stop.value);
    format!("stopped by the sweep {}: {metric} {value} at {point} {} is not {best}", trial.name, stop.step)
}

#[cfg(test)]
mod tests;
