//! Progress of trials at the rungs of their sweeps, read from their curves. Running trials are read again each time; the result of an ended one is kept
//! in memory. All of it can be read again.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use corro_metrics::query::{CurveQuery, RankSelection};
use corro_model::JobKey;
use corro_model::batchai::SweepTrial;
use corro_model::metrics::Axis;
use corro_sched::successive_halving::HalvingRule;
use corro_store::{JobRecord, State};

use crate::app::App;
use crate::app::jobs::training_curves::CurveReaders;

/// More points than a curve has.
const ALL_POINTS: usize = 1 << 16;

#[derive(Default)]
pub struct TrialCurves {
    readers: CurveReaders,
    /// By job id.
    trials: HashMap<String, TrialCurve>,
}

#[derive(Default)]
struct TrialCurve {
    rungs: Vec<f64>,
    axis: Axis,
    /// The trial has ended and everything was read.
    is_complete: bool,
    last_read: Option<Instant>,
}

impl TrialCurves {
    /// Forgets everything, when no sweep runs.
    pub fn clear(&mut self) {
        if !self.trials.is_empty() {
            *self = TrialCurves::default();
        }
    }

    /// Best value of a trial at each rung that it has reached.
    pub fn rungs(&self, guid: &str) -> &[f64] {
        self.trials.get(guid).map_or(&[], |curve| &curve.rungs)
    }

    /// Unit of the steps of a trial.
    pub fn axis(&self, guid: &str) -> Axis {
        self.trials.get(guid).map_or_else(Axis::default, |curve| curve.axis)
    }

    /// Reads the curves of these sweeps until the deadline, those first that were not read for the longest time. Blocking.
    pub fn read(
        &mut self,
        app: &App,
        state: &State,
        sweeps: &[(&SweepTrial, Vec<(&JobKey, &JobRecord)>)],
        deadline: Instant,
    ) {
        let jobs = || sweeps.iter().flat_map(|(trial, jobs)| jobs.iter().map(move |(_, job)| (*trial, *job)));
        let current: HashSet<&str> = jobs().map(|(_, job)| job.guid.as_str()).collect();
        self.trials.retain(|guid, _| current.contains(guid.as_str()));
        let known = |job: &JobRecord| self.trials.get(&job.guid);
        // A trial that was never placed has no output.
        let mut due: Vec<_> =
            jobs().filter(|(_, job)| job.attempts > 0 && known(job).is_none_or(|curve| !curve.is_complete)).collect();
        due.sort_by_key(|(_, job)| known(job).and_then(|curve| curve.last_read));
        for (trial, job) in due {
            if Instant::now() >= deadline {
                break;
            }
            let curve = read_curve(app, &self.readers, state, trial, job);
            self.trials.insert(job.guid.clone(), curve);
        }
    }
}

fn read_curve(app: &App, readers: &CurveReaders, state: &State, trial: &SweepTrial, job: &JobRecord) -> TrialCurve {
    let query = CurveQuery {
        names: trial.metric.iter().cloned().collect(),
        ranks: RankSelection::Average,
        points: ALL_POINTS,
        after: None,
    };
    let metrics = app.read_curves(readers, state, job, &query);
    let last_read = Some(Instant::now());
    let (of_ranks, whole): (Vec<_>, Vec<_>) = metrics
        .series
        .into_iter()
        .filter(|series| Some(&series.name) == trial.metric.as_ref())
        .partition(|series| series.rank.is_some());
    let series = whole.into_iter().chain(of_ranks).next();
    let (Some(series), Some(stopping)) = (series, &trial.stopping) else {
        return TrialCurve { is_complete: metrics.ended, last_read, ..TrialCurve::default() };
    };
    let rule = HalvingRule { goal: trial.goal, stopping };
    let rungs = rule.rung_values(series.points.iter().map(|point| (point.step, point.value)));
    TrialCurve { rungs, axis: series.axis, is_complete: metrics.ended, last_read }
}
