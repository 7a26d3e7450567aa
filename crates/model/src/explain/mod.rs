//! Explains in plain words why a job waits, runs, failed or ended, with the next step. Pure: computed from the job's
//! API response and its nodes. The server is the only caller; `corro job why` and the dashboard show its text.

mod advice;
mod cause;
mod diagnosis;
mod excerpt;
mod exit_status;
mod lost_gpus;
mod output_location;
mod rules;
mod stall;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::advice::reason;
pub use self::diagnosis::GPU_ERROR;
pub use self::excerpt::{MAX_TAIL_BYTES, MAX_TAIL_LINES, excerpt};
pub use self::lost_gpus::describe_lost_gpus;
pub use self::rules::{ProjectFiles, docs_keys, project_root};
pub use self::stall::describe_stall;
use crate::batchai::{
    EstimateBasis, ExecutionState, Job, JobProperties, LostAttempt, MountVolumes, NodeProcesses, QueueWait, WaitReason,
};
use crate::retry::is_retriable;
use crate::{NodeId, Timestamp};

/// Explanation of a job. Lines may contain program output, so a display must escape them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    pub state: ExecutionState,
    /// Display name of the principal that submitted the job; absent for jobs that an older version stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Status, most important first.
    pub sentences: Vec<String>,
    /// Causes of a failure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// Next steps after a failure, or alternatives that would let the job start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<String>,
    /// Attempts that ended without a result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_attempts: Vec<String>,
    /// History of the job, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<JobStep>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    pub sentence: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
    /// Last lines on stderr.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_output: Vec<String>,
    /// Key of the documentation about this error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub docs_key: Option<String>,
}

/// History entry without the actor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobStep {
    pub time: Timestamp,
    /// Kind and event: `job.placed`.
    pub what: String,
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub detail: serde_json::Value,
}

/// Names by which a command addresses a job.
#[derive(Clone, Copy, Debug)]
pub struct JobNames<'a> {
    pub group: &'a str,
    pub workspace: &'a str,
    pub experiment: &'a str,
    pub job: &'a str,
}

/// What is known about a job besides the job itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobContext<'a> {
    /// Volumes of the cluster; `None` once the cluster is deleted.
    pub volumes: Option<&'a MountVolumes>,
    /// VM size of the cluster.
    pub vm_size: Option<&'a str>,
    /// Files in the directory of the job's script, if they are on a share.
    pub project: Option<&'a ProjectFiles>,
    /// Nodes of the job, the master first.
    pub nodes: &'a [NodeId],
}

impl Explanation {
    /// Text lines for a terminal.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = self.sentences.clone();
        self.causes.iter().for_each(|cause| cause.write(&mut lines));
        if !self.remedies.is_empty() {
            let failed = self.state == ExecutionState::Failed;
            lines.push(if failed { "What to do:" } else { "Any of these would help:" }.to_owned());
            lines.extend(self.remedies.iter().map(|line| format!("  - {line}")));
        }
        lines.extend(self.lost_attempts.iter().cloned());
        let mut keys: Vec<&str> = self.causes.iter().filter_map(|cause| cause.docs_key.as_deref()).collect();
        keys.dedup();
        lines.extend(keys.iter().map(|key| format!("See 'corro docs {key}'.")));
        lines
    }

    /// Whether a cause is a missing file or module, so that the job's files may have it in another directory.
    pub fn is_about_files(&self) -> bool {
        let keys = self.causes.iter().filter_map(|cause| cause.docs_key.as_deref());
        self.state == ExecutionState::Failed && keys.into_iter().any(|key| rules::KEYS_ABOUT_FILES.contains(&key))
    }

    /// Causes and remedies of a failed job, for a reader who has seen its output.
    pub fn failure_lines(&self) -> Vec<String> {
        let causes = self.causes.iter().map(|cause| Cause { last_output: Vec::new(), ..cause.clone() });
        let failure = Explanation {
            sentences: Vec::new(),
            causes: causes.collect(),
            lost_attempts: Vec::new(),
            steps: Vec::new(),
            ..self.clone()
        };
        failure.lines()
    }
}

impl Cause {
    fn write(&self, lines: &mut Vec<String>) {
        lines.push(self.sentence.clone());
        lines.extend(self.details.iter().map(|line| format!("    {line}")));
        if !self.last_output.is_empty() {
            lines.push("Its last lines on stderr:".to_owned());
            lines.extend(self.last_output.iter().map(|line| format!("    {line}")));
        }
    }
}

/// Text about an attempt that was not the last. Output of a lost node is unknown.
pub fn lost_attempt(lost: &LostAttempt) -> String {
    let LostAttempt { number, end_time, exit_code, reason } = lost;
    if exit_code.is_some() {
        let last = reason.detail("StdErr").map_or_else(String::new, |line| format!(" Its last line on stderr: {line}"));
        return format!("Attempt {number} failed at {}: {}{last}", time(*end_time), cause::sentence(reason));
    }
    let missing = match reason.code == NODE_LOST {
        true => ". The last output of its processes on that node may be missing from the logs",
        false => "",
    };
    format!("Attempt {number} ended at {} without a result: {}{missing}", time(*end_time), reason.message)
}

/// Error code of attempts that lost a node.
pub const NODE_LOST: &str = "NodeLost";

/// Explains `job` at the time `now`.
pub fn explain(job: &Job, names: JobNames<'_>, context: JobContext<'_>, now: Timestamp) -> Explanation {
    let (properties, status) = (&job.properties, &job.properties.status);
    let info = status.execution_info.as_ref();
    let lost_attempts = status.lost_attempts.iter().map(lost_attempt);
    let mut said = Explanation {
        state: status.execution_state,
        owner: None,
        sentences: Vec::new(),
        causes: Vec::new(),
        remedies: Vec::new(),
        lost_attempts: lost_attempts.collect(),
        steps: Vec::new(),
    };
    match status.execution_state {
        ExecutionState::Queued => {
            said.sentences = queued(job, now);
            said.sentences.extend(retry(properties));
            said.remedies = remedies_of(status.waiting.as_ref());
        }
        ExecutionState::Running => {
            said.sentences = running(job, context.nodes, now);
            said.sentences.extend(retry(properties));
            said.sentences.extend(output_location::unshared_output(&properties.spec, context.volumes));
        }
        ExecutionState::Terminating => said
            .sentences
            .push(format!("The job \"{}\" is being terminated: its processes have a few seconds to exit.", job.name)),
        ExecutionState::Succeeded => {
            said.sentences.push(format!("The job \"{}\" is done: all its processes ended with exit code 0.", job.name));
            said.sentences.extend(run_summary(properties));
        }
        ExecutionState::Failed => {
            let code = info.and_then(|info| info.exit_code);
            let code = code.map_or_else(String::new, |code| format!(" with exit code {code}"));
            said.sentences.push(format!("The job \"{}\" failed{code}.", job.name));
            said.sentences.extend(run_summary(properties));
            said.sentences.extend(exhausted_retries(properties));
            let errors = info.iter().flat_map(|info| &info.errors);
            let diagnosed: Vec<_> =
                errors.map(|error| (error, diagnosis::diagnose(error, &properties.spec, context))).collect();
            said.causes = diagnosed.iter().map(|(error, known)| cause::cause(error, known.as_ref())).collect();
            said.remedies = advice::advice(job, names, context.volumes, &diagnosed);
        }
    }
    said
}

fn remedies_of(waiting: Option<&QueueWait>) -> Vec<String> {
    let waiting = waiting.filter(|waiting| waiting.reason != WaitReason::Starting);
    waiting.map_or_else(Vec::new, |waiting| waiting.unblocked_by.clone())
}

/// Number of the retry of a job that a failure put back into the queue.
fn retry(properties: &JobProperties) -> Option<String> {
    let (failed, most) = (failed_attempts(properties), properties.spec.constraints.max_retry_count);
    (failed > 0).then(|| format!("It was put back into the queue after a failure: this is retry {failed} of {most}."))
}

fn exhausted_retries(properties: &JobProperties) -> Option<String> {
    let (failed, most) = (failed_attempts(properties), properties.spec.constraints.max_retry_count);
    let last = properties.status.execution_info.as_ref()?.errors.first()?;
    (failed > 0 && is_retriable(last))
        .then(|| format!("It failed in {} attempts: constraints.maxRetryCount is {most}.", failed + 1))
}

fn failed_attempts(properties: &JobProperties) -> usize {
    properties.status.lost_attempts.iter().filter(|attempt| attempt.exit_code.is_some()).count()
}

/// Waiting and running time of an ended job.
fn run_summary(properties: &JobProperties) -> Option<String> {
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
        // Older servers send no reason.
        let why = status.waiting_for.as_deref().unwrap_or("the server gives no reason");
        return vec![format!("The job \"{}\" waits: {why}.", job.name)];
    };
    if waiting.reason == WaitReason::Starting {
        return vec![format!("The job \"{}\" is about to start on cluster {cluster}.", job.name)];
    }
    let why = status.waiting_for.as_deref().unwrap_or_default();
    if waiting.reason == WaitReason::Dependencies {
        let since =
            format!("It was submitted {waited} ago and takes no place in the queue of cluster {cluster} until then.");
        return vec![format!("The job \"{}\" waits: {why}.", job.name), since];
    }
    vec![
        format!("The job \"{}\" waits: {why}.", job.name),
        format!("It was submitted {waited} ago and is number {} in the queue of cluster {cluster}.", waiting.position),
        estimate(waiting),
    ]
}

fn estimate(waiting: &QueueWait) -> String {
    let Some(start) = waiting.estimated_start else {
        return "It cannot start without a change.".to_owned();
    };
    match waiting.estimate_basis {
        None | Some(EstimateBasis::Nodes) => "It starts as soon as its nodes are ready.".to_owned(),
        Some(EstimateBasis::History) => {
            format!(
                "It may start at about {}, estimated from the epochs of running jobs and the run times of jobs of \
                 the same experiments.",
                time(start)
            )
        }
        Some(EstimateBasis::HistoryAndLimits) => format!(
            "It may start at about {}, estimated from earlier run times where they are known, and from wall-clock \
             limits otherwise.",
            time(start)
        ),
        Some(EstimateBasis::Limits) => {
            format!(
                "It starts at {} at the latest, if the jobs before it use their whole wall-clock limits.",
                time(start)
            )
        }
    }
}

fn running(job: &Job, on: &[NodeId], now: Timestamp) -> Vec<String> {
    let properties = &job.properties;
    let Some(info) = &properties.status.execution_info else { return Vec::new() };
    let count = match &properties.spec.elastic {
        Some(_) if !on.is_empty() => on.len(),
        _ => properties.spec.node_count.max(0) as usize,
    };
    let nodes = match count {
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
    lines.extend(sizes(properties));
    if let Some(giving) = &properties.status.giving_way {
        lines.push(format!(
            "It is being evicted. {}. Its processes have received SIGTERM; those that still run at {} are killed.",
            giving.reason.message,
            time(giving.until)
        ));
    }
    lines
}

/// Last changes of the size of an elastic job that explanations name.
const MAX_NAMED_CHANGES: usize = 5;

/// Range and last changes of the number of nodes of an elastic job.
fn sizes(properties: &JobProperties) -> Vec<String> {
    let Some(elastic) = &properties.spec.elastic else { return Vec::new() };
    let (min, max) = (elastic.min_node_count, elastic.max_node_count);
    let mut lines = vec![format!("It is elastic: it may have from {min} to {max} nodes.")];
    let changes = &properties.status.size_changes;
    for change in &changes[changes.len().saturating_sub(MAX_NAMED_CHANGES)..] {
        let nodes = if change.node_count == 1 { "node" } else { "nodes" };
        lines.push(format!("{} {nodes} since {}: {}.", change.node_count, time(change.time), change.reason.message));
    }
    lines
}

/// Time for which none of a job's processes has written output, as their nodes report it. `running_for` counts for a
/// process that has not written yet. `None` if a node did not answer, or if there is no process.
pub fn silence(nodes: &[NodeProcesses], running_for: Duration) -> Option<Duration> {
    if nodes.iter().any(|node| !node.answered) {
        return None;
    }
    let processes = nodes.iter().flat_map(|node| &node.processes);
    processes.map(|process| process.quiet_for_ms.map_or(running_for, Duration::from_millis)).min()
}

/// Text about a running job without log output.
pub fn silent(since: Duration) -> String {
    format!("Its processes have written no output for {} s.", since.as_secs())
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

/// Duration in whole seconds: `0:10:00`, `2 days, 0:10:00`.
fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let days = match seconds / 86_400 {
        0 => String::new(),
        1 => "1 day, ".to_owned(),
        days => format!("{days} days, "),
    };
    format!("{days}{}:{:02}:{:02}", seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Explanation of a job ten minutes after its submission.
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
        let names = JobNames { group: "g", workspace: "w", experiment: "e", job: "J" };
        let node = |i: u32| NodeId::parse(&format!("tvm-1_{i}-20180718t174802z-p")).expect("a node id");
        let job = serde_json::from_value(job).expect("a job");
        let (volumes, nodes) = (MountVolumes::default(), [node(1), node(2)]);
        let context = JobContext { volumes: Some(&volumes), nodes: &nodes, ..JobContext::default() };
        explain(&job, names, context, now).lines().join("\n")
    }

    #[test]
    fn an_elastic_job_says_why_it_has_its_size() {
        let info = json!({"startTime": "2018-06-21T17:00:00Z"});
        let change = |time: &str, nodes: i32, message: &str| json!({"time": time, "attempt": 1, "nodeCount": nodes, "reason": {"code": "c", "message": message}});
        let changes = [
            change("2018-06-21T17:00:00Z", 1, "The job started"),
            change("2018-06-21T17:05:00Z", 2, "1 node of the cluster was idle, and no job waited"),
        ];
        let text = said(json!({"executionState": "running", "executionInfo": info, "nodeCount": 4,
            "elastic": {"minNodeCount": 1, "maxNodeCount": 8}, "sizeChanges": changes}));
        for part in [
            "runs on 2 nodes of cluster nc6",
            "It is elastic: it may have from 1 to 8 nodes.",
            "1 node since 2018-06-21T17:00:00Z: The job started.",
            "2 nodes since 2018-06-21T17:05:00Z: 1 node of the cluster",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
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
             It may start at about 2018-06-21T18:00:00Z, estimated from the epochs of running jobs and the run times of jobs of the same experiments.\n\
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
             Its output is written to p on its nodes, which is not a share: to follow and keep it, mount a share and set \
             stdOutErrPathPrefix to a directory on it.\n\
             Attempt 1 ended at 2018-06-21T17:04:00Z without a result: Node n was lost while the job ran on it. \
             The last output of its processes on that node may be missing from the logs"
        );
    }

    #[test]
    fn a_job_that_waits_for_others() {
        let waiting = json!({"reason": "dependencies", "position": 0, "nodesNeeded": 2,
            "unblockedBy": ["the success of a, which is running"]});
        let text =
            said(json!({"executionState": "queued", "waitingFor": "job a must succeed first", "waiting": waiting}));
        assert_eq!(
            text,
            "The job \"J\" waits: job a must succeed first.\n\
             It was submitted 0:10:00 ago and takes no place in the queue of cluster nc6 until then.\n\
             Any of these would help:\n  \
             - the success of a, which is running"
        );
    }

    #[test]
    fn failed_attempts_are_told_from_lost_ones() {
        let failed = |number: u32| {
            json!({"number": number, "endTime": "2018-06-21T17:04:00Z", "exitCode": 3,
                "reason": {"code": "JobFailed", "message": "Job failed with non-zero exit code", "details": [
                    {"name": "Rank", "value": "0"}, {"name": "ExitCode", "value": "3"}, {"name": "StdErr", "value": "boom"}]}})
        };
        let info = json!({"startTime": "2018-06-21T17:05:00Z"});
        let limits = json!({"maxWallClockTime": "PT1H", "maxRetryCount": 2});
        let attempts = json!([failed(1)]);
        let text = said(json!({"executionState": "running", "executionInfo": info, "lostAttempts": attempts,
            "constraints": limits}));
        assert!(text.contains("It was put back into the queue after a failure: this is retry 1 of 2."), "{text}");
        let line =
            "Attempt 1 failed at 2018-06-21T17:04:00Z: Rank 0 ended with exit code 3. Its last line on stderr: boom";
        assert_eq!(text.lines().last(), Some(line));
        let info = json!({"startTime": "2018-06-21T17:05:00Z", "endTime": "2018-06-21T17:06:30Z", "exitCode": 3,
            "errors": [failed(3)["reason"]]});
        let text = said(json!({"executionState": "failed", "executionInfo": info, "constraints": limits,
            "lostAttempts": [failed(1), failed(2)]}));
        assert!(text.contains("It failed in 3 attempts: constraints.maxRetryCount is 2."), "{text}");
    }

    #[test]
    fn a_running_job_that_is_evicted() {
        let reason = json!({"code": "NodePreempted", "message": "Low-priority node n was preempted"});
        let giving = json!({"until": "2018-06-21T17:10:30Z", "reason": reason});
        let info = json!({"startTime": "2018-06-21T17:05:00Z"});
        let on_share = json!({"azureFileShares": [{"azureFileUrl": "https://a.file.x/s", "relativeMountPath": "s"}]});
        let text = said(json!({"executionState": "running", "executionInfo": info, "givingWay": giving,
            "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/s", "mountVolumes": on_share}));
        let last = "It is being evicted. Low-priority node n was preempted. Its processes have received SIGTERM; those that \
                    still run at 2018-06-21T17:10:30Z are killed.";
        assert_eq!(text.lines().last(), Some(last));
    }

    #[test]
    fn silence_is_that_of_the_last_process_to_write() {
        let process = |quiet: Value| {
            let mut process =
                json!({"pid": 1, "state": "S", "cpuPercent": 0.0, "memoryBytes": 0, "threads": 1, "processes": 1});
            process["quietForMs"] = quiet;
            process
        };
        let check = |nodes: Value, expected: Option<u64>| {
            let nodes = nodes.as_array().expect("a list").iter().map(|node| {
                let id = "tvm-1_1-20180718t174802z-p";
                let answered = !node.is_null();
                let processes = if answered { node.clone() } else { json!([]) };
                serde_json::from_value(json!({"nodeId": id, "answered": answered, "processes": processes}))
                    .expect("a node")
            });
            let found = silence(&nodes.collect::<Vec<_>>(), Duration::from_secs(60));
            assert_eq!(found, expected.map(Duration::from_millis));
        };
        check(json!([[process(json!(30_000)), process(json!(12_000))], [process(json!(20_000))]]), Some(12_000));
        check(json!([[process(json!(30_000)), process(Value::Null)]]), Some(30_000));
        check(json!([[process(Value::Null)]]), Some(60_000));
        check(json!([[process(json!(30_000))], null]), None);
        check(json!([[]]), None);
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
             - Its output was written to p on its nodes, which is not a share: to keep it, mount a share and set stdOutErrPathPrefix to a directory on it.\n\
             See 'corro docs job-failed'."
        );
    }
}
