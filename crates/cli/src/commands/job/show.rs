//! `corro job show`: a job in a few lines: its state, where it runs, when it was submitted, and what to look at next.

use std::time::SystemTime;

use clap::Args;
use corro_model::Timestamp;
use corro_model::batchai::{ExecutionInfo, ExecutionState, Job};
use corro_model::explain;
use corro_model::ops::{ClustersGet, JobsGet};
use corro_model::time::Span;

use crate::error::CliError;
use crate::output::units::{format_age, format_count};
use crate::output::{Shape, TableKind, escape_controls};
use crate::resource::resource_ref::ResourceRef;
use crate::resource::short_names::RecentJobArgs;
use crate::session::{GlobalArgs, Session};
use crate::stdio::print;

#[derive(Args, Debug)]
pub struct ShowArgs {
    #[command(flatten)]
    job: RecentJobArgs,
    #[command(flatten)]
    global: GlobalArgs,
}

pub async fn run(args: ShowArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let target = args.job.find(&session).await?;
    let job = session.client()?.get::<JobsGet>(&target.values()).await.map_err(|error| target.show_error(error))?;
    if args.global.is_output_chosen() {
        return session.print(Shape::Job, Some(TableKind::Job), &job);
    }
    for line in describe(&job, &target, Timestamp::from(SystemTime::now())) {
        print(escape_controls(&line));
    }
    Ok(())
}

/// The job in lines. Pure.
fn describe(job: &Job, target: &ResourceRef, now: Timestamp) -> Vec<String> {
    let (spec, status) = (&job.properties.spec, &job.properties.status);
    let info = status.execution_info.as_ref();
    let created = job.properties.provisioning.creation_time;
    let place = [("experiment", "experiment"), ("workspace", "workspace"), ("group", "resource group")];
    let place: Vec<String> = place.iter().map(|(name, noun)| format!("{noun} {}", target.name(name))).collect();
    let mut lines = vec![format!("Job {} of {}", job.name, place.join(", "))];
    let mut field = |name: &str, value: String| lines.push(format!("  {:<11}{value}", format!("{name}:")));
    field("State", state_text(job, now));
    let size = status.size_changes.last().filter(|_| status.execution_state == ExecutionState::Running);
    let n_nodes = size.map_or(spec.node_count, |change| change.node_count);
    let nodes = format_count(n_nodes.into(), "node");
    let nodes = match &spec.elastic {
        Some(elastic) => format!("{nodes} (from {} to {})", elastic.min_node_count, elastic.max_node_count),
        None => nodes,
    };
    let cluster = spec.cluster.as_ref().and_then(|cluster| cluster_name(&cluster.id));
    field("Runs on", cluster.map_or(nodes.clone(), |cluster| format!("{nodes} of cluster {cluster}")));
    if let Some(change) = size {
        field("Size", format!("{}, {}", change.reason.message, time_text(change.time, now)));
    }
    let tool = serde_json::to_value(job.properties.tool_type).unwrap_or_default();
    // Each node of an elastic job has as many as it would have at the size asked for.
    let ranks = spec.rank_count() * n_nodes as usize / spec.node_count.max(1) as usize;
    let ranks = if ranks > 1 { format!(", {ranks} ranks") } else { String::new() };
    field("Kind", format!("{}{ranks}", tool.as_str().unwrap_or_default()));
    field("Submitted", time_text(created, now));
    if let Some(info) = info {
        field("Started", time_text(info.start_time, now));
    }
    if let Some(end) = info.and_then(|info| info.end_time) {
        field("Ended", time_text(end, now));
    }
    lines.push(next_step(job, target));
    lines
}

fn state_text(job: &Job, now: Timestamp) -> String {
    let status = &job.properties.status;
    let info = status.execution_info.as_ref();
    let took = |info: &ExecutionInfo| Span(info.end_time.unwrap_or(now).since(info.start_time)).in_words();
    let code = info.and_then(|info| info.exit_code).map(|code| format!(" with exit code {code}")).unwrap_or_default();
    match (status.execution_state, info) {
        (ExecutionState::Queued, _) => match &status.waiting_for {
            Some(why) => format!("queued: {why}"),
            None => "queued".to_owned(),
        },
        (ExecutionState::Running, Some(info)) => format!("running for {}", took(info)),
        (ExecutionState::Running, None) => "running".to_owned(),
        (ExecutionState::Terminating, _) => "is being stopped".to_owned(),
        (ExecutionState::Succeeded, Some(info)) => format!("succeeded after {}", took(info)),
        (ExecutionState::Succeeded, None) => "succeeded".to_owned(),
        (ExecutionState::Failed, Some(info)) => {
            format!("failed{code} after {}: {}", took(info), explain::reason(job))
        }
        (ExecutionState::Failed, None) => format!("failed: {}", explain::reason(job)),
    }
}

fn time_text(time: Timestamp, now: Timestamp) -> String {
    format!("{} ({})", time.whole_seconds(), format_age(now.since(time)))
}

fn cluster_name(id: &str) -> Option<String> {
    Some(ResourceRef::from_id::<ClustersGet>("NAME", id).ok()?.name("cluster").to_owned())
}

/// The command that says more.
fn next_step(job: &Job, target: &ResourceRef) -> String {
    let name = format!("{} {}", job.name, target.parent_arguments());
    match job.properties.status.execution_state {
        ExecutionState::Queued => format!("See why it waits with 'corro job why {name}'."),
        ExecutionState::Failed => format!("See what to do with 'corro job why {name}'."),
        _ => format!("See its output with 'corro job logs {name}'."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::parse("2018-06-21T17:00:00Z")
            .map(|time| Timestamp::from_millis(time.millis() + seconds * 1000))
            .expect("a time")
    }

    fn check(status: Value, expected: &[&str]) {
        let mut properties = json!({
            "experimentName": "e", "jobOutputDirectoryPathSegment": "x", "toolType": "horovod",
            "horovodSettings": {"pythonScriptFilePath": "a.py", "processCount": 4},
            "cluster": {"id": "/subscriptions/s/resourceGroups/g/providers/Microsoft.BatchAI/workspaces/w/clusters/nc6"},
            "nodeCount": 2, "stdOutErrPathPrefix": "p", "creationTime": at(0), "provisioningState": "succeeded",
            "provisioningStateTransitionTime": at(0), "executionStateTransitionTime": at(0)
        });
        properties.as_object_mut().expect("an object").extend(status.as_object().expect("an object").clone());
        let job = json!({"id": "i", "name": "j", "type": "t", "properties": properties});
        let job: Job = serde_json::from_value(job).expect("a job");
        let names = [("group", "g"), ("workspace", "w"), ("experiment", "e"), ("job", "j")];
        let target =
            ResourceRef::from_names(&names.map(|(parameter, name)| (parameter, "", Some(name)))).expect("names");
        assert_eq!(describe(&job, &target, at(600)), expected);
    }

    #[test]
    fn a_running_job() {
        check(
            json!({"executionState": "running", "executionInfo": {"startTime": at(120)}}),
            &[
                "Job j of experiment e, workspace w, resource group g",
                "  State:     running for 8 min",
                "  Runs on:   2 nodes of cluster nc6",
                "  Kind:      horovod, 4 ranks",
                "  Submitted: 2018-06-21T17:00:00Z (10 min ago)",
                "  Started:   2018-06-21T17:02:00Z (8 min ago)",
                "See its output with 'corro job logs j -g g -w w -e e'.",
            ],
        );
    }

    #[test]
    fn a_failed_job() {
        check(
            json!({"executionState": "failed", "executionInfo": {"startTime": at(120), "endTime": at(130), "exitCode": 3,
                   "errors": [{"code": "JobFailed", "message": "Job failed with non-zero exit code"}]}}),
            &[
                "Job j of experiment e, workspace w, resource group g",
                "  State:     failed with exit code 3 after 10 s: Job failed with non-zero exit code",
                "  Runs on:   2 nodes of cluster nc6",
                "  Kind:      horovod, 4 ranks",
                "  Submitted: 2018-06-21T17:00:00Z (10 min ago)",
                "  Started:   2018-06-21T17:02:00Z (8 min ago)",
                "  Ended:     2018-06-21T17:02:10Z (7 min ago)",
                "See what to do with 'corro job why j -g g -w w -e e'.",
            ],
        );
    }
}
