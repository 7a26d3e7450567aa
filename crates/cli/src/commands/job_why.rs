//! `corro job why`: in plain words, why a job waits, runs, failed or ended. Batch AI had no such command, so it stands
//! beside the compatible ones. Says what the server told; decides nothing.

use std::time::{Duration, SystemTime};

use corro_model::batchai::{EstimateBasis, ExecutionState, Job, JobProperties, WaitReason, Waiting};
use corro_model::ops::{JobsGet, JobsListRemoteLogin};
use corro_model::{NodeId, Timestamp};

use super::job_desk::JobNameArgs;
use super::names::Names;
use super::target::Target;
use super::{job_advice, job_cause};
use crate::failure::Failure;
use crate::output::{escape_controls, python_duration};
use crate::session::{GlobalArgs, Session};
use crate::talk::tell;

pub async fn run(args: JobNameArgs) -> Result<(), Failure> {
    let target = args.target()?;
    let session = Session::open(&GlobalArgs::default())?;
    let job = session.client()?.get::<JobsGet>(&target.values()).await;
    let job = job.map_err(|error| target.failure_of_show(error))?;
    let nodes = match job.properties.status.execution_state {
        // Which nodes is good to know, and no reason to say nothing when it cannot be found out.
        ExecutionState::Running => session.client()?.list::<JobsListRemoteLogin, _>(&target.values(), &[]).await,
        _ => Ok(Vec::new()),
    };
    let nodes: Vec<NodeId> = nodes.unwrap_or_default().into_iter().map(|login| login.node_id).collect();
    for line in words(&job, &nodes, &target, SystemTime::now().into()) {
        tell(escape_controls(&line));
    }
    Ok(())
}

fn words(job: &Job, nodes: &[NodeId], target: &Target, now: Timestamp) -> Vec<String> {
    let (properties, status) = (&job.properties, &job.properties.status);
    let mut lines = match status.execution_state {
        ExecutionState::Queued => queued(job, now),
        ExecutionState::Running => running(job, nodes, target, now),
        ExecutionState::Terminating => vec![format!(
            "The job \"{}\" was told to stop; its processes are given a few seconds to end by themselves.",
            job.name
        )],
        ExecutionState::Succeeded => {
            let mut lines =
                vec![format!("The job \"{}\" is done: all its processes ended with exit code 0.", job.name)];
            lines.extend(lived(properties));
            lines
        }
        ExecutionState::Failed => failed(job, target),
    };
    lines.extend(status.lost_attempts.iter().map(|lost| {
        format!("Attempt {} ended at {} without a result: {}", lost.number, time(lost.end_time), lost.reason.message)
    }));
    lines
}

fn failed(job: &Job, target: &Target) -> Vec<String> {
    let info = job.properties.status.execution_info.as_ref();
    let code = info.and_then(|info| info.exit_code).map_or_else(String::new, |code| format!(" with exit code {code}"));
    let mut lines = vec![format!("The job \"{}\" failed{code}.", job.name)];
    lines.extend(lived(&job.properties));
    lines.extend(info.iter().flat_map(|info| &info.errors).flat_map(job_cause::lines));
    let advice = job_advice::advice(job, target);
    if !advice.is_empty() {
        lines.push("What to do:".to_owned());
        lines.extend(advice.iter().map(|line| format!("  - {line}")));
    }
    lines
}

/// How long an ended job waited and ran.
fn lived(properties: &JobProperties) -> Option<String> {
    let info = properties.status.execution_info.as_ref()?;
    let end = info.end_time?;
    let (waited, took) = (span(info.start_time.since(submitted(properties))), span(end.since(info.start_time)));
    Some(format!("It waited {waited}, ran {took} and ended at {}.", time(end)))
}

fn queued(job: &Job, now: Timestamp) -> Vec<String> {
    let (properties, status) = (&job.properties, &job.properties.status);
    let waited = span(now.since(submitted(properties)));
    let cluster = cluster(properties);
    let Some(waiting) = &status.waiting else {
        // A server that does not tell more.
        let why = status.waiting_for.as_deref().unwrap_or("the server does not say for what");
        return vec![format!("The job \"{}\" waits: {why}.", job.name)];
    };
    if waiting.reason == WaitReason::Starting {
        return vec![format!("The job \"{}\" is about to start on cluster {cluster}.", job.name)];
    }
    let why = status.waiting_for.as_deref().unwrap_or_default();
    let mut lines = vec![
        format!("The job \"{}\" waits: {why}.", job.name),
        format!("It was submitted {waited} ago and is number {} in the queue of cluster {cluster}.", waiting.position),
        estimate(waiting),
    ];
    if !waiting.unblocked_by.is_empty() {
        lines.push("Any of these would help:".to_owned());
        lines.extend(waiting.unblocked_by.iter().map(|way| format!("  - {way}")));
    }
    lines
}

fn estimate(waiting: &Waiting) -> String {
    let Some(start) = waiting.estimated_start else {
        return "Nothing that is known now will let it start by itself.".to_owned();
    };
    match waiting.estimate_basis {
        None | Some(EstimateBasis::Nodes) => "It starts as soon as its nodes are ready.".to_owned(),
        Some(EstimateBasis::History) => {
            format!("It may start at about {}, going by how long jobs of the same experiments took.", time(start))
        }
        Some(EstimateBasis::HistoryAndLimits) => format!(
            "It may start at about {}, going by how long jobs took where that is known, and by their limits otherwise.",
            time(start)
        ),
        Some(EstimateBasis::Limits) => {
            format!(
                "It may start at {}, if those before it use their whole wall-clock limits; earlier if not.",
                time(start)
            )
        }
    }
}

fn running(job: &Job, on: &[NodeId], target: &Target, now: Timestamp) -> Vec<String> {
    let properties = &job.properties;
    let Some(info) = &properties.status.execution_info else { return Vec::new() };
    let nodes = match properties.spec.node_count {
        1 => "1 node".to_owned(),
        n => format!("{n} nodes"),
    };
    let limit = properties.spec.constraints.max_wall_clock_time.0;
    let mut lines = vec![
        format!(
            "The job \"{}\" runs on {nodes} of cluster {}, for {} now: it was its turn, and they were idle.",
            job.name,
            cluster(properties),
            span(now.since(info.start_time))
        ),
        format!(
            "It was submitted {} before it started. Its wall-clock limit ends it at {} at the latest.",
            span(info.start_time.since(submitted(properties))),
            time(info.start_time.plus(limit))
        ),
    ];
    match on {
        [] => {}
        [only] => lines.push(format!("It runs on node {only}.")),
        [master, others @ ..] => {
            let others: Vec<String> = others.iter().map(ToString::to_string).collect();
            lines.push(format!("It runs on the nodes {master} (the master) and {}.", others.join(", ")));
        }
    }
    match &properties.status.giving_way {
        Some(giving) => lines.push(format!(
            "It has to give up its nodes. {}. Its processes have got SIGTERM; what is left of them at {} is killed.",
            giving.reason.message,
            time(giving.until)
        )),
        None => lines.push(format!(
            "See what its processes use with 'corro job top {} {}'.",
            job.name,
            job_advice::place(target)
        )),
    }
    lines
}

fn submitted(properties: &JobProperties) -> Timestamp {
    properties.provisioning.creation_time
}

fn cluster(properties: &JobProperties) -> &str {
    let id = properties.spec.cluster.as_ref().map_or("", |cluster| cluster.id.as_str());
    id.rsplit('/').next().unwrap_or_default()
}

fn time(time: Timestamp) -> String {
    time.whole_seconds()
}

/// Whole seconds are enough for a person.
fn span(span: Duration) -> String {
    python_duration(Duration::from_secs(span.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// What is said of a job ten minutes after its submission.
    fn said(status: Value) -> String {
        let mut properties = json!({
            "experimentName": "e", "jobOutputDirectoryPathSegment": "x", "toolType": "custom",
            "cluster": {"id": "/subscriptions/0/resourceGroups/g/providers/Microsoft.BatchAI/workspaces/w/clusters/nc6"},
            "nodeCount": 2, "stdOutErrPathPrefix": "p", "constraints": {"maxWallClockTime": "PT1H"},
            "creationTime": "2018-06-21T17:00:00Z", "provisioningState": "succeeded",
            "provisioningStateTransitionTime": "2018-06-21T17:00:00Z",
            "executionStateTransitionTime": "2018-06-21T17:00:00Z"
        });
        let fields = status.as_object().expect("an object").clone();
        properties.as_object_mut().expect("an object").extend(fields);
        let job = json!({"id": "i", "name": "J", "type": "t", "properties": properties});
        let now = Timestamp::parse("2018-06-21T17:10:00Z").expect("a time");
        let target = Target::named(&[
            ("group", "-g", Some("g")),
            ("workspace", "-w", Some("w")),
            ("experiment", "-e", Some("e")),
            ("job", "-n", Some("J")),
        ]);
        let node = |i: u32| NodeId::parse(&format!("tvm-1_{i}-20180718t174802z-p")).expect("a node id");
        words(&serde_json::from_value(job).expect("a job"), &[node(1), node(2)], &target.expect("all are given"), now)
            .join("\n")
    }

    #[test]
    fn a_queued_job() {
        let waiting = json!({"reason": "nodesBusy", "position": 1, "nodesNeeded": 2,
            "estimatedStart": "2018-06-21T18:00:00Z", "estimateBasis": "history",
            "unblockedBy": ["1 more idle node: r ends by 2018-06-21T19:00:00Z"], "resizeTo": 3});
        let text = said(json!({"executionState": "queued", "waitingFor": "the job is next", "waiting": waiting}));
        assert_eq!(
            text,
            "The job \"J\" waits: the job is next.\n\
             It was submitted 0:10:00 ago and is number 1 in the queue of cluster nc6.\n\
             It may start at about 2018-06-21T18:00:00Z, going by how long jobs of the same experiments took.\n\
             Any of these would help:\n  \
             - 1 more idle node: r ends by 2018-06-21T19:00:00Z"
        );
        let starting = json!({"reason": "starting", "position": 1, "nodesNeeded": 2});
        let text = said(json!({"executionState": "queued", "waiting": starting}));
        assert_eq!(text, "The job \"J\" is about to start on cluster nc6.");
        let text = said(json!({"executionState": "queued", "waitingFor": "others"}));
        assert_eq!(text, "The job \"J\" waits: others.");
    }

    #[test]
    fn a_running_job_that_lost_a_node() {
        let lost = json!([{"number": 1, "endTime": "2018-06-21T17:04:00Z",
            "reason": {"code": "NodeLost", "message": "Node n was lost while the job ran on it"}}]);
        let info = json!({"startTime": "2018-06-21T17:05:00Z"});
        let text = said(json!({"executionState": "running", "executionInfo": info, "lostAttempts": lost}));
        assert_eq!(
            text,
            "The job \"J\" runs on 2 nodes of cluster nc6, for 0:05:00 now: it was its turn, and they were idle.\n\
             It was submitted 0:05:00 before it started. Its wall-clock limit ends it at 2018-06-21T18:05:00Z at the latest.\n\
             It runs on the nodes tvm-1_1-20180718t174802z-p (the master) and tvm-1_2-20180718t174802z-p.\n\
             See what its processes use with 'corro job top J -g g -w w -e e'.\n\
             Attempt 1 ended at 2018-06-21T17:04:00Z without a result: Node n was lost while the job ran on it"
        );
    }

    #[test]
    fn a_running_job_that_has_to_give_up_its_nodes() {
        let reason = json!({"code": "NodePreempted", "message": "Low-priority node n was preempted"});
        let giving = json!({"until": "2018-06-21T17:10:30Z", "reason": reason});
        let info = json!({"startTime": "2018-06-21T17:05:00Z"});
        let text = said(json!({"executionState": "running", "executionInfo": info, "givingWay": giving}));
        let last = "It has to give up its nodes. Low-priority node n was preempted. Its processes have got SIGTERM; what is \
                    left of them at 2018-06-21T17:10:30Z is killed.";
        assert_eq!(text.lines().last(), Some(last));
    }

    #[test]
    fn an_ended_job() {
        let info = json!({"startTime": "2018-06-21T17:05:00Z", "endTime": "2018-06-21T17:06:30Z", "exitCode": 0});
        assert_eq!(
            said(json!({"executionState": "succeeded", "executionInfo": info})),
            "The job \"J\" is done: all its processes ended with exit code 0.\n\
             It waited 0:05:00, ran 0:01:30 and ended at 2018-06-21T17:06:30Z."
        );
        let info = json!({"startTime": "2018-06-21T17:05:00Z", "endTime": "2018-06-21T17:06:30Z", "exitCode": 3,
            "errors": [{"code": "JobFailed", "message": "Job failed with non-zero exit code",
                        "details": [{"name": "Rank", "value": "1"}, {"name": "ExitCode", "value": "3"}]}]});
        let text = said(json!({"executionState": "failed", "executionInfo": info}));
        assert_eq!(
            text,
            "The job \"J\" failed with exit code 3.\n\
             It waited 0:05:00, ran 0:01:30 and ended at 2018-06-21T17:06:30Z.\n\
             Rank 1 ended with exit code 3.\n\
             What to do:\n  \
             - Its output was written to p on its nodes, which is not a share: to keep it, mount one and let stdOutErrPathPrefix point to it."
        );
    }
}
