//! Which files hold the output of a job's processes, and which of them a user wants to see. Pure.

use corro_model::batchai::{JobSpec, ToolType};
use corro_model::layout::main_logs;
use thiserror::Error;

/// Logs of more ranks are not shown where each rank has its own.
const MAX_SHOWN_RANKS: usize = 16;

/// Output that a user wants to see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSelection {
    /// Only that of this rank.
    pub rank: Option<usize>,
    /// Only standard error.
    pub only_stderr: bool,
}

/// A log file and how its lines are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFileName {
    pub name: String,
    pub is_stderr: bool,
    /// Printed before each line if several processes have their own files.
    pub label: Option<String>,
    /// Only lines that begin with the number of this rank are shown, without the number.
    pub only_rank: Option<usize>,
}

/// The files to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFilePlan {
    pub files: Vec<LogFileName>,
    /// Ranks whose files are left out.
    pub omitted_ranks: usize,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum LogSelectionError {
    #[error("the job has no rank {rank}: its ranks are 0 to {}", n_ranks - 1)]
    NoSuchRank { rank: usize, n_ranks: usize },
    #[error(
        "the output of rank {rank} cannot be told from that of others: all ranks write to the same file, without their numbers"
    )]
    NotNumbered { rank: usize },
}

/// The log files of a job that the selection names.
pub fn plan_log_files(spec: &JobSpec, selection: LogSelection) -> Result<LogFilePlan, LogSelectionError> {
    let n_ranks = spec.rank_count();
    if let Some(rank) = selection.rank.filter(|rank| *rank >= n_ranks) {
        return Err(LogSelectionError::NoSuchRank { rank, n_ranks });
    }
    let mut plan = LogFilePlan::default();
    match (own_files(spec), selection.rank) {
        (Some(own), Some(rank)) => plan.push(own.process(rank), None, None),
        (Some(own), None) => {
            let processes = own.processes();
            let is_labelled = processes.len() > 1;
            plan.omitted_ranks = n_ranks.saturating_sub(MAX_SHOWN_RANKS);
            for process in processes {
                let label = is_labelled.then(|| format!("[{}] ", process.label));
                plan.push(process, label, None);
            }
        }
        (None, rank) => {
            let only_rank = rank.filter(|_| n_ranks > 1);
            if let Some(rank) = only_rank.filter(|_| !spec.prefix_output_with_rank) {
                return Err(LogSelectionError::NotNumbered { rank });
            }
            let (stdout, stderr) = main_logs(spec);
            let names = ProcessLogs { label: String::new(), stdout: stdout.to_owned(), stderr: stderr.to_owned() };
            plan.push(names, None, only_rank);
        }
    }
    plan.files.retain(|file| file.is_stderr || !selection.only_stderr);
    Ok(plan)
}

impl LogFilePlan {
    fn push(&mut self, process: ProcessLogs, label: Option<String>, only_rank: Option<usize>) {
        for (name, is_stderr) in [(process.stdout, false), (process.stderr, true)] {
            self.files.push(LogFileName { name, is_stderr, label: label.clone(), only_rank });
        }
    }
}

/// The pair of files of one process.
struct ProcessLogs {
    label: String,
    stdout: String,
    stderr: String,
}

/// Jobs whose processes have their own files.
struct OwnFiles {
    /// Between `stdout` and the rank.
    infix: &'static str,
    /// Before the number in labels.
    noun: &'static str,
    ranks: usize,
    parameter_servers: usize,
}

impl OwnFiles {
    fn process(&self, rank: usize) -> ProcessLogs {
        process_logs(self.noun, self.infix, rank)
    }

    fn processes(&self) -> Vec<ProcessLogs> {
        let ranks = (0..self.ranks.min(MAX_SHOWN_RANKS)).map(|rank| self.process(rank));
        let servers = (0..self.parameter_servers.min(MAX_SHOWN_RANKS)).map(|idx| process_logs("ps ", "-ps-", idx));
        ranks.chain(servers).collect()
    }
}

fn process_logs(noun: &str, infix: &str, number: usize) -> ProcessLogs {
    ProcessLogs {
        label: format!("{noun}{number}"),
        stdout: format!("stdout{infix}{number}.txt"),
        stderr: format!("stderr{infix}{number}.txt"),
    }
}

fn own_files(spec: &JobSpec) -> Option<OwnFiles> {
    let (infix, noun) = match spec.toolkit()? {
        ToolType::TensorFlow => ("-wk-", "worker "),
        ToolType::Caffe2 => ("-", ""),
        ToolType::PyTorch if !spec.uses_torch_mpi() => ("-", ""),
        _ => return None,
    };
    Some(OwnFiles { infix, noun, ranks: spec.rank_count(), parameter_servers: spec.parameter_server_count() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn spec(settings: &str, value: Value, nodes: u32, is_prefixed: bool) -> JobSpec {
        let spec = json!({"nodeCount": nodes, "stdOutErrPathPrefix": "x", settings: value, "prefixOutputWithRank": is_prefixed});
        serde_json::from_value(spec).expect("a job")
    }

    fn script() -> Value {
        json!({"pythonScriptFilePath": "a.py"})
    }

    fn names(spec: &JobSpec, selection: LogSelection) -> Result<Vec<String>, String> {
        let plan = plan_log_files(spec, selection).map_err(|error| error.to_string())?;
        let only = |file: &LogFileName| file.only_rank.map(|rank| format!(" only {rank}")).unwrap_or_default();
        Ok(plan.files.iter().map(|file| file.label.clone().unwrap_or_default() + &file.name + &only(file)).collect())
    }

    #[test]
    fn processes_share_files_or_have_their_own() {
        let check = |settings: &str, value: Value, nodes: u32, expected: &[&str]| {
            let names = names(&spec(settings, value, nodes, false), LogSelection::default()).expect("files");
            assert_eq!(names, expected, "{settings} {nodes}");
        };
        check("horovodSettings", script(), 2, &["stdout.txt", "stderr.txt"]);
        check("customToolkitSettings", json!({"commandLine": "a"}), 2, &["stdout.txt", "stderr.txt"]);
        check("pyTorchSettings", script(), 1, &["stdout-0.txt", "stderr-0.txt"]);
        let two = ["[0] stdout-0.txt", "[0] stderr-0.txt", "[1] stdout-1.txt", "[1] stderr-1.txt"];
        check("pyTorchSettings", script(), 2, &two);
        check("caffe2Settings", script(), 2, &two);
        let tasks = [
            "[worker 0] stdout-wk-0.txt",
            "[worker 0] stderr-wk-0.txt",
            "[ps 0] stdout-ps-0.txt",
            "[ps 0] stderr-ps-0.txt",
        ];
        let settings = json!({"pythonScriptFilePath": "a.py", "workerCount": 1, "parameterServerCount": 1});
        check("tensorFlowSettings", settings, 2, &tasks);
    }

    #[test]
    fn the_files_of_many_ranks_are_not_all_shown() {
        let plan =
            plan_log_files(&spec("pyTorchSettings", script(), 40, false), LogSelection::default()).expect("files");
        assert_eq!((plan.files.len(), plan.omitted_ranks), (32, 24));
        let one = LogSelection { rank: Some(39), only_stderr: false };
        let plan = plan_log_files(&spec("pyTorchSettings", script(), 40, false), one).expect("files");
        assert_eq!(
            plan.files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(),
            ["stdout-39.txt", "stderr-39.txt"]
        );
    }

    #[test]
    fn one_rank_is_selected_by_its_file_or_by_its_number() {
        let select = |rank| LogSelection { rank: Some(rank), only_stderr: true };
        assert_eq!(names(&spec("pyTorchSettings", script(), 2, false), select(1)), Ok(vec!["stderr-1.txt".to_owned()]));
        let shared = |nodes, is_prefixed| spec("horovodSettings", script(), nodes, is_prefixed);
        assert_eq!(names(&shared(2, true), select(1)), Ok(vec!["stderr.txt only 1".to_owned()]));
        assert_eq!(names(&shared(1, false), select(0)), Ok(vec!["stderr.txt".to_owned()]));
        let error = |nodes, rank| names(&shared(nodes, false), select(rank)).expect_err("no such output");
        assert_eq!(error(2, 2), "the job has no rank 2: its ranks are 0 to 1");
        assert!(error(2, 1).starts_with("the output of rank 1 cannot be told from that of others"));
    }
}
