//! Remedies for failed jobs: one for each known cause, and the location of the output. Uses only the job's response.

use super::JobNames;
use super::cause::detail;
use super::python_hints::{self, FailedProcess};
use crate::batchai::{BatchAiError, Job, JobSpec, MountVolumes};
use crate::layout::main_logs;
use crate::mount::{MountRoot, below, find_container, find_share, is_on_volume};

/// Remedies for the causes of a failure, then where to read more; whole sentences.
pub fn advice(job: &Job, names: JobNames<'_>, volumes: Option<&MountVolumes>) -> Vec<String> {
    let errors = job.properties.status.execution_info.iter().flat_map(|info| &info.errors);
    let mut lines: Vec<String> =
        errors.clone().filter_map(|error| remedy(error, &job.properties.spec, names)).collect();
    if errors.clone().all(|error| has_output(&error.code)) {
        let preparing = errors.into_iter().any(|error| error.code == "JobPreparationFailed");
        lines.push(output(&job.properties.spec, names, volumes, preparing));
    }
    lines
}

/// Reason of the failure, in one line.
pub fn reason(job: &Job) -> String {
    let info = job.properties.status.execution_info.as_ref();
    let error = info.and_then(|info| info.errors.first());
    match (error, info.and_then(|info| info.exit_code)) {
        (Some(error), _) => match detail(error, "Info") {
            Some(info) => format!("{}: {}", error.message, info.lines().next().unwrap_or_default()),
            None => error.message.clone(),
        },
        (None, Some(code)) => format!("its exit code is {code}"),
        (None, None) => "the server gives no reason".to_owned(),
    }
}

fn remedy(error: &BatchAiError, spec: &JobSpec, names: JobNames<'_>) -> Option<String> {
    let info = detail(error, "Info").unwrap_or_default();
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
        "JobFailed" | "JobPreparationFailed" => return ended(error, spec),
        "FailedStartingContainer" => container(detail(error, "Reason").unwrap_or_default()),
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
        "NodeLost" | "AgentRestarted" => {
            "Check the machines of the cluster and agent.log in the data directories of their agents: a machine \
             that runs out of memory, is suspended or reboots is lost. Then submit the job again."
                .to_owned()
        }
        "NotSupported" => {
            let field = detail(error, "Field").unwrap_or("the field that the error names");
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

/// Remedy by the last output, exit code or signal, for those with a known meaning.
fn ended(error: &BatchAiError, spec: &JobSpec) -> Option<String> {
    if detail(error, "OutOfMemory").is_some() {
        return Some(
            "Its processes needed more memory than their node has: use less memory, run fewer processes on a node, \
             or use a cluster of a VM size with more memory; then submit the job again."
                .to_owned(),
        );
    }
    if detail(error, "OutOfProcesses").is_some() {
        return Some(
            "The job reached its limit of processes and threads on a node: start fewer (data loader workers, \
             OMP_NUM_THREADS), use a cluster of a VM size with more cores, or ask the server's operator to raise \
             --max-processes; then submit the job again."
                .to_owned(),
        );
    }
    if let Some(stderr) = detail(error, "StdErr") {
        let is_preparation = error.code == "JobPreparationFailed";
        let remedy = python_hints::remedy(FailedProcess { spec, is_preparation, stderr });
        if remedy.is_some() {
            return remedy;
        }
    }
    let number = |name: &str| detail(error, name).and_then(|text| text.parse::<i32>().ok());
    // A shell reports a signal as an exit code above 128.
    let signal =
        number("Signal").or_else(|| number("ExitCode").filter(|code| (129..160).contains(code)).map(|c| c - 128));
    let words = match (signal, number("ExitCode")) {
        (Some(9), _) => {
            "It was killed (signal 9). Unless this was done by hand, the machine had no memory left: check 'dmesg' \
             on the node's machine. Use less memory, or run fewer processes on a node."
        }
        (Some(11 | 7 | 4 | 8), _) => "It crashed: a bug in the program itself or in a library that it uses.",
        (Some(6), _) => "It aborted (signal 6): its last lines of output should say why.",
        (_, Some(127)) => {
            "Exit code 127 of a shell: the program was not found. Check its name, and that it is installed on every \
             node or is on a mounted share."
        }
        (_, Some(126)) => {
            "Exit code 126 of a shell: the program was found but cannot be run. Make it executable ('chmod +x'), or \
             name its interpreter in the command line."
        }
        _ => return None,
    };
    Some(words.to_owned())
}

/// Whether a job with this error code ran a process.
fn has_output(code: &str) -> bool {
    let ran = [
        "JobFailed",
        "JobPreparationFailed",
        "JobWallClockTimeExceeded",
        "JobTerminated",
        "NodeLost",
        "LogWriteFailed",
    ];
    ran.contains(&code)
}

/// Sentence about a running job whose output is only on its nodes.
pub fn unshared_output(spec: &JobSpec, volumes: Option<&MountVolumes>) -> Option<String> {
    let prefix = &spec.std_out_err_path_prefix;
    (log_location(spec, volumes) == LogLocation::Node).then(|| {
        format!(
            "Its output is written to {prefix} on its nodes, which is not a share: to follow and keep it, mount a \
             share and set stdOutErrPathPrefix to a directory on it."
        )
    })
}

/// Kind of the volume with a job's logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogLocation {
    /// A file share or a blob container, which the server can read.
    Storage,
    /// A file server or another file system.
    OtherVolume,
    /// No volume: the disk of each node.
    Node,
}

/// Finds where a job's logs are. A path below the root of a cluster that is gone counts as on a share.
fn log_location(spec: &JobSpec, volumes: Option<&MountVolumes>) -> LogLocation {
    let (prefix, own) = (spec.std_out_err_path_prefix.as_str(), spec.mount_volumes.as_ref());
    let is_known = volumes.is_some() || below(prefix, MountRoot::Cluster).is_none();
    if !is_known || find_share(prefix, volumes, own).is_some() || find_container(prefix, volumes, own).is_some() {
        return LogLocation::Storage;
    }
    match is_on_volume(prefix, volumes, own) {
        true => LogLocation::OtherVolume,
        false => LogLocation::Node,
    }
}

fn output(spec: &JobSpec, names: JobNames<'_>, volumes: Option<&MountVolumes>, preparing: bool) -> String {
    let prefix = &spec.std_out_err_path_prefix;
    match log_location(spec, volumes) {
        LogLocation::Node => {
            return format!(
                "Its output was written to {prefix} on its nodes, which is not a share: to keep it, mount a share and \
                 set stdOutErrPathPrefix to a directory on it."
            );
        }
        LogLocation::OtherVolume => {
            return format!("Its output is in {prefix}, on a volume that is not a share: read it where it is mounted.");
        }
        LogLocation::Storage => {}
    }
    let JobNames { group, workspace, experiment, job } = names;
    let place = format!("-g {group} -w {workspace} -e {experiment} -j {job}");
    match preparing {
        true => format!("Its output is on the share: list the files with 'corro batchai job file list {place}'."),
        false => {
            let (_, log) = main_logs(spec);
            format!("Its output is on the share: 'corro batchai job file stream {place} -f {log}'.")
        }
    }
}

#[cfg(test)]
mod tests {
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
            ("JobFailed", vec![("ExitCode", "127")], Some("the program was not found")),
            ("JobFailed", vec![("ExitCode", "126")], Some("chmod +x")),
            ("JobFailed", vec![("Signal", "9")], Some("no memory left")),
            ("JobFailed", vec![("ExitCode", "137")], Some("no memory left")),
            ("JobFailed", vec![("Signal", "11")], Some("It crashed")),
            ("IsolationFailed", vec![("Info", "x")], Some("'corro doctor'")),
            ("MpirunFailed", vec![], Some("the launcher that CORRO_MPIRUN names")),
            ("JobFailed", vec![("ExitCode", "3")], None),
            (
                "JobFailed",
                vec![("ExitCode", "1"), ("StdErr", "ModuleNotFoundError: No module named 'keras'\n")],
                Some("pip install keras"),
            ),
            (
                "JobPreparationFailed",
                vec![("ExitCode", "1"), ("StdErr", "/x/.venv/bin/python: No module named ensurepip")],
                Some("python3-venv"),
            ),
            ("JobFailed", vec![("ExitCode", "255")], None),
            ("JobPreparationFailed", vec![("ExitCode", "127")], Some("the program was not found")),
            ("JobWallClockTimeExceeded", vec![], Some("Raise constraints.maxWallClockTime")),
            ("JobTerminated", vec![], Some("'corro admin history --resource g/w/e/j'")),
            ("NodeLost", vec![("Node", "n")], Some("agent.log")),
            ("NotSupported", vec![("Field", "properties.secrets (S)")], Some("Change properties.secrets (S) in")),
            ("FailedStartingContainer", vec![("Reason", "NoEngine")], Some("Install and start Docker or Podman")),
            ("FailedStartingContainer", vec![("Reason", "PullFailed")], Some("imageSourceRegistry.serverUrl")),
            ("FailedStartingContainer", vec![("Reason", "NoShell")], Some("use an image with /bin/sh")),
            ("FailedStartingContainer", vec![("Reason", "NoSpace")], Some("'docker system df'")),
            ("FailedStartingContainer", vec![("Reason", "StartFailed")], Some("engine's own message")),
            ("ContainerNotRemoved", vec![], Some("'docker rm -f'")),
            (
                "JobFailed",
                vec![("ExitCode", "137"), ("OutOfMemory", "The kernel killed …")],
                Some("a VM size with more memory"),
            ),
            ("JobFailed", vec![("ExitCode", "2"), ("OutOfProcesses", "at most 40")], Some("raise --max-processes")),
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

    #[test]
    fn a_job_with_output_names_its_location() {
        let said = |prefix: &str, code: &str| advice(&failed(prefix, error(code, &[])), NAMES, None).join(" ");
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
        let words = advice(&job, NAMES, None).join(" ");
        assert!(words.contains("-f stderr-wk-0.txt'"), "{words}");
        assert!(said("$AZ_BATCHAI_JOB_TEMP", "JobFailed").contains("which is not a share"));
        assert_eq!(said("$AZ_BATCHAI_JOB_MOUNT_ROOT/logs", "Else"), "");
    }

    #[test]
    fn the_location_of_logs_depends_on_the_volumes() {
        let (storage, other, node) = (LogLocation::Storage, LogLocation::OtherVolume, LogLocation::Node);
        let volumes: MountVolumes = serde_json::from_value(json!({
            "azureFileShares": [{"azureFileUrl": "https://a.file.x/s", "relativeMountPath": "share"}],
            "azureBlobFileSystems": [{"accountName": "a", "containerName": "c", "relativeMountPath": "blobs"}],
            "fileServers": [{"fileServer": {"id": "/f"}, "relativeMountPath": "nfs"}],
        }))
        .expect("volumes");
        let check = |prefix: &str, of_job: LogLocation, of_cluster: LogLocation, gone: LogLocation| {
            let mut spec = JobSpec::clone(&failed(prefix, error("JobFailed", &[])).properties.spec);
            spec.mount_volumes = None;
            assert_eq!(log_location(&spec, None), gone, "{prefix}");
            assert_eq!(log_location(&spec, Some(&volumes)), of_cluster, "{prefix}");
            spec.mount_volumes = Some(volumes.clone());
            assert_eq!(log_location(&spec, Some(&MountVolumes::default())), of_job, "{prefix}");
            assert_eq!(unshared_output(&spec, Some(&MountVolumes::default())).is_some(), of_job == node, "{prefix}");
        };
        check("$AZ_BATCHAI_JOB_MOUNT_ROOT/share/x", storage, node, node);
        check("$AZ_BATCHAI_JOB_MOUNT_ROOT/blobs", storage, node, node);
        check("$AZ_BATCHAI_JOB_MOUNT_ROOT/nfs/x", other, node, node);
        check("$AZ_BATCHAI_JOB_MOUNT_ROOT/sahre", node, node, node);
        check("$AZ_BATCHAI_MOUNT_ROOT/share", node, storage, storage);
        check("$AZ_BATCHAI_MOUNT_ROOT/nfs", node, other, storage);
        check("$AZ_BATCHAI_JOB_TEMP", node, node, node);
    }

    #[test]
    fn the_reason_is_one_line() {
        let job = failed("p", error("X", &[("Info", "no share\nmore")]));
        assert_eq!(reason(&job), "m: no share");
        assert_eq!(reason(&failed("p", error("X", &[]))), "m");
    }
}
