//! `corro sweep show` and `best`: the trials of a sweep, and texts about them.

use std::time::SystemTime;

use corro_model::Timestamp;
use corro_model::batchai::SweepGoal;
use corro_model::metrics::format_value;

use super::arguments::arguments_of;
use super::find::{Sweep, SweepNameArgs};
use super::status::{StatusReader, TrialState, TrialStatus, metric_names};
use super::table::{count_text, status_table};
use crate::commands::submit::values::shell_line;
use crate::error::CliError;
use crate::output::units::format_count;
use crate::session::Session;
use crate::stdio::{note, print};
use crate::terminal;

pub async fn show(args: SweepNameArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let sweep = args.find(&session).await?;
    let trials = StatusReader::default().read(session.client()?, &sweep).await?;
    if args.global.is_output_chosen() {
        return session.print_value(&trials.iter().map(TrialStatus::json).collect());
    }
    note(headline(&sweep));
    print_table(&trials);
    note(format_args!("{}: {}", format_count(trials.len() as i64, "trial"), count_text(&trials)));
    note_problems(&session, &sweep, &trials).await
}

/// The table on standard output.
pub fn print_table(trials: &[TrialStatus]) {
    for line in status_table(trials, Timestamp::from(SystemTime::now())).lines(terminal::output_width()) {
        print(line);
    }
}

/// What the sweep looks for.
pub fn headline(sweep: &Sweep) -> String {
    let trial = sweep.any_trial();
    let goal = match (&trial.metric, trial.goal) {
        (None, _) => String::new(),
        (Some(metric), SweepGoal::Max) => format!(": highest {metric}"),
        (Some(metric), SweepGoal::Min) => format!(": lowest {metric}"),
    };
    let stopping = trial.stopping.as_ref().map_or_else(String::new, |rule| {
        let step = |power: u32| u64::from(rule.min_steps) * u64::from(rule.reduction).pow(power);
        format!("; after {}, {}, {} ... steps, the best 1/{} go on", step(0), step(1), step(2), rule.reduction)
    });
    format!("Sweep {} of experiment {}{goal}{stopping}", sweep.name, sweep.any_job.name("experiment"))
}

/// Trials that are missing, and a metric that no trial has.
pub async fn note_problems(session: &Session, sweep: &Sweep, trials: &[TrialStatus]) -> Result<(), CliError> {
    let n_missing = sweep.missing_trials().len() as i64;
    if n_missing > 0 {
        note(format_args!(
            "{} of {} do not exist yet: submit them with 'corro sweep resume {}'.",
            n_missing,
            format_count(sweep.any_trial().trial_count.into(), "trial"),
            sweep.name
        ));
    }
    let Some(metric) = &sweep.any_trial().metric else { return Ok(()) };
    let has_ended = trials.iter().any(|trial| trial.state.is_terminal());
    if trials.iter().any(|trial| trial.curve.is_some())
        || !(has_ended || trials.iter().any(|trial| trial.start.is_some()))
    {
        return Ok(());
    }
    let names = metric_names(session.client()?, sweep).await?;
    note(match names.is_empty() {
        true => format!(
            "No trial has printed the metric {metric}, nor another one. 'corro docs curves' says which output is read."
        ),
        false => format!("No trial has printed the metric {metric}. Metrics in the output: {}.", names.join(", ")),
    });
    Ok(())
}

pub async fn best(args: SweepNameArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let sweep = args.find(&session).await?;
    let trials = StatusReader::default().read(session.client()?, &sweep).await?;
    let Some(metric) = &sweep.any_trial().metric else {
        return Err(CliError::new(format!("the sweep {} has no metric, so no trial is the best", sweep.name)).hint(
            format!("see its trials with 'corro sweep show {}', or give the next sweep a --metric", sweep.name),
        ));
    };
    let best = trials.first().and_then(|trial| Some((trial, trial.curve?)));
    let Some((trial, curve)) = best else {
        note_problems(&session, &sweep, &trials).await?;
        return Err(CliError {
            exit: 3,
            ..CliError::new(format!("no trial of the sweep {} has a value of {metric}", sweep.name))
        });
    };
    if args.global.is_output_chosen() {
        return session.print_value(&trial.json());
    }
    let (step, value) = curve.best;
    print(format_args!(
        "Trial {} of {}: {metric} {} at {} {step}",
        trial.number,
        sweep.any_trial().trial_count,
        format_value(value),
        curve.axis.as_str()
    ));
    let width = trial.parameters.iter().map(|parameter| parameter.name.chars().count()).max().unwrap_or(0);
    for parameter in &trial.parameters {
        print(format_args!("  {:<width$}  {}", parameter.name, parameter.value));
    }
    print(format_args!("  arguments: {}", shell_line(&arguments_of(&sweep.any_trial().arguments, &trial.parameters))));
    if !trial.state.is_terminal() {
        note(format_args!("The trial is {}, so its value may still change.", trial.state.text()));
    }
    let n_open = trials.iter().filter(|trial| !trial.state.is_terminal()).count() as i64;
    if n_open > 0 {
        note(format_args!("{} of the sweep have not ended.", format_count(n_open, "trial")));
    }
    note(format_args!("Its results: 'corro fetch {0}'. Its log: 'corro job logs {0}'.", trial.job));
    Ok(())
}

/// The best trial in one line; `None` without a value.
pub fn best_line(sweep: &Sweep, trials: &[TrialStatus]) -> Option<String> {
    let metric = sweep.any_trial().metric.as_ref()?;
    let trial = trials.first()?;
    let (step, value) = trial.curve?.best;
    let axis = trial.curve?.axis.as_str();
    let parameters = super::table::parameter_text(&trial.parameters);
    Some(format!("Best: trial {} ({parameters}): {metric} {} at {axis} {step}", trial.number, format_value(value)))
}

/// Whether a sweep that has ended has a trial that succeeded, or that only its rule stopped.
pub fn has_result(trials: &[TrialStatus]) -> bool {
    trials.iter().any(|trial| matches!(trial.state, TrialState::Succeeded | TrialState::StoppedEarly))
}
