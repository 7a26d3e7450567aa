//! Workspaces: the top-level collection of Batch AI resources.

use serde::{Deserialize, Serialize};

use super::{Provisioning, Tags};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceCreateParameters {
    pub location: String,
    #[serde(default, skip_serializing_if = "Tags::is_empty")]
    pub tags: Tags,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkspaceUpdateParameters {
    /// Absent means that the tags stay as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Tags>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Workspace {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub location: String,
    #[serde(default, skip_serializing_if = "Tags::is_empty")]
    pub tags: Tags,
    pub properties: Provisioning,
}

pub const WORKSPACE_TYPE: &str = "Microsoft.BatchAI/workspaces";
