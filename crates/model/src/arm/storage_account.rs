//! Storage accounts and their keys.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::batchai::Tags;
use crate::{Secret, Timestamp};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccountCreateParameters {
    pub sku: AccountSku,
    #[serde(default = "default_kind")]
    pub kind: String,
    pub location: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Tags>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub properties: Option<AccountCreateProperties>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountCreateProperties {
    #[serde(default)]
    pub supports_https_traffic_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountSku {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StorageAccount {
    pub sku: AccountSku,
    pub kind: String,
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub resource_type: String,
    pub location: String,
    #[serde(default)]
    pub tags: Tags,
    pub properties: AccountProperties,
}

pub const STORAGE_ACCOUNT_TYPE: &str = "Microsoft.Storage/storageAccounts";

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountProperties {
    pub provisioning_state: String,
    pub creation_time: Timestamp,
    pub primary_location: String,
    pub status_of_primary: String,
    /// Service name (`file`) to base URL with a trailing slash.
    pub primary_endpoints: BTreeMap<String, String>,
    pub supports_https_traffic_only: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccountKeys {
    pub keys: Vec<AccountKey>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountKey {
    pub key_name: String,
    pub value: Secret,
    pub permissions: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NameAvailabilityRequest {
    pub name: String,
    #[serde(rename = "type", default)]
    pub kind: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NameAvailability {
    pub name_available: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

fn default_kind() -> String {
    "Storage".to_owned()
}
