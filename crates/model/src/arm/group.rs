//! Resource groups and subscriptions.

use serde::{Deserialize, Serialize};

use crate::batchai::Tags;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupCreateParameters {
    pub location: String,
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

/// What the one subscription of a server is called.
pub const SUBSCRIPTION_NAME: &str = "Corro";

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subscription {
    pub id: String,
    pub subscription_id: String,
    pub display_name: String,
    pub state: String,
}

/// What stands behind the paths of one namespace.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Provider {
    pub id: String,
    pub namespace: String,
    pub registration_state: String,
    #[serde(default)]
    pub resource_types: Vec<serde_json::Value>,
}
