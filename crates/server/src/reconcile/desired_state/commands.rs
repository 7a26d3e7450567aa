//! Processes and command lines of each toolkit's jobs. Pure.

use corro_model::batchai::{JobSpec, ToolType};
use corro_model::layout::{Layout, RankLogs, Ranks, TensorFlow};

/// Process layout of a job. `None` for a job without a command, which validation does not accept.
pub fn layout(spec: &JobSpec) -> Option<Layout> {
    let tool = spec.toolkit()?;
    Some(match tool {
        ToolType::Custom => Layout::Command { command: spec.custom_toolkit_settings.as_ref()?.command_line.clone()? },
        ToolType::CustomMpi => mpi(spec, spec.custom_mpi_settings.as_ref()?.command_line.clone()),
        // Corro's Horovod needs no launcher but Corro's.
        ToolType::Horovod => Layout::Ranks(shared_log_ranks(script_command(spec.horovod_settings.as_ref()?))),
        ToolType::Chainer => mpi(spec, script_command(spec.chainer_settings.as_ref()?)),
        ToolType::Cntk => {
            let settings = spec.cntk_settings.as_ref()?;
            let arguments = settings.command_line_args.as_deref();
            let command = match (&settings.python_script_file_path, &settings.config_file_path) {
                (Some(script), _) => python(settings.python_interpreter_path.as_deref(), script, arguments),
                (None, Some(config)) => {
                    with_arguments(&format!("cntk \"configFile={}\"", escape_quotes(config)), arguments)
                }
                (None, None) => return None,
            };
            mpi(spec, command)
        }
        ToolType::Caffe => {
            let settings = spec.caffe_settings.as_ref()?;
            let arguments = settings.command_line_args.as_deref();
            let command = match (&settings.python_script_file_path, &settings.config_file_path) {
                (Some(script), _) => python(settings.python_interpreter_path.as_deref(), script, arguments),
                (None, Some(config)) => {
                    with_arguments(&format!("caffe train \"--solver={}\"", escape_quotes(config)), arguments)
                }
                (None, None) => return None,
            };
            mpi(spec, command)
        }
        ToolType::Caffe2 => {
            let settings = spec.caffe2_settings.as_ref()?;
            let (script, arguments) = (&settings.python_script_file_path, settings.command_line_args.as_deref());
            let command = python(settings.python_interpreter_path.as_deref(), script, arguments);
            Layout::Ranks(Ranks { command, logs: RankLogs::Apart, indexed: true, backend: None })
        }
        ToolType::PyTorch => {
            let settings = spec.py_torch_settings.as_ref()?;
            let (script, arguments) = (&settings.python_script_file_path, settings.command_line_args.as_deref());
            let command = python(settings.python_interpreter_path.as_deref(), script, arguments);
            let ranks = Ranks { command, logs: RankLogs::Apart, indexed: true, backend: spec.torch_backend() };
            match spec.uses_torch_mpi() {
                true => mpi_unless_single(spec, Ranks { logs: RankLogs::Together, ..ranks }),
                false => Layout::Ranks(ranks),
            }
        }
        ToolType::TensorFlow => {
            let settings = spec.tensor_flow_settings.as_ref()?;
            let (interpreter, script) =
                (settings.python_interpreter_path.as_deref(), settings.python_script_file_path.as_str());
            let command = |arguments: &Option<String>| python(interpreter, script, arguments.as_deref());
            Layout::TensorFlow(TensorFlow {
                workers: spec.rank_count(),
                parameter_servers: spec.parameter_server_count(),
                master: command(&settings.master_command_line_args),
                worker: command(&settings.worker_command_line_args),
                parameter_server: command(&settings.parameter_server_command_line_args),
            })
        }
    })
}

fn mpi(spec: &JobSpec, command: String) -> Layout {
    mpi_unless_single(spec, shared_log_ranks(command))
}

/// Programs that use an MPI library find each other only under its launcher; a single process needs none.
fn mpi_unless_single(spec: &JobSpec, ranks: Ranks) -> Layout {
    match spec.rank_count() {
        1 => Layout::Ranks(ranks),
        _ => Layout::Mpi(ranks),
    }
}

fn shared_log_ranks(command: String) -> Ranks {
    Ranks { command, logs: RankLogs::Together, indexed: false, backend: None }
}

fn script_command(settings: &corro_model::batchai::ScriptSettings) -> String {
    let (script, arguments) = (&settings.python_script_file_path, settings.command_line_args.as_deref());
    python(settings.python_interpreter_path.as_deref(), script, arguments)
}

fn python(interpreter: Option<&str>, script: &str, arguments: Option<&str>) -> String {
    // The service ran `python`; current machines often have `python3` only.
    const PYTHON_LOOKUP: &str = "\"$(command -v python || command -v python3 || echo python)\"";
    with_arguments(&format!("{} \"{}\"", interpreter.unwrap_or(PYTHON_LOOKUP), escape_quotes(script)), arguments)
}

/// Escapes a path for double quotes, which leave shell variables intact.
fn escape_quotes(path: &str) -> String {
    path.replace('\\', "\\\\").replace('"', "\\\"")
}

fn with_arguments(program: &str, arguments: Option<&str>) -> String {
    format!("{program} {}", arguments.unwrap_or_default()).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const PYTHON_LOOKUP: &str = "\"$(command -v python || command -v python3 || echo python)\"";

    fn layout_of(nodes: i32, kind: &str, settings: Value) -> (Layout, usize) {
        let spec = json!({"nodeCount": nodes, "stdOutErrPathPrefix": "x", kind: settings});
        let spec: JobSpec = serde_json::from_value(spec).expect("a literal");
        (layout(&spec).expect("it says what to run"), spec.rank_count())
    }

    /// Checks how a job is launched and its processes, as `node/role: command > log`.
    fn check(nodes: i32, kind: &str, settings: Value, launch: &str, expected: &[&str]) {
        let (layout, processes) = layout_of(nodes, kind, settings);
        let launch_kind = match &layout {
            Layout::Command { .. } => "command",
            Layout::Ranks(_) => "ranks",
            Layout::Mpi(_) => "mpi",
            Layout::TensorFlow(_) => "tasks",
        };
        assert_eq!(launch_kind, launch, "{kind}");
        let slots = corro_model::layout::slots(processes, nodes as usize);
        let places = layout.process_slots(&slots, false);
        let processes_text: Vec<String> = places
            .iter()
            .map(|p| format!("{}/{}: {} > {}", p.host_idx, p.role.name(p.index), p.command, p.stdout))
            .map(|text| text.replace(PYTHON_LOOKUP, "py"))
            .collect();
        assert_eq!(processes_text, expected, "{kind}");
    }

    #[test]
    fn every_toolkit_has_its_processes() {
        let script = |more: Value| {
            let mut settings = json!({"pythonScriptFilePath": "a.py"});
            settings.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            settings
        };
        let with_args = || script(json!({"commandLineArgs": "-x $Y"}));
        let ranks = ["0/rank 0: py \"a.py\" -x $Y > stdout.txt", "1/rank 1: py \"a.py\" -x $Y > stdout.txt"];
        check(2, "horovodSettings", with_args(), "ranks", &ranks);
        for kind in ["chainerSettings", "cntkSettings", "caffeSettings"] {
            check(2, kind, with_args(), "mpi", &ranks);
            check(1, kind, with_args(), "ranks", &ranks[..1]);
        }
        check(
            2,
            "cntkSettings",
            json!({"configFilePath": "$C/a b.cntk", "commandLineArgs": "rootDir=. n=1"}),
            "mpi",
            &[
                "0/rank 0: cntk \"configFile=$C/a b.cntk\" rootDir=. n=1 > stdout.txt",
                "1/rank 1: cntk \"configFile=$C/a b.cntk\" rootDir=. n=1 > stdout.txt",
            ],
        );
        let solver = json!({"configFilePath": "s.prototxt", "processCount": 1});
        check(1, "caffeSettings", solver, "ranks", &["0/rank 0: caffe train \"--solver=s.prototxt\" > stdout.txt"]);
        check(
            2,
            "customMpiSettings",
            json!({"commandLine": "./a; ./b", "processCount": 3}),
            "mpi",
            &["0/rank 0: ./a; ./b > stdout.txt", "0/rank 1: ./a; ./b > stdout.txt", "1/rank 2: ./a; ./b > stdout.txt"],
        );
        let command = ["0/the command: ./a; ./b > stdout.txt"];
        check(2, "customToolkitSettings", json!({"commandLine": "./a; ./b"}), "command", &command);
        let apart = ["0/rank 0: py \"a.py\" > stdout-0.txt", "1/rank 1: py \"a.py\" > stdout-1.txt"];
        check(2, "caffe2Settings", script(json!({})), "ranks", &apart);
        for backend in ["gloo", "TCP", "NCCL"] {
            check(2, "pyTorchSettings", script(json!({"communicationBackend": backend})), "ranks", &apart);
        }
        let merged = ["0/rank 0: py \"a.py\" > stdout.txt", "1/rank 1: py \"a.py\" > stdout.txt"];
        check(2, "pyTorchSettings", script(json!({"communicationBackend": "Mpi"})), "mpi", &merged);
    }

    #[test]
    fn tensor_flow_has_workers_and_parameter_servers() {
        let arguments = json!({"pythonScriptFilePath": "a.py", "masterCommandLineArgs": "-m",
            "workerCommandLineArgs": "-w", "parameterServerCommandLineArgs": "-p"});
        let with = |more: Value| {
            let mut settings = arguments.clone();
            settings.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            settings
        };
        let (master, worker, server) =
            ("0/worker 0: py \"a.py\" -m > stdout-wk-0.txt", "1/worker 1: py \"a.py\" -w > stdout-wk-1.txt", "ps");
        let servers = ["0", "1"].map(|i| format!("{i}/parameter server {i}: py \"a.py\" -p > stdout-{server}-{i}.txt"));
        check(1, "tensorFlowSettings", with(json!({})), "tasks", &[master]);
        check(2, "tensorFlowSettings", with(json!({})), "tasks", &[master, worker, &servers[0]]);
        let counts = json!({"parameterServerCount": 2, "workerCount": 2});
        check(2, "tensorFlowSettings", with(counts), "tasks", &[master, worker, &servers[0], &servers[1]]);
        let second = "0/worker 1: py \"a.py\" -w > stdout-wk-1.txt";
        check(1, "tensorFlowSettings", with(json!({"workerCount": 2})), "tasks", &[master, second, &servers[0]]);
    }

    #[test]
    fn pytorch_gets_its_backend() {
        let settings = |backend: Value| json!({"pythonScriptFilePath": "a.py", "communicationBackend": backend});
        for (given, expected) in [(json!("TCP"), "tcp"), (json!(null), "gloo"), (json!("nccl"), "nccl")] {
            let (layout, _) = layout_of(2, "pyTorchSettings", settings(given));
            let ranks = layout.ranks().expect("it has ranks");
            assert_eq!((ranks.backend.as_deref(), ranks.indexed), (Some(expected), true));
        }
    }

    #[test]
    fn a_command_keeps_variables_and_spaces() {
        let (layout, _) = layout_of(
            1,
            "horovodSettings",
            json!({"pythonScriptFilePath": "$AZ_BATCHAI_JOB_MOUNT_ROOT/my share/t.py",
                "pythonInterpreterPath": "/opt/py/bin/python", "commandLineArgs": "--dir=$X"}),
        );
        let expected = "/opt/py/bin/python \"$AZ_BATCHAI_JOB_MOUNT_ROOT/my share/t.py\" --dir=$X";
        assert_eq!(layout.ranks().map(|ranks| ranks.command.as_str()), Some(expected));
    }
}
