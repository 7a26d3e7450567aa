//! Validation of the fields that Corro adds to Batch AI's jobs: working directory, Python environment, dependencies,
//! retries and notifications. Whether the jobs of `dependsOn` exist, and whether a webhook's address is allowed, is for the
//! server to check.

use std::collections::BTreeSet;

use super::limits::{MAX_DEPENDENCIES, check_count, check_path};
use super::prefix::{JOB_ROOTS, check_prefix};
use super::{MAX_NODES, refuse};
use crate::batchai::{Elastic, JobReference, JobSpec, Notifications, ToolType};
use crate::error::ApiError;
use crate::webhook::WebhookUrl;

/// Maximum of `constraints.maxRetryCount`.
const MAX_RETRY_COUNT: u32 = 100;
/// Length of the key of a webhook's signatures, in bytes.
const WEBHOOK_KEY_BYTES: std::ops::RangeInclusive<usize> = 8..=256;

pub fn check_extensions(spec: &JobSpec) -> Result<(), ApiError> {
    if let Some(directory) = &spec.working_directory {
        let message = "the directory is empty: name one, or leave it out for the job's own directory";
        check_job_path("properties.workingDirectory", directory, message)?;
    }
    check_elastic(spec)?;
    check_python_environment(spec)?;
    check_dependencies(spec)?;
    if let Some(notifications) = &spec.notifications {
        check_notifications("properties.notifications", notifications)?;
    }
    let retries = spec.constraints.max_retry_count;
    if retries > MAX_RETRY_COUNT {
        let message = format!("maxRetryCount is {retries}: use at most {MAX_RETRY_COUNT}");
        return refuse("properties.constraints.maxRetryCount", &message);
    }
    Ok(())
}

fn check_elastic(spec: &JobSpec) -> Result<(), ApiError> {
    let Some(Elastic { min_node_count: min, max_node_count: max }) = spec.elastic else { return Ok(()) };
    let (field, asked) = ("properties.elastic", spec.node_count);
    if min < 1 {
        let message = format!("minNodeCount is {min}: a job needs at least 1 node");
        return refuse(&format!("{field}.minNodeCount"), &message);
    }
    if max > MAX_NODES {
        let message = format!("maxNodeCount is {max}: a cluster has at most {MAX_NODES} nodes");
        return refuse(&format!("{field}.maxNodeCount"), &message);
    }
    if min > asked || max < asked {
        let name = if min > asked { "minNodeCount" } else { "maxNodeCount" };
        let message = format!(
            "nodeCount is {asked} and the job may have from {min} to {max} nodes: use a minNodeCount of at most, and a \
             maxNodeCount of at least, nodeCount"
        );
        return refuse(&format!("{field}.{name}"), &message);
    }
    if let Some(tool) = spec.toolkit().filter(|tool| *tool != ToolType::Horovod) {
        let message = format!(
            "a job with {} cannot change its number of nodes while it runs: use horovodSettings with a script that uses \
             hvd.elastic, or leave elastic out",
            tool.settings_field()
        );
        return refuse(field, &message);
    }
    let processes = spec.process_count();
    if processes % asked != 0 {
        let message = format!(
            "processCount is {processes} on {asked} nodes: the nodes of an elastic job run the same number of processes \
             each, so use a multiple of nodeCount"
        );
        return refuse("properties.horovodSettings.processCount", &message);
    }
    Ok(())
}

fn check_python_environment(spec: &JobSpec) -> Result<(), ApiError> {
    let Some(environment) = &spec.python_environment else { return Ok(()) };
    let field = "properties.pythonEnvironment";
    let (name, path) = match (&environment.requirements_file, &environment.conda_file) {
        (Some(path), None) => ("requirementsFile", path),
        (None, Some(path)) => ("condaFile", path),
        (None, None) => return refuse(field, "no file is given: give requirementsFile or condaFile"),
        (Some(_), Some(_)) => {
            return refuse(field, "both requirementsFile and condaFile are given: give one of them");
        }
    };
    check_job_path(&format!("{field}.{name}"), path, "the path is empty: name the file that lists the packages")?;
    if name == "condaFile" && spec.container_settings.is_some() {
        let message = "a conda environment cannot be made in a container: use an image that has the packages, or \
                       requirementsFile";
        return refuse(&format!("{field}.condaFile"), message);
    }
    Ok(())
}

/// Checks a path on a mounted volume or below the job's own directories.
fn check_job_path(field: &str, path: &str, if_empty: &str) -> Result<(), ApiError> {
    if path.trim().is_empty() {
        return refuse(field, if_empty);
    }
    check_path(field, path)?;
    check_prefix(field, path, &JOB_ROOTS)
}

fn check_dependencies(spec: &JobSpec) -> Result<(), ApiError> {
    let field = "properties.dependsOn";
    check_count(field, "jobs", spec.depends_on.len(), MAX_DEPENDENCIES)?;
    let mut seen = BTreeSet::new();
    for (i, text) in spec.depends_on.iter().enumerate() {
        let field = format!("{field}[{i}]");
        if let Err(problem) = JobReference::parse(text) {
            return refuse(&field, &problem);
        }
        if !seen.insert(text.to_lowercase()) {
            return refuse(&field, &format!("the job '{text}' is given twice: give each job once"));
        }
    }
    Ok(())
}

/// Checks the notifications of a job or an experiment, which are at `field`.
pub fn check_notifications(field: &str, notifications: &Notifications) -> Result<(), ApiError> {
    let field = &format!("{field}.webhook");
    let Some(webhook) = &notifications.webhook else {
        return refuse(field, "no webhook is given: name its url, or leave notifications out");
    };
    if let Err(problem) = WebhookUrl::parse(webhook.url.expose()) {
        return refuse(&format!("{field}.url"), &problem);
    }
    if let Some(events) = &webhook.events {
        let field = format!("{field}.events");
        if events.is_empty() {
            return refuse(&field, "the list is empty: name events, or leave it out for all of them");
        }
        let again = events.iter().enumerate().find(|(i, event)| events[..*i].contains(event));
        if let Some((_, event)) = again {
            return refuse(&field, &format!("the event '{}' is given twice: give each event once", event.name()));
        }
    }
    let key_length = webhook.secret.as_ref().map(|secret| secret.expose().len());
    if let Some(length) = key_length.filter(|length| !WEBHOOK_KEY_BYTES.contains(length)) {
        let (min, max) = (WEBHOOK_KEY_BYTES.start(), WEBHOOK_KEY_BYTES.end());
        let message =
            format!("the secret has {length} bytes: use from {min} to {max}, such as 32 random hexadecimal digits");
        return refuse(&format!("{field}.secret"), &message);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::check_job;
    use serde_json::{Value, json};

    /// Checks which field of a job is refused, and a part of the message.
    fn check(change: Value, expected: Option<(&str, &str)>) {
        let mut job =
            json!({"nodeCount": 1, "stdOutErrPathPrefix": "x", "customToolkitSettings": {"commandLine": "a"}});
        let fields = change.as_object().expect("an object").clone();
        job.as_object_mut().expect("an object").extend(fields);
        let spec: JobSpec = serde_json::from_value(job).expect("well-formed");
        let refused = check_job(&spec).err().map(|error| (error.target.unwrap_or_default(), error.message));
        match (&refused, expected) {
            (None, None) => {}
            (Some((target, message)), Some((field, part))) => {
                assert_eq!(target, &format!("properties.{field}"), "{change}");
                assert!(message.contains(part), "{change}: {message}");
            }
            _ => panic!("{change}: {refused:?}"),
        }
    }

    #[test]
    fn a_working_directory_is_on_a_volume_or_in_the_job() {
        let directory = |path: &str| json!({"workingDirectory": path});
        for good in ["$AZ_BATCHAI_JOB_MOUNT_ROOT/work/code", "$AZ_BATCHAI_JOB_TEMP", "code", "$AZ_BATCHAI_INPUT_CODE"] {
            check(directory(good), None);
        }
        check(directory(" "), Some(("workingDirectory", "the directory is empty")));
        check(directory("/etc"), Some(("workingDirectory", "not below a mounted volume")));
        check(directory("$HOME"), Some(("workingDirectory", "not below a mounted volume")));
        check(directory("code/../.."), Some(("workingDirectory", "leave '..' out")));
        check(directory(&"a".repeat(5_000)), Some(("workingDirectory", "use at most 4096")));
    }

    #[test]
    fn a_python_environment_has_one_file() {
        let environment = |value: Value| json!({"pythonEnvironment": value});
        check(environment(json!({"requirementsFile": "$AZ_BATCHAI_JOB_MOUNT_ROOT/work/requirements.txt"})), None);
        check(environment(json!({"condaFile": "environment.yml"})), None);
        check(environment(json!({})), Some(("pythonEnvironment", "no file is given")));
        let both = json!({"requirementsFile": "a", "condaFile": "b"});
        check(environment(both), Some(("pythonEnvironment", "give one of them")));
        let field = "pythonEnvironment.requirementsFile";
        check(environment(json!({"requirementsFile": ""})), Some((field, "the path is empty")));
        check(environment(json!({"requirementsFile": "/root/r.txt"})), Some((field, "not below a mounted volume")));
        let container = json!({"imageSourceRegistry": {"image": "python:3"}});
        let in_container = |value: Value| json!({"pythonEnvironment": value, "containerSettings": container});
        check(in_container(json!({"requirementsFile": "r.txt"})), None);
        check(in_container(json!({"condaFile": "e.yml"})), Some(("pythonEnvironment.condaFile", "in a container")));
    }

    #[test]
    fn dependencies_are_names_of_different_jobs() {
        check(json!({"dependsOn": ["prep", "other/prep", "other/train"]}), None);
        check(json!({"dependsOn": ["prep", "a b"]}), Some(("dependsOn[1]", "'a b' is not a valid job name")));
        check(json!({"dependsOn": ["prep", "x", "PREP"]}), Some(("dependsOn[2]", "the job 'PREP' is given twice")));
        let many = |count: usize| (0..count).map(|i| format!("job-{i}")).collect::<Vec<_>>();
        check(json!({"dependsOn": many(MAX_DEPENDENCIES)}), None);
        check(json!({"dependsOn": many(MAX_DEPENDENCIES + 1)}), Some(("dependsOn", "101 jobs are given")));
    }

    #[test]
    fn a_webhook_has_a_url_and_known_events() {
        let webhook = |webhook: Value| json!({"notifications": {"webhook": webhook}});
        let at = |field: &'static str| format!("notifications.webhook{field}");
        let url = "https://hooks.example.com/T0/canary";
        check(webhook(json!({"url": url})), None);
        check(webhook(json!({"url": url, "events": ["failed", "stopped"], "secret": "12345678"})), None);
        check(json!({"notifications": {}}), Some((&at(""), "no webhook is given")));
        check(webhook(json!({"url": "hooks.example.com"})), Some((&at(".url"), "this is not a URL")));
        check(webhook(json!({"url": "https://hooks.example.com/***"})), Some((&at(".url"), "give the whole URL")));
        check(webhook(json!({"url": url, "events": []})), Some((&at(".events"), "the list is empty")));
        let twice = json!({"url": url, "events": ["failed", "failed"]});
        check(webhook(twice), Some((&at(".events"), "'failed' is given twice")));
        check(webhook(json!({"url": url, "secret": "short"})), Some((&at(".secret"), "the secret has 5 bytes")));
        check(webhook(json!({"url": url, "secret": "x".repeat(257)})), Some((&at(".secret"), "use from 8 to 256")));
    }

    #[test]
    fn an_elastic_job_has_a_range_around_its_node_count() {
        let job = |elastic: Value, more: Value| {
            let script = json!({"pythonScriptFilePath": "a.py"});
            let mut job =
                json!({"nodeCount": 4, "elastic": elastic, "customToolkitSettings": null, "horovodSettings": script});
            job.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            job
        };
        let range = |min: i32, max: i32| json!({"minNodeCount": min, "maxNodeCount": max});
        check(job(range(2, 8), json!({})), None);
        check(job(range(4, 4), json!({})), None);
        check(job(range(0, 8), json!({})), Some(("elastic.minNodeCount", "minNodeCount is 0")));
        check(job(range(5, 8), json!({})), Some(("elastic.minNodeCount", "nodeCount is 4")));
        check(job(range(2, 3), json!({})), Some(("elastic.maxNodeCount", "from 2 to 3 nodes")));
        check(job(range(2, 100_000), json!({})), Some(("elastic.maxNodeCount", "maxNodeCount is 100000")));
        let processes =
            |count: i32| json!({"horovodSettings": {"pythonScriptFilePath": "a.py", "processCount": count}});
        check(job(range(2, 8), processes(8)), None);
        check(job(range(2, 8), processes(6)), Some(("horovodSettings.processCount", "use a multiple of nodeCount")));
        let custom = json!({"horovodSettings": null, "customToolkitSettings": {"commandLine": "a"}});
        check(job(range(2, 8), custom), Some(("elastic", "a job with customToolkitSettings")));
    }

    #[test]
    fn retries_are_bounded() {
        check(json!({"constraints": {"maxRetryCount": 100}}), None);
        check(json!({"constraints": {"maxRetryCount": 101}}), Some(("constraints.maxRetryCount", "use at most 100")));
    }
}
