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
    /// Give it no role at all, whatever `role` says.
    #[serde(default)]
    pub skip_assignment: bool,
    /// How long its password is good, up to [`MAX_YEARS`]; for ever when nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub years: Option<i64>,
}

/// Longer than anybody plans.
pub const MAX_YEARS: i64 = 100;

/// Shown once, when the password is new.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrincipalCredential {
    pub app_id: String,
    pub display_name: String,
    /// With which it may log in instead of the id: `http://` and the display name.
    pub name: String,
    pub password: Secret,
    pub tenant: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Principal {
    pub app_id: String,
    /// The same: there is one directory, and nothing else in it.
    #[serde(default)]
    pub object_id: String,
    pub display_name: String,
    #[serde(default)]
    pub service_principal_names: Vec<String>,
    pub tenant: String,
    pub created: Timestamp,
    /// When its password ends; absent when it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    pub role_assignments: Vec<RoleAssignment>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleAssignment {
    pub role: String,
    pub scope: String,
}
