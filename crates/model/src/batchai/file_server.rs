//! File servers: a machine with disks that clusters mount. An independent resource with its own provisioning state.

use serde::{Deserialize, Serialize};

use super::{Provisioning, ResourceId, UserAccountSettings};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileServerCreateParameters {
    pub properties: FileServerSpec,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileServerSpec {
    pub vm_size: String,
    pub ssh_configuration: SshConfiguration,
    pub data_disks: DataDisks,
    /// Absent in a request: the service creates a network and reports its subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<ResourceId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SshConfiguration {
    /// Address ranges that may connect; absent means all.
    #[serde(default, rename = "publicIPsToAllow", skip_serializing_if = "Option::is_none")]
    pub public_ips_to_allow: Option<Vec<String>>,
    pub user_account_settings: UserAccountSettings,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DataDisks {
    #[serde(rename = "diskSizeInGB")]
    pub disk_size_in_gb: i32,
    #[serde(default)]
    pub caching_type: CachingType,
    /// Several disks are striped.
    pub disk_count: i32,
    pub storage_account_type: DiskType,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CachingType {
    #[default]
    None,
    ReadOnly,
    ReadWrite,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiskType {
    #[serde(rename = "Standard_LRS")]
    Standard,
    #[serde(rename = "Premium_LRS")]
    Premium,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileServer {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub properties: FileServerProperties,
}

pub const FILE_SERVER_TYPE: &str = "Microsoft.BatchAI/workspaces/fileservers";

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileServerProperties {
    #[serde(flatten)]
    pub provisioning: Provisioning,
    #[serde(flatten)]
    pub spec: FileServerSpec,
    /// Absent until the server is provisioned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_settings: Option<MountSettings>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MountSettings {
    pub mount_point: String,
    #[serde(rename = "fileServerPublicIP")]
    pub file_server_public_ip: String,
    #[serde(rename = "fileServerInternalIP")]
    pub file_server_internal_ip: String,
    /// NFS mount information, a Corro extension. Returned only with `$expand=nfs`, to callers who may change the file
    /// server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nfs: Option<NfsMount>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NfsMount {
    pub address: String,
    pub port: u16,
    /// Export path. Knowing it is enough to mount.
    pub path: String,
}
