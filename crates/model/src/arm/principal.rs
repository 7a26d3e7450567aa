//! Principals: who may call the API, with which roles. Ours; the directory of the retired service had its own protocol.

use serde::{Deserialize, Serialize};

use crate::{Secret, Timestamp};

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrincipalCreateParameters {
    pub display_name: String,
    /// `Reader`, `Contributor` or `Owner`.
    pub role: String,
    /// Resource ids of the subscription, groups or workspaces; the subscription when there are none.
    #[serde(default)]
    pub scopes: Vec<String>,
}

/// Shown once, when the password is new.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrincipalCredential {
    pub app_id: String,
    pub display_name: String,
    pub password: Secret,
    pub tenant: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Principal {
    pub app_id: String,
    pub display_name: String,
    pub tenant: String,
    pub created: Timestamp,
    pub role_assignments: Vec<RoleAssignment>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleAssignment {
    pub role: String,
    pub scope: String,
}
