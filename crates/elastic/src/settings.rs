//! Settings of an elastic training, as `horovodrun` names them, and the hosts that discovery reports.

use std::time::Duration;

/// Limits of an elastic training.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `--min-np`: no generation has fewer members. At least 1.
    pub min: usize,
    /// `--max-np`: no generation has more members. `None`: as many as there are slots.
    pub max: Option<usize>,
    /// `--elastic-timeout`: how long processes wait for others before the training fails.
    pub elastic_timeout: Duration,
    /// `--reset-limit`: how many generations after the first a failure or a change of hosts may cause. Only with a limit does a training of
    /// which no process survived start again from nothing; without one it fails, as upstream.
    pub reset_limit: Option<u32>,
    /// `--blacklist-cooldown-range`: shortest and longest exclusion of a host. `None`: for ever.
    pub cooldown: Option<(Duration, Duration)>,
    pub on_failure: OnFailure,
}

/// Reaction to a process that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// A new process is started in its slot (without a discovery script).
    RestartOnHost,
    /// Its host is excluded and the host's other processes are killed (with a discovery script, as upstream).
    ExcludeHost,
}

/// A host and the number of processes it has room for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    pub name: String,
    pub slots: usize,
}
