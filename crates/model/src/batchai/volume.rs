//! Volumes that nodes mount, at cluster or job level.

use serde::{Deserialize, Serialize};

use super::{KeyVaultSecretReference, ResourceId};
use crate::Secret;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MountVolumes {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub azure_file_shares: Vec<AzureFileShareReference>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub azure_blob_file_systems: Vec<AzureBlobFileSystemReference>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub file_servers: Vec<FileServerReference>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmanaged_file_systems: Vec<UnmanagedFileSystemReference>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AzureFileShareReference {
    /// Absent in many `job.json` files: the client takes it from the first label of the URL's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account_name: Option<String>,
    pub azure_file_url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<StorageCredentials>,
    pub relative_mount_path: String,
    #[serde(default = "default_mode")]
    pub file_mode: String,
    #[serde(default = "default_mode")]
    pub directory_mode: String,
}

impl AzureFileShareReference {
    /// Share name: `myshare` of `https://account.file.core.windows.net/myshare`. The host's suffix does not matter.
    pub fn share_name(&self) -> Option<&str> {
        let rest = self.azure_file_url.split_once("://").map_or(self.azure_file_url.as_str(), |(_, rest)| rest);
        let (_, path) = rest.split_once('/')?;
        let share = path.trim_end_matches('/');
        (!share.is_empty() && !share.contains('/')).then_some(share)
    }

    /// Account name: `accountName`, or else the first label of the URL's host.
    pub fn account(&self) -> Option<&str> {
        if let Some(name) = self.account_name.as_deref().filter(|name| !name.is_empty()) {
            return Some(name);
        }
        let (_, rest) = self.azure_file_url.split_once("://")?;
        rest.split(['.', '/', ':']).next().filter(|label| !label.is_empty())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageCredentials {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account_key: Option<Secret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account_key_secret_reference: Option<KeyVaultSecretReference>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AzureBlobFileSystemReference {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account_name: Option<String>,
    pub container_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<StorageCredentials>,
    pub relative_mount_path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_options: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileServerReference {
    pub file_server: ResourceId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_directory: Option<String>,
    pub relative_mount_path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_options: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnmanagedFileSystemReference {
    pub mount_command: String,
    pub relative_mount_path: String,
}

fn default_mode() -> String {
    "0777".to_owned()
}
