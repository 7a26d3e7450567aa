//! What this machine can enforce on jobs, as the user of this process: each thing really tried, nothing left behind. For `corro doctor`.

use std::io::ErrorKind;

use corro_launch::namespaces::trial::{Kind, try_kind};

use crate::config::Isolation;
use crate::isolation;
use crate::limits;

/// One thing that was tried; an error says why it cannot be had.
#[derive(Debug)]
pub struct Probe {
    pub feature: Enforcement,
    pub result: Result<(), String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// The user and mount name spaces of a job with hidden directories, exactly as jobs get them.
    JobIsolation,
    /// Settings of the machine that jobs cannot write.
    ReadOnlySettings,
    Namespace(Kind),
    /// A control of control groups by the kernel's name: `memory`, `cpu`, `pids`.
    ControlGroup(&'static str),
}

/// Tries everything. Blocks for some milliseconds.
pub fn probe_all() -> Vec<Probe> {
    let namespace = |kind| {
        let result = try_kind(kind).map_err(|error| match error.kind() {
            // As the kernel says it.
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
