//! Probes what this machine can enforce on jobs with the rights of this process. Every feature is really tried, and
//! nothing is left behind. Used by `corro doctor`.

use std::io::ErrorKind;

use corro_launch::namespaces::probe::{Kind, probe_kind};

use crate::config::Isolation;
use crate::isolation;
use crate::limits;

/// Result of one probe; the error says why the feature is not available.
#[derive(Debug)]
pub struct Probe {
    pub feature: Enforcement,
    pub result: Result<(), String>,
}

/// A feature that can be enforced on jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// User and mount namespaces with hidden directories, exactly as jobs get them.
    JobIsolation,
    /// `/proc/sys` and `/sys` read-only for jobs.
    ReadOnlySettings,
    Namespace(Kind),
    /// A cgroup controller by the kernel's name: `memory`, `cpu`, `pids`.
    ControlGroup(&'static str),
}

/// Probes everything. Blocks for some milliseconds.
pub fn probe_all() -> Vec<Probe> {
    let namespace = |kind| {
        let result = probe_kind(kind).map_err(|error| match error.kind() {
            // ENOSPC: the limit on namespaces is reached.
            ErrorKind::StorageFull => "no more are allowed (sysctl user.max_user_namespaces)".to_owned(),
            _ => error.to_string(),
        });
        Probe { feature: Enforcement::Namespace(kind), result }
    };
    let job = Probe { feature: Enforcement::JobIsolation, result: isolation::probe_namespaces(&Isolation::default()) };
    let settings = Probe { feature: Enforcement::ReadOnlySettings, result: isolation::probe_read_only_settings() };
    let controls = limits::probe_controllers().into_iter();
    let controls = controls.map(|(name, result)| Probe { feature: Enforcement::ControlGroup(name), result });
    Kind::ALL.into_iter().map(namespace).chain([job, settings]).chain(controls).collect()
}
