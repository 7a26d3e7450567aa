//! State and metric of each trial of a sweep, and their order. Reads curves from the server; those of ended trials once.

use std::collections::HashMap;
use std::sync::Mutex;

use corro_client::Client;
use corro_model::Timestamp;
use corro_model::batchai::{ExecutionState, Job, SweepGoal, SweepParameter};
use corro_model::metrics::{Axis, JobMetrics, Point};
use corro_model::ops::{JobsMetrics, NoBody};
use corro_model::state::STOPPED_EARLY;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};

use super::find::{Sweep, job_in, trial_of};
use crate::error::CliError;
use crate::resource::resource_ref::ResourceRef;

/// Curves that are read at the same time.
const PARALLEL_REQUESTS: usize = 8;
/// Best and last value stay in a curve of few points.
const CURVE_POINTS: &str = "16";
/// Error of a job that somebody terminated.
const TERMINATED: &str = "JobTerminated";

/// A trial as people see it.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialStatus {
    pub number: u32,
    pub job: String,
    pub parameters: Vec<SweepParameter>,
    pub state: TrialState,
    pub curve: Option<TrialCurve>,
    pub start: Option<Timestamp>,
    pub end: Option<Timestamp>,
    /// Why a queued trial waits, and why one failed or was stopped.
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialState {
    Queued,
    Running,
    Stopping,
    Succeeded,
    /// By the rule of the sweep.
    StoppedEarly,
    /// By a user.
    Stopped,
    Failed,
}

impl TrialState {
    pub fn of(job: &Job) -> TrialState {
        let status = &job.properties.status;
        let error = status.execution_info.as_ref().and_then(|info| info.errors.first());
        match (status.execution_state, error.map(|error| error.code.as_str())) {
            (ExecutionState::Queued, _) => TrialState::Queued,
            (ExecutionState::Running, _) => TrialState::Running,
            (ExecutionState::Terminating, _) => TrialState::Stopping,
            (ExecutionState::Succeeded, _) => TrialState::Succeeded,
            (ExecutionState::Failed, Some(STOPPED_EARLY)) => TrialState::StoppedEarly,
            (ExecutionState::Failed, Some(TERMINATED)) => TrialState::Stopped,
            (ExecutionState::Failed, _) => TrialState::Failed,
        }
    }

    pub fn is_terminal(self) -> bool {
        !matches!(self, TrialState::Queued | TrialState::Running | TrialState::Stopping)
    }

    pub fn text(self) -> &'static str {
        match self {
            TrialState::Queued => "queued",
            TrialState::Running => "running",
            TrialState::Stopping => "stopping",
            TrialState::Succeeded => "succeeded",
            TrialState::StoppedEarly => "stopped early",
            TrialState::Stopped => "stopped",
            TrialState::Failed => "failed",
        }
    }
}

/// What matters of a trial's metric. Points are steps and values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialCurve {
    pub best: (f64, f64),
    pub last: (f64, f64),
    pub axis: Axis,
}

impl TrialCurve {
    /// The curve of all ranks together in an answer of the server; `None` without a number.
    fn of(metrics: &JobMetrics, metric: &str, goal: SweepGoal) -> Option<TrialCurve> {
        let series = metrics.series.iter().filter(|series| series.name == metric);
        let series = series.min_by_key(|series| series.rank)?;
        let pair = |point: &Point| (point.step, point.value);
        let best = series.points.iter().map(pair).reduce(|best, point| match goal.is_better(point.1, best.1) {
            true => point,
            false => best,
        })?;
        Some(TrialCurve { best, last: series.points.last().map(pair)?, axis: series.axis })
    }
}

/// Reads the states of a sweep's trials again and again.
#[derive(Default)]
pub struct StatusReader {
    /// Curves of ended trials, by the job's id.
    ended: Mutex<HashMap<String, Option<TrialCurve>>>,
}

impl StatusReader {
    /// All trials that exist, best first.
    pub async fn read(&self, client: &Client, sweep: &Sweep) -> Result<Vec<TrialStatus>, CliError> {
        let definition = sweep.any_trial();
        let goal = definition.goal;
        let known = self.ended.lock().expect("no one panics while holding the lock").clone();
        let due = sweep.trials.iter().filter(|job| !known.contains_key(&job.id) && has_output(job));
        let read: Vec<(String, bool, Option<TrialCurve>)> =
            stream::iter(due.map(|job| (job, definition.metric.as_deref())))
                .map(|(job, metric)| async move {
                    let Some(metric) = metric else { return Ok((job.id.clone(), true, None)) };
                    let metrics = read_metrics(client, &job_in(&sweep.any_job, &job.name)?, metric).await?;
                    Ok::<_, CliError>((job.id.clone(), metrics.ended, TrialCurve::of(&metrics, metric, goal)))
                })
                .buffer_unordered(PARALLEL_REQUESTS)
                .try_collect()
                .await?;
        let ended = read.iter().filter(|(_, is_ended, _)| *is_ended).map(|(id, _, curve)| (id.clone(), *curve));
        self.ended.lock().expect("no one panics while holding the lock").extend(ended);
        let curves: HashMap<String, Option<TrialCurve>> =
            known.into_iter().chain(read.into_iter().map(|(id, _, curve)| (id, curve))).collect();
        let curve_of = |job: &Job| curves.get(&job.id).copied().flatten();
        let mut trials: Vec<TrialStatus> =
            sweep.trials.iter().filter_map(|job| TrialStatus::of(job, curve_of(job))).collect();
        sort_best_first(&mut trials, goal);
        Ok(trials)
    }
}

/// Names of the metrics that a trial has.
pub async fn metric_names(client: &Client, sweep: &Sweep) -> Result<Vec<String>, CliError> {
    let mut names: Vec<String> = Vec::new();
    if let Some(job) = sweep.trials.iter().find(|job| has_output(job)) {
        let metrics = read_metrics(client, &job_in(&sweep.any_job, &job.name)?, "").await?;
        names.extend(metrics.series.into_iter().map(|series| series.name));
        names.dedup();
    }
    Ok(names)
}

/// Reads a metric of a job to the end of its present output; all metrics if `metric` is empty.
async fn read_metrics(client: &Client, target: &ResourceRef, metric: &str) -> Result<JobMetrics, CliError> {
    let query = [("names", metric), ("ranks", "average"), ("points", CURVE_POINTS)];
    loop {
        let answer = client.call::<JobsMetrics>(&target.values(), &query, &NoBody {}).await;
        let answer = answer.map_err(|error| {
            let is_transient = error.is_transient();
            CliError { is_transient, ..target.request_error(error) }
        })?;
        // The server reads for a bounded time and remembers how far it came.
        if !answer.more {
            return Ok(answer);
        }
    }
}

fn has_output(job: &Job) -> bool {
    job.properties.status.execution_info.is_some()
}

impl TrialStatus {
    fn of(job: &Job, curve: Option<TrialCurve>) -> Option<TrialStatus> {
        let (trial, status) = (trial_of(job)?, &job.properties.status);
        let info = status.execution_info.as_ref();
        let error = info.and_then(|info| info.errors.first()).map(|error| error.message.clone());
        Some(TrialStatus {
            number: trial.trial,
            job: job.name.clone(),
            parameters: trial.parameters.clone(),
            state: TrialState::of(job),
            curve,
            start: info.map(|info| info.start_time),
            end: info.and_then(|info| info.end_time),
            reason: error.or_else(|| status.waiting_for.clone()),
        })
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let parameters: serde_json::Map<String, Value> =
            self.parameters.iter().map(|parameter| (parameter.name.clone(), parameter.value.clone().into())).collect();
        json!({
            "trial": self.number, "job": self.job, "state": self.state.text(), "parameters": parameters,
            "best": self.curve.map(|curve| curve.best.1), "bestStep": self.curve.map(|curve| curve.best.0),
            "last": self.curve.map(|curve| curve.last.1), "lastStep": self.curve.map(|curve| curve.last.0),
            "axis": self.curve.map(|curve| curve.axis.as_str()), "startTime": self.start, "endTime": self.end,
            "reason": self.reason,
        })
    }
}

/// The best first; then those without a value, by number.
fn sort_best_first(trials: &mut [TrialStatus], goal: SweepGoal) {
    use std::cmp::Ordering;
    trials.sort_by(|a, b| {
        let by_value = match (a.curve, b.curve) {
            (Some(a), Some(b)) if goal.is_better(a.best.1, b.best.1) => Ordering::Less,
            (Some(a), Some(b)) if goal.is_better(b.best.1, a.best.1) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            _ => Ordering::Equal,
        };
        by_value.then(a.number.cmp(&b.number))
    });
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A trial that succeeded, with these steps and values.
    pub fn trial(number: u32, points: &[(f64, f64)], goal: SweepGoal) -> TrialStatus {
        let points: Vec<Value> = points.iter().map(|(step, value)| json!([step, null, value])).collect();
        let series = json!([{"name": "acc", "rank": null, "axis": "epoch", "source": "lines", "points": points, "count": points.len()}]);
        let metrics: JobMetrics =
            serde_json::from_value(json!({"series": series, "next": "", "whole": true, "ended": true}))
                .expect("metrics");
        TrialStatus {
            number,
            job: format!("s-{number:03}"),
            parameters: vec![SweepParameter { name: "lr".to_owned(), value: format!("0.{number}") }],
            state: TrialState::Succeeded,
            curve: TrialCurve::of(&metrics, "acc", goal),
            start: Some(Timestamp::from_millis(1_542_000_000_000)),
            end: Some(Timestamp::from_millis(1_542_000_090_000)),
            reason: None,
        }
    }

    #[test]
    fn the_best_trial_is_first() {
        let check = |goal, expected: &[u32]| {
            let mut trials = vec![
                trial(1, &[(1.0, 0.5), (2.0, 0.4)], goal),
                trial(2, &[], goal),
                trial(3, &[(1.0, f64::NAN)], goal),
                trial(4, &[(1.0, 0.1), (2.0, 0.9)], goal),
                trial(5, &[(1.0, 0.5)], goal),
            ];
            sort_best_first(&mut trials, goal);
            assert_eq!(trials.iter().map(|trial| trial.number).collect::<Vec<_>>(), expected);
        };
        check(SweepGoal::Max, &[4, 1, 5, 3, 2]);
        check(SweepGoal::Min, &[4, 1, 5, 3, 2]);
        let curve = trial(1, &[(1.0, 0.5), (2.0, 0.4)], SweepGoal::Max).curve.expect("a curve");
        assert_eq!((curve.best, curve.last, curve.axis), ((1.0, 0.5), (2.0, 0.4), Axis::Epoch));
    }
}
