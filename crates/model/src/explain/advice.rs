//! Remedies for failed jobs: those of rules about processes, and one for each error code of the server and its nodes.
//! Uses only the job's response.

use super::JobNames;
use super::output_location;
use super::rules::{Diagnosis, MAX_ADVICE};
use crate::batchai::{BatchAiError, Job, JobSpec, MountVolumes};

/// Remedies for the errors of a job, each with the failure that a rule recognised; then where to read more. Whole
/// sentences, at most three.
pub fn advice(
    job: &Job,
    names: JobNames<'_>,
    volumes: Option<&MountVolumes>,
    errors: &[(&BatchAiError, Option<Diagnosis>)],
) -> Vec<String> {
    let of_error = |(error, known): &(&BatchAiError, Option<Diagnosis>)| match known {
        Some(known) => known.finding.advice.clone(),
        None => remedy(error, &job.properties.spec, names).into_iter().collect(),
    };
    let mut lines: Vec<String> = errors.iter().flat_map(of_error).collect();
    if errors.iter().all(|(error, _)| has_output(&error.code)) {
        let is_preparing = errors.iter().any(|(error, _)| error.code == "JobPreparationFailed");
        lines.push(output_location::output(&job.properties.spec, names, volumes, is_preparing));
    }
    lines.truncate(MAX_ADVICE);
    lines
}

/// Reason of the failure, in one line.
pub fn reason(job: &Job) -> String {
    let info = job.properties.status.execution_info.as_ref();
    let error = info.and_then(|info| info.errors.first());
    match (error, info.and_then(|info| info.exit_code)) {
        (Some(error), _) => match error.detail("Info") {
            Some(info) => format!("{}: {}", error.message, info.lines().next().unwrap_or_default()),
            None => error.message.clone(),
        },
        (None, Some(code)) => format!("its exit code is {code}"),
        (None, None) => "the server gives no reason".to_owned(),
    }
}

fn remedy(error: &BatchAiError, spec: &JobSpec, names: JobNames<'_>) -> Option<String> {
    let info = error.detail("Info").unwrap_or_default();
    Some(match error.code.as_str() {
        "AZFMountError" | "BFSMountError" => return mount(info, names.group),
        "FileServerMountError" => "Check the file server with 'corro batchai file-server show' and its entry in \
                                   mountVolumes, correct what the error names, and submit the job again."
            .to_owned(),
        "UnmanagedMountError" if info.contains("mountCommand is not run for a job") => {
            "Remove the unmanaged file system from the job and let the cluster mount it: nodeSetup.mountVolumes."
                .to_owned()
        }
        "UnmanagedMountError" => {
            "Run the mount command by hand on the node, with a directory as its last argument, as the agent's user. \
             Correct it in mountVolumes, then submit the job again."
                .to_owned()
        }
        "FailedStartingContainer" => container(error.detail("Reason").unwrap_or_default()),
        "ContainerNotRemoved" => {
            "List the containers on the node's machine ('docker ps --filter label=corro.node'), remove those that \
             are left ('docker rm -f'), then resize the cluster."
                .to_owned()
        }
        "JobWallClockTimeExceeded" => {
            "Raise constraints.maxWallClockTime in the job file, or let the program resume from a checkpoint; then \
             submit the job again."
                .to_owned()
        }
        "JobTerminated" if error.message.contains("cluster was deleted") => {
            "Submit the job to another cluster, or create its cluster again.".to_owned()
        }
        "JobTerminated" if error.message.contains("cluster was resized") => {
            "Submit the job again. A resize with the option 'requeue' puts running jobs back into the queue instead."
                .to_owned()
        }
        "JobTerminated" => {
            let job = [names.group, names.workspace, names.experiment, names.job];
            format!("The server's history says who terminated it: 'corro admin history --resource {}'.", job.join("/"))
        }
        "StoppedEarly" => {
            let sweep = spec.sweep.as_ref().map_or("NAME", |sweep| sweep.name.as_str());
            format!(
                "This is how a sweep saves time, and nothing is wrong: 'corro sweep show {sweep}' compares its trials. To let \
                 every trial run to its end, start a sweep without --stop."
            )
        }
        "NodeLost" | "AgentRestarted" => {
            "Check the machines of the cluster and agent.log in the data directories of their agents: a machine \
             that runs out of memory, is suspended or reboots is lost. Then submit the job again."
                .to_owned()
        }
        "DependencyFailed" => {
            let JobNames { group, workspace, experiment, .. } = names;
            let dependency = error.detail("Dependency")?;
            let (experiment, job) = dependency.split_once('/').unwrap_or((experiment, dependency));
            let why = format!("corro job why {job} -g {group} -w {workspace} -e {experiment}");
            format!("Find out why with '{why}', fix it, and submit both jobs again under new names.")
        }
        "NotSupported" => {
            let field = error.detail("Field").unwrap_or("the field that the error names");
            format!("Change {field} in the job file as the error says and submit the job again.")
        }
        "NodePreempted" => {
            "Nodes of low-priority clusters can be preempted at any time. Let the program save its work when it \
             gets SIGTERM and resume from it, or use a dedicated cluster."
                .to_owned()
        }
        "JobDirectoryFailed" => {
            "Use a path below a mounted volume or $AZ_BATCHAI_JOB_TEMP, and check that its disk is not full; then \
             submit the job again."
                .to_owned()
        }
        "ProcessStartFailed" => {
            "The node could not start a process: its limit of processes or memory may be reached, or the command \
             line may be too long. Check agent.log in the node's directory, then submit the job again."
                .to_owned()
        }
        "RendezvousFailed" => {
            "The agent of the master node has an address (--address) that its machine does not have, or all its \
             ports are in use. Restart the agent with a correct address, then submit the job again."
                .to_owned()
        }
        "NodeStorageFailed" => {
            "Check whether the disk of the node's directory is full or read-only; then submit the job again.".to_owned()
        }
        "ProcessesNotKilled" => {
            "Such processes usually wait for a disk or a network file system that does not respond. Fix that or \
             restart the machine, resize the cluster to 0 nodes and back, then submit the job again."
                .to_owned()
        }
        "AgentFailed" => {
            "This is a bug in Corro: please report it with agent.log of the node. You can submit the job again."
                .to_owned()
        }
        "CompatibilityFailed" => {
            "Correct CORRO_COMPAT in environmentVariables of the job file, or remove it; then submit the job again."
                .to_owned()
        }
        "IsolationFailed" => {
            "Jobs must be isolated on this server, because the operator chose --isolation strict or the server has \
             more than one principal, and the node's machine cannot isolate them: run 'corro doctor' there to see \
             why."
                .to_owned()
        }
        "MpirunFailed" => {
            "Install the launcher that CORRO_MPIRUN names in the job's preparation, or remove that variable from \
             the job file: then the mpirun in the job's PATH is used, or the nodes start the ranks if there is none."
                .to_owned()
        }
        "LogWriteFailed" => "Check whether the disk of the share is full, then submit the job again.".to_owned(),
        _ => return None,
    })
}

/// Remedy for a container that did not start, by the node's reason code.
fn container(reason: &str) -> String {
    match reason {
        "PullFailed" => {
            "Check the image's name in containerSettings, and that the node's machine can reach its registry; a \
             private registry needs imageSourceRegistry.serverUrl and credentials. An image that is already on the \
             machine ('docker load', 'docker build') is used without a pull. Then submit the job again."
        }
        "NoShell" => {
            "Command lines need a shell, and this image has none: use an image with /bin/sh (most have it), or add \
             it to the image; then submit the job again."
        }
        "NoSpace" => {
            "Free space on the disk of the node's container engine ('docker system df' shows what is used, 'docker \
             image prune -a' removes unused images), then submit the job again."
        }
        "StartFailed" => {
            "The details contain the engine's own message. If it refuses a limit or a device, 'docker run' of the \
             same image on the node's machine fails in the same way; fix that and submit the job again."
        }
        _ => {
            "Install and start Docker or Podman on the nodes' machines ('corro doctor' shows what it finds there). \
             Or remove containerSettings from the job file, or ask the server's operator to start it with \
             --no-containers, which runs such jobs directly on the nodes; then submit the job again."
        }
    }
    .to_owned()
}

/// Remedy for a failed mount. Parses the messages of the server's volume check.
fn mount(info: &str, group: &str) -> Option<String> {
    let quoted = |after: &str| info.split_once(after).and_then(|(_, rest)| rest.split('\'').next());
    if let (Some(share), Some(account)) = (quoted("there is no share '"), quoted("in the account '")) {
        let make = format!("corro storage share create -n {share} --account-name {account}");
        return Some(format!("Create the share with '{make}' and submit the job again."));
    }
    if let Some(account) = quoted("there is no storage account '") {
        let make = format!("corro storage account create -g {group} -n {account}");
        return Some(format!(
            "Correct the account in mountVolumes, or create it with '{make}'; then submit the job again."
        ));
    }
    if let Some(account) = quoted("account key given for '").or_else(|| quoted("no account key was given for '")) {
        return Some(format!(
            "Remove the key from mountVolumes in the job file and submit the job again with '--storage-account-name \
             {account}': then the account's key is looked up."
        ));
    }
    let container = quoted("Azure Blob Container '")?;
    Some(format!(
        "Create the container {container} with 'corro storage container create -n {container} --account-name \
         ACCOUNT', where ACCOUNT is the account in mountVolumes; then submit the job again."
    ))
}

/// Whether a job with this error code ran a process.
fn has_output(code: &str) -> bool {
    let ran = [
        "JobFailed",
        "JobPreparationFailed",
        "JobWallClockTimeExceeded",
        "JobTerminated",
        "StoppedEarly",
        "NodeLost",
        "LogWriteFailed",
    ];
    ran.contains(&code)
}

#[cfg(test)]
mod tests {
    use super::super::JobContext;
    use super::super::diagnosis::diagnose;
    use super::*;
    use serde_json::{Value, json};

    const NAMES: JobNames<'static> = JobNames { group: "g", workspace: "w", experiment: "e", job: "j" };

    fn failed(prefix: &str, error: Value) -> Job {
        let volumes = json!({"azureFileShares": [{"azureFileUrl": "https://a.file.x/s", "relativeMountPath": "logs"}]});
        let time = "2018-06-21T17:15:18Z";
        serde_json::from_value(json!({"id": "i", "name": "j", "type": "t", "properties": {
            "experimentName": "e", "jobOutputDirectoryPathSegment": "x", "toolType": "custom", "nodeCount": 1,
            "stdOutErrPathPrefix": prefix, "mountVolumes": volumes, "creationTime": time,
            "provisioningState": "succeeded", "provisioningStateTransitionTime": time,
            "executionState": "failed", "executionStateTransitionTime": time,
            "executionInfo": {"startTime": time, "endTime": time, "errors": [error]}
        }}))
        .expect("a job")
    }

    fn error(code: &str, details: &[(&str, &str)]) -> Value {
        let details: Vec<Value> = details.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        json!({"code": code, "message": "m", "details": details})
    }

    #[test]
    fn every_known_cause_has_its_remedy() {
        let spec = failed("p", error("X", &[])).properties.spec;
        for (code, details, expected) in [
            ("IsolationFailed", vec![("Info", "x")], Some("'corro doctor'")),
            ("MpirunFailed", vec![], Some("the launcher that CORRO_MPIRUN names")),
            ("JobFailed", vec![("ExitCode", "3")], None),
            ("JobWallClockTimeExceeded", vec![], Some("Raise constraints.maxWallClockTime")),
            ("JobTerminated", vec![], Some("'corro admin history --resource g/w/e/j'")),
            ("NodeLost", vec![("Node", "n")], Some("agent.log")),
            ("NotSupported", vec![("Field", "properties.secrets (S)")], Some("Change properties.secrets (S) in")),
            ("DependencyFailed", vec![("Dependency", "a")], Some("'corro job why a -g g -w w -e e'")),
            ("DependencyFailed", vec![("Dependency", "prep/a")], Some("'corro job why a -g g -w w -e prep'")),
            ("FailedStartingContainer", vec![("Reason", "NoEngine")], Some("Install and start Docker or Podman")),
            ("FailedStartingContainer", vec![("Reason", "PullFailed")], Some("imageSourceRegistry.serverUrl")),
            ("FailedStartingContainer", vec![("Reason", "NoShell")], Some("use an image with /bin/sh")),
            ("FailedStartingContainer", vec![("Reason", "NoSpace")], Some("'docker system df'")),
            ("FailedStartingContainer", vec![("Reason", "StartFailed")], Some("engine's own message")),
            ("ContainerNotRemoved", vec![], Some("'docker rm -f'")),
            (
                "AZFMountError",
                vec![("Info", "Could not mount x: there is no share 's' in the account 'a': create it with '…'")],
                Some("'corro storage share create -n s --account-name a'"),
            ),
            (
                "AZFMountError",
                vec![("Info", "Could not mount x: there is no storage account 'a': create it with '…'")],
                Some("'corro storage account create -g g -n a'"),
            ),
            (
                "AZFMountError",
                vec![("Info", "Could not mount x: the account key given for 'a' is not one of its keys")],
                Some("'--storage-account-name a'"),
            ),
            (
                "BFSMountError",
                vec![("Info", "Could not mount x: Azure Blob Container 'c' doesn't exist")],
                Some("'corro storage container create -n c "),
            ),
            ("FileServerMountError", vec![("Info", "x")], Some("'corro batchai file-server show'")),
            ("UnmanagedMountError", vec![("Info", "x")], Some("Run the mount command by hand")),
            (
                "UnmanagedMountError",
                vec![("Info", "Could not mount x: its mountCommand is not run for a job that is isolated")],
                Some("nodeSetup.mountVolumes"),
            ),
            ("BFSMountError", vec![("Info", "something else")], None),
            ("NodePreempted", vec![("Node", "n")], Some("save its work when it gets SIGTERM")),
            ("JobDirectoryFailed", vec![("Path", "/x")], Some("below a mounted volume")),
            ("ProcessStartFailed", vec![], Some("limit of processes")),
            ("RendezvousFailed", vec![], Some("--address")),
            ("NodeStorageFailed", vec![], Some("full or read-only")),
            ("ProcessesNotKilled", vec![], Some("resize the cluster to 0 nodes and back")),
            ("AgentFailed", vec![], Some("please report it")),
            ("CompatibilityFailed", vec![], Some("Correct CORRO_COMPAT")),
            ("LogWriteFailed", vec![], Some("disk of the share is full")),
            ("Else", vec![], None),
        ] {
            let error = serde_json::from_value(error(code, &details)).expect("an error");
            let found = remedy(&error, &spec, NAMES);
            let fits = match expected {
                Some(part) => found.as_ref().is_some_and(|found| found.contains(part)),
                None => found.is_none(),
            };
            assert!(fits, "{code} {details:?}: {found:?}");
        }
    }

    /// Advice about a job, without its volumes.
    fn advice_on(job: &Job) -> Vec<String> {
        let info = job.properties.status.execution_info.as_ref().expect("a failed job");
        let diagnosed = |error| (error, diagnose(error, &job.properties.spec, JobContext::default()));
        let errors: Vec<_> = info.errors.iter().map(diagnosed).collect();
        advice(job, NAMES, None, &errors)
    }

    #[test]
    fn a_job_with_output_names_its_location() {
        let said = |prefix: &str, code: &str| advice_on(&failed(prefix, error(code, &[]))).join(" ");
        let on_share = "'corro batchai job file stream -g g -w w -e e -j j -f stderr.txt'";
        for prefix in ["$AZ_BATCHAI_JOB_MOUNT_ROOT/logs", "$AZ_BATCHAI_MOUNT_ROOT/of-the-cluster"] {
            assert!(said(prefix, "JobFailed").contains(on_share), "{prefix}");
        }
        assert!(
            said("$AZ_BATCHAI_JOB_MOUNT_ROOT/logs", "JobPreparationFailed").contains("'corro batchai job file list")
        );
        let mut job = failed("$AZ_BATCHAI_JOB_MOUNT_ROOT/logs", error("JobFailed", &[]));
        let spec = std::sync::Arc::make_mut(&mut job.properties.spec);
        spec.tensor_flow_settings = serde_json::from_value(json!({"pythonScriptFilePath": "a.py"})).expect("settings");
        let words = advice_on(&job).join(" ");
        assert!(words.contains("-f stderr-wk-0.txt'"), "{words}");
        assert!(said("$AZ_BATCHAI_JOB_TEMP", "JobFailed").contains("which is not a share"));
        assert_eq!(said("$AZ_BATCHAI_JOB_MOUNT_ROOT/logs", "Else"), "");
    }

    #[test]
    fn at_most_three_pieces_of_advice_are_given() {
        let missing = [("ExitCode", "1"), ("StdErr", "ModuleNotFoundError: No module named 'x'")];
        let lines = advice_on(&failed("$AZ_BATCHAI_JOB_MOUNT_ROOT/logs", error("JobFailed", &missing)));
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].contains("pip install x"), "{lines:?}");
    }

    #[test]
    fn the_reason_is_one_line() {
        let job = failed("p", error("X", &[("Info", "no share\nmore")]));
        assert_eq!(reason(&job), "m: no share");
        assert_eq!(reason(&failed("p", error("X", &[]))), "m");
    }
}
