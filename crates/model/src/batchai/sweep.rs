//! Sweeps: jobs of one experiment that run the same program with different parameters. Each trial's job has the whole definition of its sweep, so any one
//! trial suffices to make the others. A Corro extension.

use serde::{Deserialize, Serialize};

/// The part of a job in a sweep. The job of trial 7 of the sweep `rates` is named `rates-007`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SweepTrial {
    /// Name of the sweep.
    pub name: String,
    /// Number of the trial, from 1.
    pub trial: u32,
    pub trial_count: u32,
    /// Values of this trial, in the order of `space`.
    pub parameters: Vec<SweepParameter>,
    /// Metric by which trials are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    #[serde(default)]
    pub goal: SweepGoal,
    /// Rule by which the server stops trials early; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<EarlyStopping>,
    #[serde(default)]
    pub search: SweepSearch,
    /// Values that each parameter can have, as `NAME=VALUES`.
    pub space: Vec<String>,
    /// Seed of the random choice of values.
    #[serde(default)]
    pub seed: u32,
    /// Arguments of the program, in which `{NAME}` stands for the value of a parameter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepParameter {
    pub name: String,
    pub value: String,
}

/// Whether high or low values of the metric are better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SweepGoal {
    #[default]
    Max,
    Min,
}

impl SweepGoal {
    /// Whether `value` is better than `other`. NaN is worse than any number.
    pub fn is_better(self, value: f64, other: f64) -> bool {
        match self {
            SweepGoal::Max => value > other || (other.is_nan() && !value.is_nan()),
            SweepGoal::Min => value < other || (other.is_nan() && !value.is_nan()),
        }
    }

    /// The better of two values.
    pub fn best(self, value: f64, other: f64) -> f64 {
        if self.is_better(other, value) { other } else { value }
    }
}

/// How the values of the trials are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SweepSearch {
    /// Every combination of values.
    Grid,
    #[default]
    Random,
}

/// Rule by which trials are stopped early.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EarlyStopping {
    pub kind: StoppingKind,
    /// Of the trials that reach a rung, the best 1/`reduction` go on.
    #[serde(default = "default_reduction")]
    pub reduction: u32,
    /// Step of the metric at the first rung. Each further rung is at `reduction` times the step of the one before.
    #[serde(default = "default_min_steps")]
    pub min_steps: u32,
    /// There are no rungs from this step on; by default there are as many as the longest trial reaches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoppingKind {
    /// Asynchronous successive halving.
    Asha,
}

pub const DEFAULT_REDUCTION: u32 = 3;
pub const DEFAULT_MIN_STEPS: u32 = 1;

fn default_reduction() -> u32 {
    DEFAULT_REDUCTION
}

fn default_min_steps() -> u32 {
    DEFAULT_MIN_STEPS
}

impl SweepTrial {
    /// Name of the trial's job.
    pub fn job_name(&self) -> String {
        trial_job_name(&self.name, self.trial)
    }

    /// Whether both are trials of one sweep. Names are compared as those of jobs.
    pub fn is_of_same_sweep(&self, other: &SweepTrial) -> bool {
        self.name.to_lowercase() == other.name.to_lowercase()
    }
}

/// Name of the job of a trial.
pub fn trial_job_name(sweep: &str, trial: u32) -> String {
    format!("{}{trial:03}", trial_job_prefix(sweep))
}

/// Beginning of the names of a sweep's jobs. Other jobs may have it too.
pub fn trial_job_prefix(sweep: &str) -> String {
    format!("{sweep}-")
}

/// Environment variable with the value of a parameter: `CORRO_PARAM_LR`.
pub fn parameter_variable(parameter: &str) -> String {
    let replaced = parameter.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' });
    format!("CORRO_PARAM_{}", replaced.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_stored_trial_reads_back() {
        let stored = json!({
            "name": "rates", "trial": 7, "trialCount": 24, "parameters": [{"name": "lr", "value": "0.01"}], "metric": "val_acc",
            "goal": "max", "stopping": {"kind": "asha", "reduction": 3, "minSteps": 1}, "search": "random",
            "space": ["lr=log:1e-4..1e-1"], "seed": 5, "arguments": ["--lr", "{lr}"],
        });
        let trial: SweepTrial = serde_json::from_value(stored.clone()).expect("a trial");
        assert_eq!(serde_json::to_value(&trial).expect("plain data"), stored);
        assert_eq!(trial.job_name(), "rates-007");
        let short = json!({"name": "r", "trial": 1, "trialCount": 1, "parameters": [], "space": [], "stopping": {"kind": "asha"}});
        let trial: SweepTrial = serde_json::from_value(short).expect("defaults");
        let stopping = EarlyStopping { kind: StoppingKind::Asha, reduction: 3, min_steps: 1, max_steps: None };
        assert_eq!((trial.goal, trial.stopping, trial.seed), (SweepGoal::Max, Some(stopping), 0));
    }

    #[test]
    fn names_of_jobs_and_variables() {
        assert_eq!([trial_job_name("s", 1), trial_job_name("s", 1000)], ["s-001", "s-1000"]);
        assert_eq!(parameter_variable("weight-decay"), "CORRO_PARAM_WEIGHT_DECAY");
    }

    #[test]
    fn not_a_number_is_worst() {
        let nan = f64::NAN;
        for (goal, best, worse) in [(SweepGoal::Max, 2.0, 1.0), (SweepGoal::Min, 1.0, 2.0)] {
            assert!(goal.is_better(best, worse) && !goal.is_better(worse, best) && !goal.is_better(best, best));
            assert!(goal.is_better(worse, nan) && !goal.is_better(nan, worse) && !goal.is_better(nan, nan));
            assert_eq!((goal.best(worse, best), goal.best(best, nan), goal.best(nan, best)), (best, best, best));
        }
    }
}
