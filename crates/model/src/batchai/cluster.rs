//! Clusters: node count and VM size, mounted volumes, node setup and state.

use serde::{Deserialize, Serialize};

use super::{
    BatchAiError, EnvironmentVariable, KeyVaultSecretReference, MountVolumes, Provisioning, ResourceId, SecretVariable,
};
use crate::{Secret, Timestamp};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClusterCreateParameters {
    pub properties: ClusterSpec,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    pub vm_size: String,
    #[serde(default)]
    pub vm_priority: VmPriority,
    /// Absent means manual scaling with no nodes.
    #[serde(default = "ScaleSettings::no_nodes")]
    pub scale_settings: ScaleSettings,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_machine_configuration: Option<VirtualMachineConfiguration>,
    pub user_account_settings: UserAccountSettings,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_setup: Option<NodeSetup>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<ResourceId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VmPriority {
    #[default]
    Dedicated,
    LowPriority,
}

/// Manual or automatic scaling; exactly one is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScaleSettings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manual: Option<ManualScaleSettings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_scale: Option<AutoScaleSettings>,
}

impl ScaleSettings {
    fn no_nodes() -> Self {
        let manual = ManualScaleSettings { target_node_count: 0, node_deallocation_option: Default::default() };
        Self { manual: Some(manual), auto_scale: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManualScaleSettings {
    #[serde(default)]
    pub target_node_count: i32,
    #[serde(default)]
    pub node_deallocation_option: DeallocationOption,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeallocationOption {
    /// Stops and requeues running jobs, then removes their nodes.
    #[default]
    Requeue,
    /// Stops running jobs for good.
    Terminate,
    /// Lets running jobs finish; nodes to be removed get no new jobs.
    WaitForJobCompletion,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AutoScaleSettings {
    pub minimum_node_count: i32,
    pub maximum_node_count: i32,
    #[serde(default)]
    pub initial_node_count: i32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineConfiguration {
    #[serde(default = "ImageReference::ubuntu_16_04")]
    pub image_reference: ImageReference,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageReference {
    pub publisher: String,
    pub offer: String,
    pub sku: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_machine_image_id: Option<String>,
}

impl ImageReference {
    /// The service's default image, for clusters that name none.
    pub fn ubuntu_16_04() -> Self {
        Self {
            publisher: "Canonical".to_owned(),
            offer: "UbuntuServer".to_owned(),
            sku: "16.04-LTS".to_owned(),
            version: Some("latest".to_owned()),
            virtual_machine_image_id: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UserAccountSettings {
    pub admin_user_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin_user_ssh_public_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin_user_password: Option<Secret>,
}

impl UserAccountSettings {
    /// The administrator's password. A blank one counts as absent, since anybody could log in with it.
    pub fn password(&self) -> Option<&Secret> {
        self.admin_user_password.as_ref().filter(|password| !password.expose().trim().is_empty())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSetup {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup_task: Option<SetupTask>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_volumes: Option<MountVolumes>,
    /// Accepted and returned; no performance counters are reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub performance_counters_settings: Option<PerformanceCountersSettings>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PerformanceCountersSettings {
    pub app_insights_reference: AppInsightsReference,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppInsightsReference {
    pub component: ResourceId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instrumentation_key: Option<Secret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instrumentation_key_secret_reference: Option<KeyVaultSecretReference>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetupTask {
    pub command_line: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment_variables: Vec<EnvironmentVariable>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretVariable>,
    pub std_out_err_path_prefix: String,
    /// Path of the setup task's output below the prefix, chosen by the server. The value in a request is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub std_out_err_path_suffix: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClusterUpdateParameters {
    #[serde(default)]
    pub properties: ClusterUpdateProperties,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterUpdateProperties {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_settings: Option<ScaleSettings>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cluster {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub properties: ClusterProperties,
}

pub const CLUSTER_TYPE: &str = "Microsoft.BatchAI/workspaces/clusters";

/// Properties of a cluster. `wire` serializes them in the service's order.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterProperties {
    #[serde(flatten)]
    pub provisioning: Provisioning,
    #[serde(flatten)]
    pub status: ClusterStatus,
    #[serde(flatten)]
    pub spec: ClusterSpec,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    pub allocation_state: AllocationState,
    pub allocation_state_transition_time: Timestamp,
    pub current_node_count: i32,
    pub node_state_counts: NodeStateCounts,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<BatchAiError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AllocationState {
    Steady,
    Resizing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStateCounts {
    pub running_node_count: i32,
    pub idle_node_count: i32,
    pub unusable_node_count: i32,
    pub preparing_node_count: i32,
    pub leaving_node_count: i32,
}

impl NodeStateCounts {
    pub fn total(&self) -> i32 {
        self.running_node_count
            + self.idle_node_count
            + self.unusable_node_count
            + self.preparing_node_count
            + self.leaving_node_count
    }
}
