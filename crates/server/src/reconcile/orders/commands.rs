//! The command lines of a job's processes, and how many of them each node runs. Pure.

use corro_model::batchai::JobSpec;

/// How many processes each node runs: ceil(P/N) in order; a custom job has one, on the master.
pub fn slots(processes: usize, n_nodes: usize) -> Vec<usize> {
    let per_node = processes.div_ceil(n_nodes.max(1));
    (0..n_nodes).map(|i| processes.saturating_sub(i * per_node).min(per_node)).collect()
}

/// The shell line of one process. A path may hold variables, so it is quoted in a way that lets them through.
pub fn command(spec: &JobSpec) -> Option<String> {
    if let Some(settings) = &spec.horovod_settings {
        // `python` is what the service ran; machines of today often have only `python3`.
        let found = "\"$(command -v python || command -v python3 || echo python)\"".to_owned();
        let interpreter = settings.python_interpreter_path.clone().unwrap_or(found);
        let script = settings.python_script_file_path.replace('\\', "\\\\").replace('"', "\\\"");
        let arguments = settings.command_line_args.as_deref().unwrap_or_default();
        return Some(format!("{interpreter} \"{script}\" {arguments}").trim_end().to_owned());
    }
    let custom = spec.custom_toolkit_settings.as_ref().and_then(|settings| settings.command_line.clone());
    custom.or_else(|| spec.custom_mpi_settings.as_ref().map(|settings| settings.command_line.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(value: serde_json::Value) -> JobSpec {
        serde_json::from_value(value).expect("a literal")
    }

    #[test]
    fn processes_are_spread_in_host_order() {
        let check = |nodes, processes, expected: &[usize]| assert_eq!(slots(processes, nodes), expected);
        check(4, 4, &[1, 1, 1, 1]);
        check(2, 8, &[4, 4]);
        check(2, 3, &[2, 1]);
        check(4, 5, &[2, 2, 1, 0]);
    }

    #[test]
    fn a_horovod_command_keeps_variables_and_spaces() {
        let spec = spec(json!({"nodeCount": 1, "stdOutErrPathPrefix": "x", "horovodSettings": {
            "pythonScriptFilePath": "$AZ_BATCHAI_JOB_MOUNT_ROOT/my share/t.py",
            "pythonInterpreterPath": "/opt/py/bin/python", "commandLineArgs": "--dir=$X"}}));
        assert_eq!(
            command(&spec).as_deref(),
            Some("/opt/py/bin/python \"$AZ_BATCHAI_JOB_MOUNT_ROOT/my share/t.py\" --dir=$X")
        );
    }
}
