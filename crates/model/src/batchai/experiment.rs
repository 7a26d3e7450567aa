//! Experiments: groups of related jobs.

use serde::{Deserialize, Serialize};

use super::Provisioning;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Experiment {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub properties: Provisioning,
}

pub const EXPERIMENT_TYPE: &str = "Microsoft.BatchAI/workspaces/experiments";
