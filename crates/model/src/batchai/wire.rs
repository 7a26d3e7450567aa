//! Serialization of cluster and job properties in the service's field order. Parsing ignores the order, but people
//! compare responses.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::*;
use crate::Timestamp;

impl Serialize for ClusterProperties {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (made, status, spec) = (&self.provisioning, &self.status, &self.spec);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("provisioningState", &made.provisioning_state)?;
        map.serialize_entry("allocationState", &status.allocation_state)?;
        map.serialize_entry("creationTime", &made.creation_time)?;
        map.serialize_entry("allocationStateTransitionTime", &status.allocation_state_transition_time)?;
        map.serialize_entry("provisioningStateTransitionTime", &made.provisioning_state_transition_time)?;
        map.serialize_entry("vmSize", &spec.vm_size)?;
        map.serialize_entry("currentNodeCount", &status.current_node_count)?;
        map.serialize_entry("nodeStateCounts", &status.node_state_counts)?;
        list(&mut map, "errors", &status.errors)?;
        map.serialize_entry("vmPriority", &spec.vm_priority)?;
        map.serialize_entry("scaleSettings", &spec.scale_settings)?;
        some(&mut map, "virtualMachineConfiguration", &spec.virtual_machine_configuration)?;
        map.serialize_entry("userAccountSettings", &spec.user_account_settings)?;
        some(&mut map, "nodeSetup", &spec.node_setup)?;
        some(&mut map, "subnet", &spec.subnet)?;
        map.end()
    }
}

/// A job's properties in serialization order; the same fields as [`JobProperties`].
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JobWire<'a> {
    experiment_name: &'a str,
    scheduling_priority: Priority,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a ResourceId>,
    job_output_directory_path_segment: &'a str,
    node_count: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    elastic: Option<Elastic>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container_settings: Option<&'a ContainerSettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mount_volumes: Option<&'a MountVolumes>,
    tool_type: ToolType,
    #[serde(skip_serializing_if = "Option::is_none")]
    cntk_settings: Option<&'a CntkSettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    py_torch_settings: Option<&'a PyTorchSettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tensor_flow_settings: Option<&'a TensorFlowSettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    caffe_settings: Option<&'a CaffeSettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    caffe2_settings: Option<&'a Caffe2Settings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chainer_settings: Option<&'a ScriptSettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom_toolkit_settings: Option<&'a CustomToolkitSettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom_mpi_settings: Option<&'a CustomMpiSettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    horovod_settings: Option<&'a ScriptSettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job_preparation: Option<&'a JobPreparation>,
    std_out_err_path_prefix: &'a str,
    #[serde(skip_serializing_if = "is_empty")]
    input_directories: &'a [InputDirectory],
    #[serde(skip_serializing_if = "is_empty")]
    output_directories: &'a [OutputDirectory],
    #[serde(skip_serializing_if = "is_empty")]
    environment_variables: &'a [EnvironmentVariable],
    #[serde(skip_serializing_if = "is_empty")]
    secrets: &'a [SecretVariable],
    constraints: &'a JobConstraints,
    #[serde(skip_serializing_if = "Option::is_none")]
    working_directory: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    prefix_output_with_rank: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    python_environment: Option<&'a PythonEnvironment>,
    #[serde(skip_serializing_if = "is_empty")]
    depends_on: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    notifications: Option<&'a Notifications>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sweep: Option<&'a SweepTrial>,
    creation_time: Timestamp,
    provisioning_state: ProvisioningState,
    provisioning_state_transition_time: Timestamp,
    /// The states and `executionInfo`, then Corro's additions.
    #[serde(flatten)]
    status: &'a JobStatus,
}

impl Serialize for JobProperties {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (spec, made) = (&self.spec, &self.provisioning);
        let wire = JobWire {
            experiment_name: &self.experiment_name,
            scheduling_priority: spec.scheduling_priority,
            cluster: spec.cluster.as_ref(),
            job_output_directory_path_segment: &self.job_output_directory_path_segment,
            node_count: spec.node_count,
            elastic: spec.elastic,
            container_settings: spec.container_settings.as_ref(),
            mount_volumes: spec.mount_volumes.as_ref(),
            tool_type: self.tool_type,
            cntk_settings: spec.cntk_settings.as_ref(),
            py_torch_settings: spec.py_torch_settings.as_ref(),
            tensor_flow_settings: spec.tensor_flow_settings.as_ref(),
            caffe_settings: spec.caffe_settings.as_ref(),
            caffe2_settings: spec.caffe2_settings.as_ref(),
            chainer_settings: spec.chainer_settings.as_ref(),
            custom_toolkit_settings: spec.custom_toolkit_settings.as_ref(),
            custom_mpi_settings: spec.custom_mpi_settings.as_ref(),
            horovod_settings: spec.horovod_settings.as_ref(),
            job_preparation: spec.job_preparation.as_ref(),
            std_out_err_path_prefix: &spec.std_out_err_path_prefix,
            input_directories: &spec.input_directories,
            output_directories: &spec.output_directories,
            environment_variables: &spec.environment_variables,
            secrets: &spec.secrets,
            constraints: &spec.constraints,
            working_directory: spec.working_directory.as_deref(),
            prefix_output_with_rank: spec.prefix_output_with_rank,
            python_environment: spec.python_environment.as_ref(),
            depends_on: &spec.depends_on,
            notifications: spec.notifications.as_ref(),
            sweep: spec.sweep.as_deref(),
            creation_time: made.creation_time,
            provisioning_state: made.provisioning_state,
            provisioning_state_transition_time: made.provisioning_state_transition_time,
            status: &self.status,
        };
        wire.serialize(serializer)
    }
}

fn is_empty<T>(list: &&[T]) -> bool {
    list.is_empty()
}

fn some<M: SerializeMap, T: Serialize>(map: &mut M, name: &str, value: &Option<T>) -> Result<(), M::Error> {
    value.as_ref().map_or(Ok(()), |value| map.serialize_entry(name, value))
}

fn list<M: SerializeMap, T: Serialize>(map: &mut M, name: &str, values: &[T]) -> Result<(), M::Error> {
    if values.is_empty() { Ok(()) } else { map.serialize_entry(name, values) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys of the outermost object, in the order they were written.
    fn keys(text: &str) -> Vec<String> {
        let (mut depth, mut quoted, mut keys, mut word) = (0, false, Vec::new(), String::new());
        let mut before = ' ';
        for c in text.chars() {
            match c {
                '"' if before != '\\' => {
                    quoted = !quoted;
                    if quoted {
                        word.clear();
                    }
                }
                _ if quoted => word.push(c),
                '{' | '[' => depth += 1,
                '}' | ']' => depth -= 1,
                ':' if depth == 1 => keys.push(word.clone()),
                _ => {}
            }
            before = c;
        }
        keys
    }

    #[test]
    fn a_job_is_written_in_the_services_order_and_read_back() {
        let text = r#"{"nodeCount":1,"stdOutErrPathPrefix":"x","secrets":[{"name":"S"}],"jobPreparation":{"commandLine":"a"},
            "customToolkitSettings":{"commandLine":"a"},"cluster":{"id":"c"},"executionInfo":{"startTime":"2018-06-07T21:16:21Z"},
            "executionState":"running","executionStateTransitionTime":"2018-06-07T21:16:21Z","toolType":"custom",
            "creationTime":"2018-06-07T21:16:21Z","provisioningState":"succeeded","experimentName":"e",
            "provisioningStateTransitionTime":"2018-06-07T21:16:21Z","jobOutputDirectoryPathSegment":"s"}"#;
        let job: JobProperties = serde_json::from_str(text).expect("a literal");
        let expected = "experimentName schedulingPriority cluster jobOutputDirectoryPathSegment nodeCount toolType \
            customToolkitSettings jobPreparation stdOutErrPathPrefix secrets constraints creationTime provisioningState \
            provisioningStateTransitionTime executionState executionStateTransitionTime executionInfo";
        let written = serde_json::to_string(&job).expect("plain data");
        assert_eq!(keys(&written).join(" "), expected);
        let again: JobProperties = serde_json::from_str(&written).expect("it reads back");
        assert_eq!((again.spec, again.status), (job.spec, job.status));
    }

    #[test]
    fn a_cluster_is_written_in_the_services_order() {
        let text = r#"{"vmSize":"X","userAccountSettings":{"adminUserName":"me"},"allocationState":"steady","subnet":{"id":"s"},
            "allocationStateTransitionTime":"2018-06-07T21:16:21Z","currentNodeCount":0,"creationTime":"2018-06-07T21:16:21Z",
            "nodeStateCounts":{"runningNodeCount":0,"idleNodeCount":0,"unusableNodeCount":0,"preparingNodeCount":0,"leavingNodeCount":0},
            "provisioningState":"succeeded","provisioningStateTransitionTime":"2018-06-07T21:16:21Z","nodeSetup":{}}"#;
        let cluster: ClusterProperties = serde_json::from_str(text).expect("a literal");
        let expected = "provisioningState allocationState creationTime allocationStateTransitionTime \
            provisioningStateTransitionTime vmSize currentNodeCount nodeStateCounts vmPriority scaleSettings \
            userAccountSettings nodeSetup subnet";
        assert_eq!(keys(&serde_json::to_string(&cluster).expect("plain data")).join(" "), expected);
    }
}
