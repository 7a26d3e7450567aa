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
    pub identity: Option<AccountIdentity>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub properties: Option<AccountCreateProperties>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountCreateProperties {
    #[serde(default)]
    pub supports_https_traffic_only: bool,
    #[serde(flatten)]
    pub settings: AccountSettings,
}

/// Body of a PATCH of a storage account. Absent fields stay as they are.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AccountUpdateParameters {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sku: Option<AccountSku>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Tags>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<AccountIdentity>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub properties: Option<AccountUpdateProperties>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountUpdateProperties {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supports_https_traffic_only: Option<bool>,
    #[serde(flatten)]
    pub settings: AccountSettings,
}

/// Settings of an account that are stored and returned unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountSettings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_tier: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_domain: Option<CustomDomain>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<AccountEncryption>,
    #[serde(default, rename = "networkAcls", skip_serializing_if = "Option::is_none")]
    pub network_rules: Option<NetworkRules>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomDomain {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_sub_domain_name: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountEncryption {
    /// Encryption by service name: `blob`, `file` and so on.
    #[serde(default)]
    pub services: BTreeMap<String, EncryptedService>,
    #[serde(default = "default_key_source")]
    pub key_source: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EncryptedService {
    #[serde(default)]
    pub enabled: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_enabled_time: Option<Timestamp>,
}

/// Network access rules of an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkRules {
    #[serde(default = "default_bypass")]
    pub bypass: String,
    #[serde(default)]
    pub virtual_network_rules: Vec<serde_json::Value>,
    #[serde(default)]
    pub ip_rules: Vec<serde_json::Value>,
    #[serde(default = "default_action")]
    pub default_action: String,
}

impl Default for NetworkRules {
    fn default() -> Self {
        let (bypass, default_action) = (default_bypass(), default_action());
        NetworkRules { bypass, virtual_network_rules: Vec::new(), ip_rules: Vec::new(), default_action }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountIdentity {
    /// `SystemAssigned`.
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<AccountIdentity>,
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
    #[serde(flatten)]
    pub settings: AccountSettings,
}

/// Request to regenerate one of the two account keys.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegenerateKeyRequest {
    pub key_name: String,
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

fn default_key_source() -> String {
    "Microsoft.Storage".to_owned()
}

fn default_bypass() -> String {
    "AzureServices".to_owned()
}

fn default_action() -> String {
    "Allow".to_owned()
}
