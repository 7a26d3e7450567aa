//! Validation of a job's part in a sweep.

use std::collections::BTreeSet;

use super::limits::{check_argument, check_count};
use super::refuse;
use crate::batchai::{JobSpec, SweepTrial, parameter_variable};
use crate::error::ApiError;
use crate::names::{NameKind, check_name};

/// Trials of one sweep.
pub const MAX_TRIALS: u32 = 1_000;
/// Parameters of one sweep.
pub const MAX_PARAMETERS: usize = 64;
/// Bytes of a parameter's name, its value, its values in the space, or a metric's name.
const MAX_TEXT: usize = 1_024;
/// Arguments of a program.
const MAX_ARGUMENTS: usize = 1_000;
/// Highest reduction of a stopping rule.
const MAX_REDUCTION: u32 = 100;

pub(super) fn check_sweep(spec: &JobSpec) -> Result<(), ApiError> {
    let Some(sweep) = &spec.sweep else { return Ok(()) };
    if sweep.trial_count < 1 || sweep.trial_count > MAX_TRIALS {
        let message = format!("trialCount is {}: a sweep has from 1 to {MAX_TRIALS} trials", sweep.trial_count);
        return refuse("properties.sweep.trialCount", &message);
    }
    if sweep.trial < 1 || sweep.trial > sweep.trial_count {
        let message = format!("trial is {}: the trials are numbered from 1 to {}", sweep.trial, sweep.trial_count);
        return refuse("properties.sweep.trial", &message);
    }
    if check_name(NameKind::Job, &sweep.job_name()).is_err() {
        let message = format!(
            "'{}' cannot be the name of a sweep: use at most 59 letters, digits, '-' or '_', as a number is added for its jobs",
            sweep.name.chars().take(80).collect::<String>().escape_debug()
        );
        return refuse("properties.sweep.name", &message);
    }
    check_parameters(sweep)?;
    if let Some(metric) = &sweep.metric
        && (metric.trim().is_empty() || metric.len() > MAX_TEXT)
    {
        return refuse("properties.sweep.metric", &format!("a metric's name has from 1 to {MAX_TEXT} bytes"));
    }
    check_count("properties.sweep.arguments", "arguments", sweep.arguments.len(), MAX_ARGUMENTS)?;
    sweep.arguments.iter().try_for_each(|argument| check_argument("properties.sweep.arguments", argument))?;
    check_stopping(sweep)
}

/// Checks that the job of a trial has the trial's name.
pub fn check_trial_name(spec: &JobSpec, job: &str) -> Result<(), ApiError> {
    match &spec.sweep {
        Some(sweep) if sweep.job_name().to_lowercase() != job.to_lowercase() => {
            let message = format!(
                "the job is named '{job}', but it is trial {} of the sweep '{}': name it {}",
                sweep.trial,
                sweep.name,
                sweep.job_name()
            );
            refuse("properties.sweep", &message)
        }
        _ => Ok(()),
    }
}

fn check_parameters(sweep: &SweepTrial) -> Result<(), ApiError> {
    let field = "properties.sweep.parameters";
    check_count(field, "parameters", sweep.parameters.len(), MAX_PARAMETERS)?;
    check_count("properties.sweep.space", "parameters", sweep.space.len(), MAX_PARAMETERS)?;
    if let Some(long) = sweep.space.iter().find(|values| values.len() > MAX_TEXT) {
        let message = format!("the values of a parameter have {} bytes: use at most {MAX_TEXT}", long.len());
        return refuse("properties.sweep.space", &message);
    }
    let mut variables = BTreeSet::new();
    for parameter in &sweep.parameters {
        check_parameter_name(&parameter.name).map_err(|problem| ApiError::invalid(field, problem))?;
        if !variables.insert(parameter_variable(&parameter.name)) {
            return refuse(
                field,
                &format!("the parameter '{}' is given twice: give each its own name", parameter.name),
            );
        }
        if parameter.value.len() > MAX_TEXT {
            let message = format!(
                "the value of '{}' has {} bytes: use at most {MAX_TEXT}",
                parameter.name,
                parameter.value.len()
            );
            return refuse(field, &message);
        }
    }
    Ok(())
}

/// Checks the name of a parameter, which becomes an option of the program and a part of a variable's name.
pub fn check_parameter_name(name: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    match name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(allowed) && name.len() <= MAX_TEXT {
        true => Ok(()),
        false => Err(format!(
            "'{}' is not the name of a parameter: use letters, digits, '_', '-' and '.', starting with a letter",
            name.escape_debug()
        )),
    }
}

fn check_stopping(sweep: &SweepTrial) -> Result<(), ApiError> {
    let Some(stopping) = &sweep.stopping else { return Ok(()) };
    if sweep.metric.is_none() {
        return refuse(
            "properties.sweep.metric",
            "the metric is missing: trials are stopped by comparing one, such as val_acc",
        );
    }
    if !(2..=MAX_REDUCTION).contains(&stopping.reduction) {
        let message = format!("reduction is {}: use a number from 2 to {MAX_REDUCTION}", stopping.reduction);
        return refuse("properties.sweep.stopping.reduction", &message);
    }
    if stopping.min_steps < 1 {
        return refuse("properties.sweep.stopping.minSteps", "minSteps is 0: use 1 or more");
    }
    if stopping.max_steps.is_some_and(|most| most <= stopping.min_steps) {
        return refuse(
            "properties.sweep.stopping.maxSteps",
            "maxSteps is not more than minSteps, so no trial would be stopped: raise it",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::check_job;
    use serde_json::{Value, json};

    fn spec(change: impl FnOnce(&mut Value)) -> JobSpec {
        let mut sweep = json!({
            "name": "rates", "trial": 2, "trialCount": 3, "space": ["lr=1,2,3"], "parameters": [{"name": "lr", "value": "2"}],
            "metric": "val_acc", "stopping": {"kind": "asha"},
        });
        change(&mut sweep);
        let job = json!({"nodeCount": 1, "stdOutErrPathPrefix": "x", "customToolkitSettings": {"commandLine": "a"}, "sweep": sweep});
        serde_json::from_value(job).expect("well-formed")
    }

    #[test]
    fn refusals_name_the_field() {
        let check = |field: &str, change: fn(&mut Value)| {
            let refused = check_job(&spec(change)).err().and_then(|error| error.target);
            assert_eq!(refused.as_deref(), (!field.is_empty()).then_some(field));
        };
        check("", |_| {});
        check("properties.sweep.trialCount", |s| s["trialCount"] = json!(0));
        check("properties.sweep.trialCount", |s| s["trialCount"] = json!(1_001));
        check("properties.sweep.trial", |s| s["trial"] = json!(0));
        check("properties.sweep.trial", |s| s["trial"] = json!(4));
        check("properties.sweep.name", |s| s["name"] = json!("a b"));
        check("properties.sweep.name", |s| s["name"] = json!("x".repeat(61)));
        check("properties.sweep.metric", |s| s["metric"] = json!(" "));
        check("properties.sweep.metric", |s| s["metric"] = Value::Null);
        check("", |s| (s["metric"], s["stopping"]) = (Value::Null, Value::Null));
        check("properties.sweep.parameters", |s| s["parameters"][0]["name"] = json!("1lr"));
        check("properties.sweep.parameters", |s| s["parameters"][0]["value"] = json!("x".repeat(1_025)));
        check("properties.sweep.parameters", |s| {
            s["parameters"] = json!([{"name": "a-b", "value": "1"}, {"name": "a_b", "value": "1"}]);
        });
        check("properties.sweep.space", |s| s["space"] = json!(["x".repeat(1_025)]));
        check("properties.sweep.arguments", |s| s["arguments"] = json!(vec!["x"; 1_001]));
        check("properties.sweep.stopping.reduction", |s| s["stopping"]["reduction"] = json!(1));
        check("properties.sweep.stopping.minSteps", |s| s["stopping"]["minSteps"] = json!(0));
        check("properties.sweep.stopping.maxSteps", |s| s["stopping"]["maxSteps"] = json!(1));
    }

    #[test]
    fn the_job_of_a_trial_has_its_name() {
        assert!(check_trial_name(&spec(|_| ()), "Rates-002").is_ok());
        let error = check_trial_name(&spec(|_| ()), "rates-2").expect_err("another name");
        assert_eq!(
            error.message,
            "the job is named 'rates-2', but it is trial 2 of the sweep 'rates': name it rates-002"
        );
    }
}
