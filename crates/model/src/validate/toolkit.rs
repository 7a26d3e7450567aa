//! Validation of the nine toolkits: exactly one is given, and it names a program to run.

use super::limits::check_argument;
use super::{blank, refuse};
use crate::batchai::{CaffeSettings, CntkSettings, JobSpec, TensorFlowSettings, ToolType};
use crate::error::ApiError;

/// Maximum number of processes per node. More is taken for a mistake in `processCount`.
const MAX_PROCESSES_PER_NODE: i32 = 64;

const BACKENDS: [&str; 4] = ["TCP", "Gloo", "MPI", "NCCL"];

pub fn check_toolkit(spec: &JobSpec) -> Result<(), ApiError> {
    let field_names = |tools: &[ToolType]| tools.iter().map(|t| t.settings_field()).collect::<Vec<_>>().join(", ");
    let tool = match spec.toolkits().collect::<Vec<_>>()[..] {
        [tool] => tool,
        [] => {
            let all = field_names(&ToolType::ALL);
            return Err(ApiError::invalid(
                "properties",
                format!("no toolkit settings are given: give exactly one of {all}"),
            ));
        }
        ref several => {
            let given = field_names(several);
            return Err(ApiError::invalid(
                "properties",
                format!("several toolkit settings are given ({given}): give exactly one"),
            ));
        }
    };
    let field = format!("properties.{}", tool.settings_field());
    match tool {
        ToolType::Cntk => check_cntk(&field, spec.cntk_settings.as_ref())?,
        ToolType::Caffe => check_caffe(&field, spec.caffe_settings.as_ref())?,
        ToolType::TensorFlow => check_tensor_flow(&field, spec.node_count, spec.tensor_flow_settings.as_ref())?,
        ToolType::PyTorch => {
            let backend = spec.py_torch_settings.as_ref().and_then(|s| s.communication_backend.as_deref());
            if let Some(backend) = backend.filter(|given| !BACKENDS.iter().any(|b| b.eq_ignore_ascii_case(given))) {
                let message = format!("'{backend}' is not a backend: use one of {}", BACKENDS.join(", "));
                return refuse(&format!("{field}.communicationBackend"), &message);
            }
        }
        ToolType::Caffe2 | ToolType::Chainer | ToolType::Custom | ToolType::CustomMpi | ToolType::Horovod => {}
    }
    if let Some((name, text)) = what_to_run(spec, tool) {
        if blank(text) {
            return refuse(&format!("{field}.{name}"), "it is empty: say what to run");
        }
        check_argument(&format!("{field}.{name}"), text.unwrap_or_default())?;
    }
    if let Some(interpreter) = interpreter(spec, tool)
        && blank(Some(interpreter))
    {
        let message = "it is empty: name the program that runs the script, or leave it out for python";
        return refuse(&format!("{field}.pythonInterpreterPath"), message);
    }
    let processes = spec.process_count();
    if processes < 1 || processes > spec.node_count.saturating_mul(MAX_PROCESSES_PER_NODE) {
        let most = spec.node_count.saturating_mul(MAX_PROCESSES_PER_NODE);
        let message =
            format!("processCount is {processes}: use a number from 1 to {most} on {} nodes", spec.node_count);
        return Err(ApiError::invalid(&format!("{field}.processCount"), message));
    }
    Ok(())
}

/// Name and value of the field that must not be empty, for toolkits that have one.
fn what_to_run(spec: &JobSpec, tool: ToolType) -> Option<(&'static str, Option<&str>)> {
    const SCRIPT: &str = "pythonScriptFilePath";
    const COMMAND: &str = "commandLine";
    Some(match tool {
        ToolType::Cntk | ToolType::Caffe => return None,
        ToolType::PyTorch => (SCRIPT, spec.py_torch_settings.as_ref().map(|s| s.python_script_file_path.as_str())),
        ToolType::TensorFlow => {
            (SCRIPT, spec.tensor_flow_settings.as_ref().map(|s| s.python_script_file_path.as_str()))
        }
        ToolType::Caffe2 => (SCRIPT, spec.caffe2_settings.as_ref().map(|s| s.python_script_file_path.as_str())),
        ToolType::Chainer => (SCRIPT, spec.chainer_settings.as_ref().map(|s| s.python_script_file_path.as_str())),
        ToolType::Horovod => (SCRIPT, spec.horovod_settings.as_ref().map(|s| s.python_script_file_path.as_str())),
        ToolType::Custom => (COMMAND, spec.custom_toolkit_settings.as_ref().and_then(|s| s.command_line.as_deref())),
        ToolType::CustomMpi => (COMMAND, spec.custom_mpi_settings.as_ref().map(|s| s.command_line.as_str())),
    })
}

/// Path of the interpreter of the script, if given.
fn interpreter(spec: &JobSpec, tool: ToolType) -> Option<&str> {
    let path = match tool {
        ToolType::Cntk => &spec.cntk_settings.as_ref()?.python_interpreter_path,
        ToolType::PyTorch => &spec.py_torch_settings.as_ref()?.python_interpreter_path,
        ToolType::TensorFlow => &spec.tensor_flow_settings.as_ref()?.python_interpreter_path,
        ToolType::Caffe => &spec.caffe_settings.as_ref()?.python_interpreter_path,
        ToolType::Caffe2 => &spec.caffe2_settings.as_ref()?.python_interpreter_path,
        ToolType::Chainer => &spec.chainer_settings.as_ref()?.python_interpreter_path,
        ToolType::Horovod => &spec.horovod_settings.as_ref()?.python_interpreter_path,
        ToolType::Custom | ToolType::CustomMpi => return None,
    };
    path.as_deref()
}

fn check_cntk(field: &str, settings: Option<&CntkSettings>) -> Result<(), ApiError> {
    let Some(settings) = settings else { return Ok(()) };
    let (config, script) = (settings.config_file_path.as_deref(), settings.python_script_file_path.as_deref());
    let language = settings.language_type.as_deref();
    let brain_script = match language {
        Some(word) if word.eq_ignore_ascii_case("BrainScript") => true,
        Some(word) if word.eq_ignore_ascii_case("Python") => false,
        Some(word) => {
            let message = format!("'{word}' is not a language: use BrainScript or Python");
            return refuse(&format!("{field}.languageType"), &message);
        }
        None => script.is_none(),
    };
    if brain_script && settings.python_interpreter_path.is_some() {
        let message = "it is for Python only: leave it out, or give pythonScriptFilePath in place of configFilePath";
        return refuse(&format!("{field}.pythonInterpreterPath"), message);
    }
    match brain_script {
        true if blank(config) => {
            refuse(&format!("{field}.configFilePath"), "it is empty: BrainScript needs a configuration file")
        }
        true if script.is_some() => {
            refuse(&format!("{field}.pythonScriptFilePath"), "it is for Python only: leave it out")
        }
        false if blank(script) => refuse(&format!("{field}.pythonScriptFilePath"), "it is empty: say which script"),
        false if config.is_some() => {
            refuse(&format!("{field}.configFilePath"), "it is for BrainScript only: leave it out")
        }
        _ => Ok(()),
    }
}

fn check_caffe(field: &str, settings: Option<&CaffeSettings>) -> Result<(), ApiError> {
    let Some(settings) = settings else { return Ok(()) };
    match (blank(settings.config_file_path.as_deref()), blank(settings.python_script_file_path.as_deref())) {
        (true, true) => refuse(field, "neither configFilePath nor pythonScriptFilePath is given: give one of them"),
        (false, false) => refuse(field, "both configFilePath and pythonScriptFilePath are given: give one of them"),
        (false, true) if settings.python_interpreter_path.is_some() => {
            refuse(&format!("{field}.pythonInterpreterPath"), "it goes with a script only: leave it out")
        }
        _ => Ok(()),
    }
}

fn check_tensor_flow(field: &str, n_nodes: i32, settings: Option<&TensorFlowSettings>) -> Result<(), ApiError> {
    let Some(settings) = settings else { return Ok(()) };
    let most_workers = n_nodes.saturating_mul(MAX_PROCESSES_PER_NODE);
    let counts = [
        ("workerCount", settings.worker_count, most_workers),
        ("parameterServerCount", settings.parameter_server_count, n_nodes),
    ];
    for (name, count, most) in counts {
        if let Some(count) = count.filter(|count| !(1..=most).contains(count)) {
            let message = format!("{name} is {count}: use a number from 1 to {most} on {n_nodes} nodes");
            return refuse(&format!("{field}.{name}"), &message);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn each_kind_is_refused_for_what_it_lacks_or_has_too_much() {
        let check = |kind: &str, settings: Value, refused: Option<&str>| {
            let spec: JobSpec =
                serde_json::from_value(json!({"nodeCount": 2, "stdOutErrPathPrefix": "x", kind: settings}))
                    .expect("well-formed");
            let target = check_toolkit(&spec).err().map(|error| error.target.unwrap_or_default());
            assert_eq!(target, refused.map(|name| format!("properties.{kind}{name}")), "{kind} {settings}");
        };
        let script = json!({"pythonScriptFilePath": "a.py"});
        for kind in ["pyTorchSettings", "tensorFlowSettings", "caffe2Settings", "chainerSettings", "horovodSettings"] {
            check(kind, script.clone(), None);
            check(kind, json!({"pythonScriptFilePath": ""}), Some(".pythonScriptFilePath"));
        }
        check("cntkSettings", script.clone(), None);
        check("cntkSettings", json!({"languageType": "BrainScript", "configFilePath": "a"}), None);
        check("cntkSettings", json!({"languageType": "BrainScript"}), Some(".configFilePath"));
        check("cntkSettings", json!({"languageType": "Lisp"}), Some(".languageType"));
        check("cntkSettings", json!({"pythonScriptFilePath": "a", "configFilePath": "b"}), Some(".configFilePath"));
        check("caffeSettings", json!({"configFilePath": "a"}), None);
        check("caffeSettings", json!({}), Some(""));
        check("caffeSettings", json!({"pythonScriptFilePath": "a", "configFilePath": "b"}), Some(""));
        let interpreter = json!({"configFilePath": "a", "pythonInterpreterPath": "b"});
        check("caffeSettings", interpreter, Some(".pythonInterpreterPath"));
        let backend = |name: &str| json!({"pythonScriptFilePath": "a.py", "communicationBackend": name});
        check("pyTorchSettings", backend("gloo"), None);
        check("pyTorchSettings", backend("nccl"), None);
        check("pyTorchSettings", backend("smoke"), Some(".communicationBackend"));
        let count = |name: &str, count: i32| json!({"pythonScriptFilePath": "a.py", name: count});
        check("tensorFlowSettings", count("workerCount", 2), None);
        check("tensorFlowSettings", count("parameterServerCount", 3), Some(".parameterServerCount"));
        for kind in ["horovodSettings", "chainerSettings", "cntkSettings", "caffeSettings", "pyTorchSettings"] {
            check(kind, count("processCount", 0), Some(".processCount"));
            check(kind, count("processCount", 129), Some(".processCount"));
            check(
                kind,
                json!({"pythonScriptFilePath": "a.py", "pythonInterpreterPath": " "}),
                Some(".pythonInterpreterPath"),
            );
        }
        check("tensorFlowSettings", count("workerCount", 0), Some(".workerCount"));
        let interpreter = json!({"configFilePath": "a", "pythonInterpreterPath": "b"});
        check("cntkSettings", interpreter, Some(".pythonInterpreterPath"));
        check("customMpiSettings", json!({"commandLine": "a", "processCount": -1}), Some(".processCount"));
        check("customMpiSettings", json!({"commandLine": " "}), Some(".commandLine"));
        check("customToolkitSettings", json!({}), Some(".commandLine"));
    }
}
