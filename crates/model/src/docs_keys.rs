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
    ("DependencyFailed", "dependency-failed"),
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
    ("PythonEnvironmentFailed", "python-environment-failed"),
    ("SetupTaskFailed", "setup-task-failed"),
    ("StoppedEarly", "stopped-early"),
    ("UnmanagedMountError", "mount-command-failed"),
    ("WorkingDirectoryFailed", "working-directory-missing"),
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

/// Key of the code in one of the tables.
pub fn find(table: &[(&str, &'static str)], code: &str) -> Option<&'static str> {
    table.iter().find(|(name, _)| *name == code).map(|(_, key)| *key)
}
