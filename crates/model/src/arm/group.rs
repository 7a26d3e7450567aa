//! Resource groups.

use serde::{Deserialize, Serialize};

use crate::batchai::Tags;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupCreateParameters {
    pub location: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Tags>,
}

/// Body of a PATCH of a resource group. Only tags can change; without them the group stays as it is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GroupUpdateParameters {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Tags>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Group {
    pub id: String,
    pub name: String,
    pub location: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Tags>,
    pub properties: GroupProperties,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupProperties {
    /// `Succeeded` or `Deleting`.
    pub provisioning_state: String,
}
