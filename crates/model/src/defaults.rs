//! Defaults of the service for fields that a request omits; they are stored and returned. Idempotent.

use crate::batchai::{ClusterSpec, ImageReference, JobSpec, MountVolumes, VirtualMachineConfiguration};

pub fn fill_cluster(spec: &mut ClusterSpec) {
    spec.vm_size = spec.vm_size.to_uppercase();
    let configuration = spec
        .virtual_machine_configuration
        .get_or_insert_with(|| VirtualMachineConfiguration { image_reference: ImageReference::ubuntu_16_04() });
    configuration.image_reference.version.get_or_insert_with(|| "latest".to_owned());
    if let Some(setup) = &mut spec.node_setup {
        fill_volumes(setup.mount_volumes.as_mut());
    }
}

pub fn fill_job(spec: &mut JobSpec) {
    let n_nodes = spec.node_count;
    if let Some(count) = spec.process_count_mut() {
        count.get_or_insert(n_nodes);
    }
    if let Some(cntk) = &mut spec.cntk_settings
        && cntk.language_type.is_none()
        && cntk.python_script_file_path.is_some()
    {
        cntk.language_type = Some("Python".to_owned());
    }
    // A job on one node is not distributed and has no worker counts.
    if let Some(tensor_flow) = &mut spec.tensor_flow_settings
        && n_nodes > 1
    {
        tensor_flow.worker_count.get_or_insert(n_nodes);
        tensor_flow.parameter_server_count.get_or_insert(1);
    }
    fill_volumes(spec.mount_volumes.as_mut());
}

fn fill_volumes(volumes: Option<&mut MountVolumes>) {
    for share in volumes.into_iter().flat_map(|volumes| &mut volumes.azure_file_shares) {
        share.account_name = share.account().map(str::to_owned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn filled(nodes: i32, field: &str, settings: Value) -> Value {
        let mut spec: JobSpec =
            serde_json::from_value(json!({"nodeCount": nodes, "stdOutErrPathPrefix": "x", field: settings}))
                .expect("a literal");
        fill_job(&mut spec);
        serde_json::to_value(&spec).expect("plain data")[field].clone()
    }

    #[test]
    fn every_kind_that_counts_processes_gets_one_a_node() {
        for field in ["cntkSettings", "pyTorchSettings", "caffeSettings", "chainerSettings", "horovodSettings"] {
            let settings = filled(3, field, json!({"pythonScriptFilePath": "a.py"}));
            assert_eq!(settings["processCount"], 3, "{field}");
        }
        assert_eq!(filled(3, "customMpiSettings", json!({"commandLine": "a"}))["processCount"], 3);
        let given = json!({"pythonScriptFilePath": "a.py", "processCount": 8});
        assert_eq!(filled(2, "horovodSettings", given.clone()), given);
        assert_eq!(filled(2, "caffe2Settings", json!({"pythonScriptFilePath": "a"})).get("processCount"), None);
    }

    #[test]
    fn a_cntk_script_is_python_and_tensorflow_counts_only_when_distributed() {
        assert_eq!(filled(1, "cntkSettings", json!({"pythonScriptFilePath": "a.py"}))["languageType"], "Python");
        assert_eq!(filled(1, "cntkSettings", json!({"configFilePath": "a.cntk"})).get("languageType"), None);
        let script = json!({"pythonScriptFilePath": "a.py"});
        assert_eq!(filled(1, "tensorFlowSettings", script.clone()), script);
        let distributed = filled(4, "tensorFlowSettings", script);
        assert_eq!((&distributed["workerCount"], &distributed["parameterServerCount"]), (&json!(4), &json!(1)));
    }
}
