//! Process layout of a job: nodes, roles, ranks and log file names. The server computes it, nodes execute it, and
//! clients find log files by it. Pure.

use serde::{Deserialize, Serialize};

use crate::batchai::{JobSpec, ToolType};

/// Layout of a job's processes over its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Layout {
    /// One command on the master, which reaches the other nodes itself.
    Command {
        command: String,
    },
    /// One command in numbered ranks, started by the nodes.
    Ranks(Ranks),
    /// The same under the `mpirun` of the job's master; without one, as [`Layout::Ranks`].
    Mpi(Ranks),
    TensorFlow(TensorFlow),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ranks {
    pub command: String,
    pub logs: RankLogs,
    /// Each rank gets its number in `AZ_BATCHAI_TASK_INDEX`.
    pub indexed: bool,
    /// Backend of `torch.distributed`, in lower case.
    pub backend: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RankLogs {
    /// All ranks write to `stdout.txt` and `stderr.txt`.
    Together,
    /// Each rank writes to its own files, `stdout-0.txt` and so on.
    Apart,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TensorFlow {
    pub workers: usize,
    /// One per node from the first; none in a job of one process.
    pub parameter_servers: usize,
    /// Command of worker 0.
    pub master: String,
    pub worker: String,
    pub parameter_server: String,
}

/// Role of a process in its job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    #[default]
    Rank,
    /// Only process of the job.
    Command,
    /// `mpirun`, which starts all ranks.
    Mpirun,
    Worker,
    /// Stopped when the workers have ended.
    ParameterServer,
}

impl Role {
    /// Whether the job succeeds only if this process does.
    pub fn decides(self) -> bool {
        self != Role::ParameterServer
    }

    /// Whether success of this process ends the whole job.
    pub fn is_whole(self) -> bool {
        matches!(self, Role::Command | Role::Mpirun)
    }

    /// Display name: `rank 3`, `worker 0`.
    pub fn name(self, index: usize) -> String {
        match self {
            Role::Rank => format!("rank {index}"),
            Role::Command => "the command".to_owned(),
            Role::Mpirun => "mpirun".to_owned(),
            Role::Worker => format!("worker {index}"),
            Role::ParameterServer => format!("parameter server {index}"),
        }
    }
}

/// One process of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSlot<'a> {
    /// Number among all processes: the rank, or workers before parameter servers.
    pub number: usize,
    pub role: Role,
    /// Number among the processes of its role.
    pub index: usize,
    pub host_idx: usize,
    pub command: &'a str,
    pub stdout: String,
    pub stderr: String,
}

impl Layout {
    /// All processes of the job; `slots` is the number of ranks or workers per node. With `mpirun` it is the only one.
    pub fn process_slots(&self, slots: &[usize], mpirun: bool) -> Vec<ProcessSlot<'_>> {
        let together = |role, command| process_slot(0, role, (0, 0), command, "");
        match self {
            Layout::Command { command } => vec![together(Role::Command, command)],
            Layout::Mpi(ranks) if mpirun => vec![together(Role::Mpirun, &ranks.command)],
            Layout::Ranks(ranks) | Layout::Mpi(ranks) => {
                let of = |(rank, host_idx): (usize, usize)| {
                    let suffix = match ranks.logs {
                        RankLogs::Together => String::new(),
                        RankLogs::Apart => format!("-{rank}"),
                    };
                    process_slot(rank, Role::Rank, (rank, host_idx), &ranks.command, &suffix)
                };
                hosts_of(slots).enumerate().map(of).collect()
            }
            Layout::TensorFlow(tasks) => {
                let workers = hosts_of(slots).enumerate().map(|(index, host_idx)| {
                    let command = if index == 0 { &tasks.master } else { &tasks.worker };
                    process_slot(index, Role::Worker, (index, host_idx), command, &format!("-wk-{index}"))
                });
                let servers = (0..tasks.parameter_servers).map(|index| {
                    let (number, suffix) = (tasks.workers + index, format!("-ps-{index}"));
                    process_slot(number, Role::ParameterServer, (index, index), &tasks.parameter_server, &suffix)
                });
                workers.chain(servers).collect()
            }
        }
    }

    /// Whether ranks get the environment of an MPI launcher.
    pub fn is_mpi(&self) -> bool {
        match self {
            Layout::Mpi(_) => true,
            Layout::Ranks(ranks) => ranks.logs == RankLogs::Together,
            Layout::Command { .. } | Layout::TensorFlow(_) => false,
        }
    }

    /// The ranks, if the layout has numbered processes.
    pub fn ranks(&self) -> Option<&Ranks> {
        match self {
            Layout::Ranks(ranks) | Layout::Mpi(ranks) => Some(ranks),
            Layout::Command { .. } | Layout::TensorFlow(_) => None,
        }
    }

    /// Whether the single command starts processes on the job's other nodes.
    pub fn reaches_out_alone(&self) -> bool {
        matches!(self, Layout::Command { .. })
    }

    /// Whether any process starts others on the job's other nodes.
    pub fn reaches_out(&self) -> bool {
        matches!(self, Layout::Command { .. } | Layout::Mpi(_))
    }
}

/// Processes per node: ceil(P/N) in order.
pub fn slots(processes: usize, n_nodes: usize) -> Vec<usize> {
    let per_node = processes.div_ceil(n_nodes.max(1));
    (0..n_nodes).map(|i| processes.saturating_sub(i * per_node).min(per_node)).collect()
}

/// Log files of the first process, the default to read.
pub fn main_logs(spec: &JobSpec) -> (&'static str, &'static str) {
    match spec.toolkit() {
        Some(ToolType::TensorFlow) => ("stdout-wk-0.txt", "stderr-wk-0.txt"),
        Some(ToolType::Caffe2) => ("stdout-0.txt", "stderr-0.txt"),
        Some(ToolType::PyTorch) if !spec.uses_torch_mpi() => ("stdout-0.txt", "stderr-0.txt"),
        _ => ("stdout.txt", "stderr.txt"),
    }
}

/// Node index of each process in turn.
fn hosts_of(slots: &[usize]) -> impl Iterator<Item = usize> {
    slots.iter().enumerate().flat_map(|(host_idx, slots)| std::iter::repeat_n(host_idx, *slots))
}

fn process_slot<'a>(
    number: usize,
    role: Role,
    (index, host_idx): (usize, usize),
    command: &'a str,
    suffix: &str,
) -> ProcessSlot<'a> {
    let (stdout, stderr) = (format!("stdout{suffix}.txt"), format!("stderr{suffix}.txt"));
    ProcessSlot { number, role, index, host_idx, command, stdout, stderr }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn processes_are_spread_in_host_order() {
        let check = |nodes, processes, expected: &[usize]| assert_eq!(slots(processes, nodes), expected);
        check(4, 4, &[1, 1, 1, 1]);
        check(2, 8, &[4, 4]);
        check(2, 3, &[2, 1]);
        check(4, 5, &[2, 2, 1, 0]);
    }

    /// Each as `node: role, command > log`.
    fn check(layout: &Layout, slots: &[usize], mpirun: bool, expected: &[&str]) {
        let places = layout.process_slots(slots, mpirun);
        let line = |p: &ProcessSlot| format!("{}: {}, {} > {}", p.host_idx, p.role.name(p.index), p.command, p.stdout);
        assert_eq!(places.iter().map(line).collect::<Vec<_>>(), expected, "{layout:?}");
        assert!(places.iter().enumerate().all(|(number, place)| place.number == number));
    }

    #[test]
    fn every_process_has_its_place() {
        let ranks = |logs| Ranks { command: "run".into(), logs, indexed: false, backend: None };
        check(&Layout::Command { command: "run".into() }, &[1, 0], false, &["0: the command, run > stdout.txt"]);
        let expected = ["0: rank 0, run > stdout.txt", "0: rank 1, run > stdout.txt", "1: rank 2, run > stdout.txt"];
        check(&Layout::Ranks(ranks(RankLogs::Together)), &[2, 1], false, &expected);
        check(&Layout::Mpi(ranks(RankLogs::Together)), &[2, 1], false, &expected);
        check(&Layout::Mpi(ranks(RankLogs::Together)), &[2, 1], true, &["0: mpirun, run > stdout.txt"]);
        let expected = ["0: rank 0, run > stdout-0.txt", "1: rank 1, run > stdout-1.txt"];
        check(&Layout::Ranks(ranks(RankLogs::Apart)), &[1, 1], false, &expected);
        let tasks = TensorFlow {
            workers: 3,
            parameter_servers: 2,
            master: "m".into(),
            worker: "w".into(),
            parameter_server: "p".into(),
        };
        let expected = [
            "0: worker 0, m > stdout-wk-0.txt",
            "0: worker 1, w > stdout-wk-1.txt",
            "1: worker 2, w > stdout-wk-2.txt",
            "0: parameter server 0, p > stdout-ps-0.txt",
            "1: parameter server 1, p > stdout-ps-1.txt",
        ];
        check(&Layout::TensorFlow(tasks), &[2, 1], false, &expected);
    }

    #[test]
    fn the_first_process_of_each_kind_writes_where_its_readers_look() {
        let check = |kind: &str, settings: serde_json::Value, expected: &str| {
            let spec = json!({"nodeCount": 1, "stdOutErrPathPrefix": "x", kind: settings});
            let spec: JobSpec = serde_json::from_value(spec).expect("a literal");
            assert_eq!(main_logs(&spec).1, expected, "{kind} {settings}");
        };
        let script = json!({"pythonScriptFilePath": "a.py"});
        check("tensorFlowSettings", script.clone(), "stderr-wk-0.txt");
        check("caffe2Settings", script.clone(), "stderr-0.txt");
        check("pyTorchSettings", script.clone(), "stderr-0.txt");
        check("pyTorchSettings", json!({"pythonScriptFilePath": "a.py", "communicationBackend": "MPI"}), "stderr.txt");
        for kind in ["horovodSettings", "chainerSettings", "cntkSettings", "caffeSettings"] {
            check(kind, script.clone(), "stderr.txt");
        }
        check("customToolkitSettings", json!({"commandLine": "a"}), "stderr.txt");
    }
}
