//! Experiments: groups of related jobs.

use serde::{Deserialize, Serialize};

use super::{Notifications, Provisioning};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Experiment {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub properties: ExperimentProperties,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExperimentProperties {
    #[serde(flatten)]
    pub provisioning: Provisioning,
    /// Notifications of the jobs that name none themselves. A Corro extension; absent unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notifications: Option<Notifications>,
}

pub const EXPERIMENT_TYPE: &str = "Microsoft.BatchAI/workspaces/experiments";
