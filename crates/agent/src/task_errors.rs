//! Errors of a job's task on a node, with Batch AI's error codes where it had them. Every error text that a user can
//! get from a node is in this file. Never contains the value of a secret.

use std::error::Error;
use std::path::Path;
use std::time::SystemTime;

use corro_base::error_chain;
use corro_launch::exit::Exit;
use corro_model::batchai::BatchAiError;
use corro_model::node::{AGENT_RESTARTED, TaskFailure, Volume, VolumeKind};
use corro_model::{NodeId, Timestamp};

/// Exit code that Batch AI reported when no process had one.
const NO_EXIT_CODE: i32 = -1;

/// The current time as a timestamp.
pub fn now() -> Timestamp {
    SystemTime::now().into()
}

/// A volume could not be mounted. `is_known`: the server already knew the cause, and its text is complete for a blob
/// container.
pub fn mount(volume: &Volume, at: &Path, node: &NodeId, why: &str, is_known: bool) -> BatchAiError {
    let (label, at) = (&volume.label, at.display());
    let (code, message, info) = match volume.kind {
        VolumeKind::FileShare => (
            "AZFMountError",
            "Unable to mount Azure File",
            format!("Could not mount Azure File Share {label} at {at}: {why}"),
        ),
        VolumeKind::Container => (
            "BFSMountError",
            "unable to mount blob fuse file system",
            if is_known { why.to_owned() } else { format!("Could not mount {label} at {at}: {why}") },
        ),
        VolumeKind::FileServer => {
            ("FileServerMountError", "Unable to mount file server", format!("Could not mount {label} at {at}: {why}"))
        }
        VolumeKind::JobShared => (
            "SharedDirectoryMountError",
            "Unable to mount the shared directory of the job's nodes",
            format!("Could not mount {label} at {at}: {why}"),
        ),
        VolumeKind::Unmanaged => (
            "UnmanagedMountError",
            "Unable to mount unmanaged file system",
            format!("Could not mount {label} at {at}: {why}"),
        ),
    };
    BatchAiError::new(code, message).with("Info", info).with("Node", node.as_str())
}

/// A job's volume could not be mounted. Uses the exit code that Batch AI reported for this kind of volume.
pub fn job_mount(kind: VolumeKind, error: BatchAiError) -> TaskFailure {
    let exit_code = match kind {
        VolumeKind::FileShare | VolumeKind::JobShared => NO_EXIT_CODE,
        VolumeKind::Container | VolumeKind::FileServer | VolumeKind::Unmanaged => 1,
    };
    TaskFailure { exit_code: Some(exit_code), ..failed(error) }
}

/// The setup task failed.
pub fn setup(node: &NodeId, exit: Exit, stderr: &[String], logs: &Path) -> TaskFailure {
    let error = BatchAiError::new("SetupTaskFailed", "Setup task failed with non-zero exit code");
    let error = ended(error.with("Node", node.as_str()), exit).with("StdErr", stderr.join("\n"));
    let info =
        format!("Its output is in {}. Fix the task, then resize the cluster to 0 nodes and back", logs.display());
    TaskFailure { exit_code: Some(exit.shell_code()), error: error.with("Info", info), at: now() }
}

/// The job's container could not be started. `reason` is a single word for programs.
pub fn container(image: &str, node: &NodeId, reason: &str, info: &str) -> TaskFailure {
    let error = BatchAiError::new("FailedStartingContainer", "unable to start docker container");
    let error = error.with("imageName", image).with("Node", node.as_str());
    failed(error.with("Reason", reason).with("Info", info))
}

/// The container engine did not remove the job's container. The node gets no further jobs.
pub fn container_left(node: &NodeId, what: &str) -> TaskFailure {
    let message = format!("The container of the job on node {node} did not end when it was stopped");
    let info = format!(
        "The engine says: {what}. The node is no longer used. Look at its engine ('docker ps', 'docker rm -f'), then \
         resize the cluster"
    );
    failed(BatchAiError::new("ContainerNotRemoved", message).with("Node", node.as_str()).with("Info", info))
}

/// The job cannot be isolated, and the isolation mode is strict.
pub fn isolation(node: &NodeId, why: &str) -> TaskFailure {
    let info = format!(
        "{why}. Allow user namespaces on this machine ('corro doctor' there says what is missing), run the job in a container, \
         or start 'corro up', 'corro server' or 'corro agent' with --isolation auto to run jobs without"
    );
    let error = BatchAiError::new("IsolationFailed", "The job cannot be isolated from others on the node");
    failed(error.with("Node", node.as_str()).with("Info", info))
}

/// The compatibility layer that the job asks for could not be installed.
pub fn compatibility(node: &NodeId, why: &dyn Error) -> TaskFailure {
    let error = BatchAiError::new("CompatibilityFailed", "Unable to give the job the compatibility layer it asks for");
    failed(error.with("Node", node.as_str()).with("Variable", "CORRO_COMPAT").with("Info", error_chain::join(why)))
}

/// The `mpirun` that the job names in `CORRO_MPIRUN` cannot be used.
pub fn mpirun(program: &str, why: &str, node: &NodeId) -> TaskFailure {
    let error = BatchAiError::new("MpirunFailed", "Unable to use the mpirun that the job asks for");
    let info = format!(
        "{program}: {why}. Install it in the job's preparation, name another in CORRO_MPIRUN, or leave that variable out"
    );
    failed(error.with("Node", node.as_str()).with("Variable", "CORRO_MPIRUN").with("Info", info))
}

/// A directory of the job could not be created.
pub fn directory(path: &Path, node: &NodeId, why: &dyn Error) -> TaskFailure {
    let error = BatchAiError::new("JobDirectoryFailed", "Unable to create a directory of the job")
        .with("Node", node.as_str())
        .with("Path", path.display().to_string())
        .with("Info", format!("{}. Use a path below a mounted volume or $AZ_BATCHAI_JOB_TEMP", error_chain::join(why)));
    failed(error)
}

/// The working directory that the job names as `given` cannot be used.
pub fn working_directory(given: &str, path: &Path, node: &NodeId, why: &str) -> TaskFailure {
    let info = format!(
        "workingDirectory is '{given}', and {} on node {node} is not a directory that can be used: {why}. Name a directory \
         of a mounted volume, such as $AZ_BATCHAI_JOB_MOUNT_ROOT/share/project, or leave it out",
        path.display()
    );
    let error = BatchAiError::new("WorkingDirectoryFailed", "Unable to start in the working directory of the job")
        .with("Node", node.as_str())
        .with("Field", "workingDirectory")
        .with("Path", path.display().to_string());
    failed(error.with("Info", info))
}

/// The Python environment that the job asks for in `field` could not be made.
pub fn python_environment(node: &NodeId, field: &str, file: &Path, info: &str) -> TaskFailure {
    failed(python_environment_error(node, field, file).with("Info", info))
}

/// The program that makes the job's Python environment failed. `met` as for [`preparation`].
pub fn python_packages(
    (node, field, file): (&NodeId, &str, &Path),
    exit: Exit,
    met: [(&str, Option<String>); 2],
    stderr: &[String],
    info: &str,
) -> TaskFailure {
    let mut error = ended(python_environment_error(node, field, file), exit);
    for (name, limit) in met {
        error = limit.into_iter().fold(error, |error, limit| error.with(name, limit));
    }
    let error = error.with("StdErr", stderr.join("\n")).with("Info", info);
    TaskFailure { exit_code: Some(exit.shell_code()), error, at: now() }
}

fn python_environment_error(node: &NodeId, field: &str, file: &Path) -> BatchAiError {
    BatchAiError::new("PythonEnvironmentFailed", "Unable to make the Python environment of the job")
        .with("Node", node.as_str())
        .with("Field", field)
        .with("Path", file.display().to_string())
}

/// Job preparation failed. `met` holds the limits that its processes exceeded, by the name of the error detail.
pub fn preparation(node: &NodeId, exit: Exit, met: [(&str, Option<String>); 2], stderr: &[String]) -> TaskFailure {
    let error = BatchAiError::new("JobPreparationFailed", "Job preparation task failed with non-zero exit code")
        .with("Node", node.as_str());
    let mut error = ended(error, exit);
    for (name, limit) in met {
        error = limit.into_iter().fold(error, |error, limit| error.with(name, limit));
    }
    let error = error.with("StdErr", stderr.join("\n"));
    TaskFailure { exit_code: Some(exit.shell_code()), error, at: now() }
}

fn ended(error: BatchAiError, exit: Exit) -> BatchAiError {
    match exit {
        Exit::Code(code) => error.with("ExitCode", code.to_string()),
        Exit::Signal(signal) => error.with("Signal", signal.to_string()),
    }
}

/// A process could not be started or waited for.
pub fn process(what: &str, node: &NodeId, why: &dyn Error) -> TaskFailure {
    let error = BatchAiError::new("ProcessStartFailed", format!("Unable to run {what} on the node"))
        .with("Node", node.as_str())
        .with("Info", error_chain::join(why));
    failed(error)
}

/// The node cannot listen for the other nodes of the gang.
pub fn rendezvous(address: &str, node: &NodeId, why: &dyn Error) -> TaskFailure {
    let error = BatchAiError::new("RendezvousFailed", "Unable to start the rendezvous of the ranks")
        .with("Node", node.as_str())
        .with("Info", format!("The node cannot listen on its address {address}: {}", error_chain::join(why)));
    failed(error)
}

/// Output could not be written to a log file.
pub fn log_write(path: &Path, node: &NodeId, lost_bytes: u64, why: &dyn Error) -> TaskFailure {
    let error = BatchAiError::new("LogWriteFailed", "Unable to write a log file of the job")
        .with("Node", node.as_str())
        .with("Path", path.display().to_string())
        .with("Info", format!("{}; {lost_bytes} bytes of output are missing from the file", error_chain::join(why)));
    failed(error)
}

/// The agent ended during the attempt, by a crash or on request.
pub fn agent_restarted(node: &NodeId) -> TaskFailure {
    let message =
        format!("The agent of node {node} was stopped while the job ran on it; its processes have been ended");
    failed(BatchAiError::new(AGENT_RESTARTED, message).with("Node", node.as_str()))
}

/// Processes of the job survived SIGKILL. The node gets no further jobs.
pub fn not_killed(node: &NodeId, left: &[u32]) -> TaskFailure {
    let message = format!("Processes of the job on node {node} did not end when they were killed");
    let left: Vec<String> = left.iter().map(u32::to_string).collect();
    let info = format!(
        "The node is no longer used. Look at its processes ({}), or restart its machine, then resize the cluster",
        if left.is_empty() { "they are no longer listed".to_owned() } else { left.join(", ") }
    );
    failed(BatchAiError::new("ProcessesNotKilled", message).with("Node", node.as_str()).with("Info", info))
}

/// The node's own directory cannot be used.
pub fn node_storage(node: &NodeId, path: &Path, why: &dyn Error) -> TaskFailure {
    let error = BatchAiError::new("NodeStorageFailed", "The node cannot use its own directory")
        .with("Node", node.as_str())
        .with("Path", path.display().to_string())
        .with("Info", error_chain::join(why));
    failed(error)
}

/// The agent panicked. Reported so that the job does not wait forever.
pub fn agent_panicked(node: &NodeId) -> TaskFailure {
    let message = format!("The agent of node {node} had an internal error; see the agent's log");
    failed(BatchAiError::new("AgentFailed", message).with("Node", node.as_str()))
}

/// A failure without an exit code of a process.
pub fn failed(error: BatchAiError) -> TaskFailure {
    TaskFailure { exit_code: Some(NO_EXIT_CODE), error, at: now() }
}
