//! Service principals: identities that call the API, and their roles. A Corro extension: the retired service used a
//! directory with its own protocol.

use serde::{Deserialize, Serialize};

use crate::{Secret, Timestamp};

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrincipalCreateParameters {
    pub display_name: String,
    /// `Reader`, `Contributor` or `Owner`.
    pub role: String,
    /// Resource ids of the subscription, groups or workspaces; empty means the subscription.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// Assigns no role, and `role` is ignored.
    #[serde(default)]
    pub skip_assignment: bool,
    /// Validity of the password in years, up to [`MAX_YEARS`]; absent means that it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub years: Option<i64>,
}

/// Largest accepted `years`.
pub const MAX_YEARS: i64 = 100;

/// Credential of a principal, returned once, when a password is created or reset.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrincipalCredential {
    pub app_id: String,
    pub display_name: String,
    /// Alternative login name: `http://` and the display name.
    pub name: String,
    pub password: Secret,
    pub tenant: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Principal {
    pub app_id: String,
    /// Equal to `app_id`: the one directory holds nothing but principals.
    #[serde(default)]
    pub object_id: String,
    pub display_name: String,
    #[serde(default)]
    pub service_principal_names: Vec<String>,
    pub tenant: String,
    pub created: Timestamp,
    /// Expiry of the password; absent when it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    pub role_assignments: Vec<RoleAssignment>,
}

/// Principal on whose behalf a request runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallerIdentity {
    pub app_id: String,
    pub display_name: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleAssignment {
    pub role: String,
    pub scope: String,
}
