//! Keys of the documentation for error codes: `corro docs KEY` prints the entry with the cause and the remedy. Pure. A test of the
//! command line checks that every key exists.

/// Codes of job and node errors, and their keys.
pub const JOB_ERRORS: &[(&str, &str)] = &[
    ("AZFMountError", "share-missing"),
    ("AgentFailed", "agent-failed"),
    ("AgentNotStarted", "agent-not-started"),
    ("BFSMountError", "blob-container-missing"),
    ("CompatibilityFailed", "compat-unknown"),
    ("ContainerNotRemoved", "container-not-removed"),
    ("FailedStartingContainer", "container-start-failed"),
    ("FileServerMountError", "file-server-missing"),
    ("IsolationFailed", "isolation-failed"),
    ("JobDirectoryFailed", "job-directory-failed"),
    ("JobFailed", "job-failed"),
    ("JobPreparationFailed", "preparation-failed"),
    ("JobTerminated", "job-terminated"),
    ("JobWallClockTimeExceeded", "wall-clock-exceeded"),
    ("LogWriteFailed", "log-write-failed"),
    ("MpirunFailed", "mpirun-failed"),
    ("NodeLost", "node-lost"),
    ("NodeStorageFailed", "node-storage-failed"),
    ("ProcessStartFailed", "process-not-started"),
    ("ProcessesNotKilled", "processes-not-killed"),
    ("SetupTaskFailed", "setup-task-failed"),
    ("UnmanagedMountError", "mount-command-failed"),
];

/// Codes of the service's answers, and their keys.
pub const API_ERRORS: &[(&str, &str)] = &[
    ("AuthorizationFailed", "not-authorized"),
    ("ExpiredAuthenticationToken", "token-expired"),
    ("HttpsRequired", "https-required"),
    ("InsufficientStorage", "server-disk-full"),
    ("LinkedAuthorizationFailed", "linked-not-authorized"),
    ("OutputDirectoryNotOnMountRoot", "output-not-on-share"),
    ("ParentNotFound", "parent-directory-missing"),
    ("TooManyRequests", "too-many-requests"),
];

pub const PYTHON_MODULE_MISSING: &str = "python-module-missing";
pub const PYTHON_NOT_FOUND: &str = "python-not-found";
pub const PYTHON_VENV_MISSING: &str = "python-venv-missing";
pub const PIP_WITHOUT_NETWORK: &str = "pip-without-network";
/// Keys of failures that are recognised by the last output of a process.
pub const OUTPUT_HINTS: &[&str] = &[PYTHON_MODULE_MISSING, PYTHON_NOT_FOUND, PYTHON_VENV_MISSING, PIP_WITHOUT_NETWORK];

/// Key of the code in one of the tables.
pub fn find(table: &[(&str, &'static str)], code: &str) -> Option<&'static str> {
    table.iter().find(|(name, _)| *name == code).map(|(_, key)| *key)
}
