//! Options of `corro sweep` that make a new sweep, and what they mean together. Pure.

use clap::{Args, ValueEnum};
use corro_model::batchai::{
    DEFAULT_MIN_STEPS, DEFAULT_REDUCTION, EarlyStopping, StoppingKind, SweepGoal, SweepSearch, trial_job_name,
};
use corro_model::names::{NameKind, check_name};
use corro_model::validate::MAX_TRIALS;

use super::arguments::argument_template;
use super::definition::{SweepDefinition, goal_of_metric};
use super::space::parse_space;
use super::trials::SearchPlan;
use crate::commands::submit::options::{JobOptions, PlaceOptions};
use crate::error::CliError;
use crate::session::GlobalArgs;

#[derive(Args, Debug)]
pub struct CreateArgs {
    /// Script to run. Its arguments follow after --
    #[arg(value_name = "SCRIPT", required_unless_present = "arguments")]
    pub script: Option<String>,
    /// Arguments of the script; without a script, the command to run
    #[arg(value_name = "ARGUMENT", last = true)]
    pub arguments: Vec<String>,
    #[command(flatten)]
    pub sweep: SweepOptions,
    #[command(flatten)]
    pub job: JobOptions,
    #[command(flatten)]
    pub place: PlaceOptions,
    /// Name of the sweep, whose jobs are named NAME-001 and so on [default: the script's name with a number]
    #[arg(long, short = 'n', value_name = "NAME", help_heading = "Names")]
    pub name: Option<String>,
    /// Submit the trials and return, without waiting for their end
    #[arg(long, short = 'd')]
    pub detach: bool,
    /// Print the trials, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Start a server on this machine without asking, if none runs
    #[arg(long, short = 'y')]
    pub yes: bool,
    #[command(flatten)]
    pub global: GlobalArgs,
}

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Sweep")]
pub struct SweepOptions {
    /// Parameter and its values: lr=0.1,0.01, lr=0.1..0.9, lr=log:1e-4..1e-1 or lr=0..1:0.25. Can be repeated
    #[arg(long = "param", short = 'p', value_name = "NAME=VALUES", required = true)]
    pub parameters: Vec<String>,
    /// Number of trials [default: all combinations, if all parameters have lists]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_TRIALS)))]
    pub trials: Option<u32>,
    /// Try every combination (grid) or some at random (random) [default: grid, if all combinations are wanted]
    #[arg(long, value_enum, value_name = "SEARCH", hide_possible_values = true)]
    pub search: Option<SearchOption>,
    /// Seed of the random choice [default: chosen at random, and printed]
    #[arg(long, value_name = "N")]
    pub seed: Option<u32>,
    /// Metric by which trials are compared, such as val_acc
    #[arg(long, short = 'm', value_name = "NAME")]
    pub metric: Option<String>,
    /// Whether high (max) or low (min) values are better [default: min for losses and errors, else max]
    #[arg(long, value_enum, value_name = "GOAL", requires = "metric", hide_possible_values = true)]
    pub goal: Option<GoalOption>,
    /// Stop poor trials early: asha compares them after 1, 3, 9 ... steps and goes on with the best third
    #[arg(long, value_enum, value_name = "RULE", requires = "metric", hide_possible_values = true)]
    pub stop: Option<StopOption>,
    /// Of the trials that are compared, go on with the best 1/N [default: 3]
    #[arg(long, value_name = "N", requires = "stop", value_parser = clap::value_parser!(u32).range(2..=100))]
    pub reduction: Option<u32>,
    /// Compare trials first at this step or epoch of the metric [default: 1]
    #[arg(long, value_name = "N", requires = "stop", value_parser = clap::value_parser!(u32).range(1..))]
    pub min_steps: Option<u32>,
    /// Stop no trial from this step or epoch on
    #[arg(long, value_name = "N", requires = "stop", value_parser = clap::value_parser!(u32).range(2..))]
    pub max_steps: Option<u32>,
    /// Use or make a cluster with room for N trials at the same time [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_TRIALS)))]
    pub parallel: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SearchOption {
    Grid,
    Random,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GoalOption {
    Max,
    Min,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StopOption {
    Asha,
}

impl SweepOptions {
    /// The definition of the sweep. `arguments` are those of the program, `random_seed` is used if no seed is given.
    pub fn definition(&self, arguments: &[String], random_seed: u32) -> Result<SweepDefinition, CliError> {
        let space = parse_space(&self.parameters).map_err(CliError::usage)?;
        let search = self.search.map(|search| match search {
            SearchOption::Grid => SweepSearch::Grid,
            SearchOption::Random => SweepSearch::Random,
        });
        let plan = SearchPlan::choose(&space, search, self.trials).map_err(CliError::usage)?;
        // The seed of a grid has no effect, so that the same command is always the same sweep.
        let seed = match plan.search {
            SweepSearch::Grid => self.seed.unwrap_or(0),
            SweepSearch::Random => self.seed.unwrap_or(random_seed),
        };
        let goal = self.goal.map(|goal| match goal {
            GoalOption::Max => SweepGoal::Max,
            GoalOption::Min => SweepGoal::Min,
        });
        let stopping = self.stop.map(|StopOption::Asha| EarlyStopping {
            kind: StoppingKind::Asha,
            reduction: self.reduction.unwrap_or(DEFAULT_REDUCTION),
            min_steps: self.min_steps.unwrap_or(DEFAULT_MIN_STEPS),
            max_steps: self.max_steps,
        });
        if let Some(EarlyStopping { min_steps, max_steps: Some(most), .. }) = stopping
            && most <= min_steps
        {
            let message =
                format!("--max-steps {most} is not more than --min-steps {min_steps}, so no trial would be stopped");
            return Err(CliError::usage(message).hint("raise --max-steps, or leave --stop out"));
        }
        Ok(SweepDefinition {
            goal: goal.or(self.metric.as_deref().map(goal_of_metric)).unwrap_or_default(),
            metric: self.metric.clone(),
            stopping,
            search: plan.search,
            space: self.parameters.clone(),
            seed,
            arguments: argument_template(arguments, &space),
            trials: plan.trials(&space, seed),
        })
    }
}

/// Checks that the jobs of a sweep with this name have valid names.
pub fn check_sweep_name(name: &str) -> Result<(), CliError> {
    match !name.is_empty() && check_name(NameKind::Job, &trial_job_name(name, MAX_TRIALS)).is_ok() {
        true => Ok(()),
        false => Err(CliError::usage(format!("argument --name: '{name}' cannot be the name of a sweep"))
            .hint("use 1 to 59 letters, digits, '-' or '_', as a number is added for its jobs")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(parameters: &[&str]) -> SweepOptions {
        let parameters = parameters.iter().map(|text| (*text).to_owned()).collect();
        SweepOptions { parameters, ..SweepOptions::default() }
    }

    #[test]
    fn a_grid_needs_nothing_else() {
        let made = options(&["lr=0.1,0.01", "batch=32,64"]).definition(&["x".to_owned()], 5).expect("a definition");
        assert_eq!((made.search, made.n_trials(), made.seed, made.stopping), (SweepSearch::Grid, 4, 0, None));
        assert_eq!(made.arguments, ["x", "--lr", "{lr}", "--batch", "{batch}"]);
        assert_eq!((made.metric, made.goal), (None, SweepGoal::Max));
    }

    #[test]
    fn the_search_of_the_manual() {
        let given = SweepOptions {
            trials: Some(24),
            metric: Some("val_loss".to_owned()),
            stop: Some(StopOption::Asha),
            max_steps: Some(50),
            ..options(&["lr=log:1e-4..1e-1", "batch=32,64,128"])
        };
        let made = given.definition(&[], 5).expect("a definition");
        assert_eq!((made.search, made.n_trials(), made.seed), (SweepSearch::Random, 24, 5));
        let stopping = EarlyStopping { kind: StoppingKind::Asha, reduction: 3, min_steps: 1, max_steps: Some(50) };
        assert_eq!((made.goal, made.stopping), (SweepGoal::Min, Some(stopping)));
        let max = SweepOptions { goal: Some(GoalOption::Max), seed: Some(9), ..given.clone() };
        let made = max.definition(&[], 5).expect("a definition");
        assert_eq!((made.goal, made.seed), (SweepGoal::Max, 9));
        let few = SweepOptions { min_steps: Some(50), ..given };
        let error = few.definition(&[], 5).expect_err("no rung");
        assert_eq!(error.message, "--max-steps 50 is not more than --min-steps 50, so no trial would be stopped");
    }

    #[test]
    fn the_name_leaves_room_for_a_number() {
        assert!(check_sweep_name("rates").is_ok() && check_sweep_name(&"x".repeat(59)).is_ok());
        for name in ["", "a b", &"x".repeat(60)] {
            assert!(check_sweep_name(name).is_err(), "{name}");
        }
    }
}
