//! Rules for communication between ranks: NCCL, Horovod, MPI. Pure.

use super::facts::JobFacts;
use super::rule::{Answer, Finding, Found, MAX_ADVICE, Pattern, Rule};
use super::text::is_program_missing;
use crate::root_cause::cause_in;

pub const RULES: &[Rule] = &[
    Rule {
        key: "nccl-error",
        pattern: Pattern::Line(&["Duplicate GPU detected : rank"]),
        answer: Answer::Fixed {
            cause: "Two ranks use the same GPU, which NCCL does not allow.",
            advice: &[
                "Choose the GPU by the rank's number on its node before the first operation: torch.cuda.set_device(local_rank), \
                 with hvd.local_rank() or int(os.environ['LOCAL_RANK']).",
                "Do not start more ranks on a node than it has GPUs (AZ_BATCHAI_NUM_GPUS), or use the backend gloo.",
            ],
        },
    },
    Rule {
        key: "nccl-timeout",
        pattern: Pattern::Line(&[
            "Watchdog caught collective operation timeout",
            "NCCL watchdog thread terminated with exception",
        ]),
        answer: Answer::Fixed {
            cause: "A collective operation of NCCL did not end in time: a rank did not take part, or the network is interrupted.",
            advice: &[
                "Let all ranks perform the same operations: a rank with fewer batches, or one that saves or evaluates alone, \
                 keeps the others waiting. The log of each rank shows how far it came.",
                "If one rank just takes long, raise the limit: torch.distributed.init_process_group(…, \
                 timeout=timedelta(hours=2)).",
                "Set NCCL_DEBUG=INFO in environmentVariables to see the connections.",
            ],
        },
    },
    Rule {
        key: "nccl-error",
        pattern: Pattern::Line(&[
            "NCCL error",
            "ncclSystemError",
            "ncclUnhandledCudaError",
            "ncclInternalError",
            "ncclInvalidUsage",
            "ncclRemoteError",
            "NCCL WARN Bootstrap : no socket interface found",
        ]),
        answer: Answer::Computed(nccl),
    },
    Rule {
        key: "horovod-not-initialized",
        pattern: Pattern::Line(&["Horovod has not been initialized; use hvd.init()."]),
        answer: Answer::Fixed {
            cause: "A function of Horovod was called before hvd.init() or after hvd.shutdown().",
            advice: &["Call hvd.init() at the beginning of the script, before all other functions of Horovod."],
        },
    },
    Rule {
        key: "mismatched-tensors",
        pattern: Pattern::Line(&[
            "Mismatched data types: One rank",
            "Mismatched operations: One rank",
            " tensor shapes: One rank sent",
            "Mismatched BROADCAST root ranks",
        ]),
        answer: Answer::Fixed {
            cause: "The ranks submitted different tensors under the same name.",
            advice: &[
                "Make shapes, types and operations equal on all ranks: a last batch that is smaller on one rank is a frequent cause \
                 (drop_last=True).",
                "Give operations names of their own (name=…), so that ranks with different branches do not mix.",
            ],
        },
    },
    Rule {
        key: "duplicate-tensor-name",
        pattern: Pattern::Line(&["a tensor with the same name as another tensor that is currently being processed"]),
        answer: Answer::Fixed {
            cause: "An operation was started under a name that another one still uses.",
            advice: &["Wait for the first with hvd.synchronize(handle), or give the second another name."],
        },
    },
    Rule {
        key: "ranks-stalled",
        pattern: Pattern::Line(&["is stalled for longer than", "Will shutdown."]),
        answer: Answer::Computed(|found, _| found.line.contains("shutdown").then(stalled)),
    },
    Rule {
        key: "rank-died",
        pattern: Pattern::Line(&[" has died", " was lost", "has left while others still needed it"]),
        answer: Answer::Computed(|found, _| {
            cause_in(found.line).is_some().then(|| {
                Finding::new(
                    "Another rank ended, and this one failed because of it.",
                    [
                        "Read the output of the rank that the last line names: memory is a frequent cause.".to_owned(),
                        "If its host was lost, see 'corro batchai cluster show' and agent.log of the node.".to_owned(),
                    ],
                )
            })
        }),
    },
    Rule {
        key: "horovod-shut-down",
        pattern: Pattern::Line(&["Horovod has been shut down."]),
        answer: Answer::Fixed {
            cause: "A rank ended its script, or called hvd.shutdown(), while others still had work.",
            advice: &[
                "Read the output of the rank that ended first.",
                "Let all ranks run the same number of steps, or call hvd.join() at the end of an epoch.",
            ],
        },
    },
    Rule {
        key: "ranks-missing",
        pattern: Pattern::Line(&["did not join the rendezvous within"]),
        answer: Answer::Fixed {
            cause: "Not all ranks called hvd.init() within the time limit.",
            advice: &[
                "Read the output of the ranks that the line names: they may have failed, or still load data.",
                "If they start slowly, raise HOROVOD_GLOO_TIMEOUT_SECONDS in environmentVariables.",
            ],
        },
    },
    Rule {
        key: "horovod-version",
        pattern: Pattern::Line(&["HorovodVersionMismatchError"]),
        answer: Answer::Fixed {
            cause: "Horovod was built for another version of the framework than the one that is installed.",
            advice: &[
                "Use Corro's Horovod, whose one wheel serves every version: the operator offers it with 'corro up --wheels DIR'.",
                "Or build Horovod again: 'pip install --no-cache-dir --force-reinstall horovod'.",
            ],
        },
    },
    Rule {
        key: "mpi-slots",
        pattern: Pattern::Line(&["There are not enough slots available in the system"]),
        answer: Answer::Computed(slots),
    },
    Rule {
        key: "mpi-as-root",
        pattern: Pattern::Line(&["has detected an attempt to run as root"]),
        answer: Answer::Fixed {
            cause: "Open MPI refuses to start as root, as which jobs run in a container.",
            advice: &[
                "Allow it: OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 in environmentVariables, or 'mpirun \
                 --allow-run-as-root'.",
                "Or leave mpirun out: customMpiSettings and horovodSettings start the ranks themselves.",
            ],
        },
    },
    Rule {
        key: "mpirun-missing",
        pattern: Pattern::LineWith(|line| is_program_missing(line, "mpirun") || is_program_missing(line, "mpiexec")),
        answer: Answer::Fixed {
            cause: "The command line calls mpirun, and the node has none.",
            advice: &[
                "Leave it out: give the program alone in customMpiSettings.commandLine and the number of ranks in \
                 customMpiSettings.processCount; the nodes start the ranks.",
                "Or install Open MPI in the job's image, or on the nodes' machines ('apt install openmpi-bin' as root).",
            ],
        },
    },
    Rule {
        key: "mpi-program-missing",
        pattern: Pattern::Line(&[
            "was unable to launch the specified application as it could not access",
            "was unable to find the specified executable file",
            "HYDU_create_process",
            "execvp error on file",
        ]),
        answer: Answer::Fixed {
            cause: "mpirun did not find the program on a node, or may not run it.",
            advice: &[
                "Name the program with its whole path on a mounted share, such as $AZ_BATCHAI_JOB_MOUNT_ROOT/SHARE/program.",
                "Make it executable ('chmod +x'), and check that it was built for the nodes' system ('ldd program').",
            ],
        },
    },
    Rule {
        key: "mpi-daemon-lost",
        pattern: Pattern::Line(&[
            "was unable to reliably start one or more daemons",
            "has lost communication with a remote daemon",
            "An ORTE daemon has unexpectedly failed",
            "died unexpectedly with status",
        ]),
        answer: Answer::Fixed {
            cause: "mpirun could not start its part on another node, or lost it.",
            advice: &[
                "Let the nodes start the ranks: leave mpirun out of the command line, and give the number of ranks in processCount.",
                "Or use the mpirun of the job's PATH without options for hosts and for ssh: Corro passes them.",
            ],
        },
    },
];

fn nccl(found: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let has = |text: &str| found.failure.output.lines().iter().any(|line| line.contains(text));
    let debug = facts.set_variable("NCCL_DEBUG", "INFO");
    let interface = "Name the network interface that connects the nodes: NCCL_SOCKET_IFNAME=eth0 in environmentVariables ('ip addr' \
                     on the machine lists them)."
        .to_owned();
    let (cause, mut advice) = if has("remote process exited or there was a network error") || has("ncclRemoteError") {
        let read = "Read the output of the other ranks: the one that failed first names the cause.".to_owned();
        ("NCCL lost the connection to another rank: most often that rank has failed.", vec![read, interface])
    } else if has("unhandled cuda error") || has("ncclUnhandledCudaError") {
        let gpus = "Check that each rank uses a GPU of its own and that its memory is not full: \
                    torch.cuda.set_device(local_rank), 'nvidia-smi'."
            .to_owned();
        ("NCCL met an error of CUDA.", vec![gpus])
    } else if has("invalid usage") || has("ncclInvalidUsage") {
        let gpus = "Choose the GPU by the rank's number on its node (torch.cuda.set_device(local_rank)), and do not start more ranks \
                    than GPUs."
            .to_owned();
        ("NCCL was used in a way that it does not allow: most often two ranks use one GPU.", vec![gpus])
    } else if has("no socket interface found") {
        ("NCCL found no network interface.", vec![interface])
    } else {
        let one = facts.spec.node_count <= 1;
        let first = match (one, facts.is_in_container()) {
            (_, true) => "Give the container more shared memory: \"shmSize\": \"8g\" in containerSettings.".to_owned(),
            (true, false) => "Check that /dev/shm is not full: 'df -h /dev/shm' on the node's machine.".to_owned(),
            (false, false) => interface,
        };
        ("A call to the system or the network failed in NCCL.", vec![first])
    };
    advice.push(format!("{debug} The lines 'NCCL WARN' then name the cause."));
    advice.truncate(MAX_ADVICE);
    Some(Finding { cause: cause.to_owned(), advice })
}

fn stalled() -> Finding {
    Finding::new(
        "Ranks waited too long for tensors that other ranks did not submit, and Horovod ended the job.",
        [
            "The lines 'Missing ranks' or 'Stalled ranks' name ranks and tensors: let all ranks perform the same operations in every branch.".to_owned(),
            "If a rank just takes long, raise HOROVOD_STALL_SHUTDOWN_TIME_SECONDS in environmentVariables.".to_owned(),
        ],
    )
}

fn slots(_: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let ranks = facts.spec.rank_count();
    let nodes = facts.spec.node_count;
    let nodes = if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") };
    let field = facts.process_count_field().unwrap_or_else(|| "customMpiSettings.processCount".to_owned());
    Some(Finding::new(
        format!("The command line asks mpirun for more ranks than the job has: {ranks} on {nodes}."),
        [
            format!("Give the number of ranks in {field} and leave '-np' out of the command line."),
            "Or let mpirun start more than that: 'mpirun --oversubscribe'.".to_owned(),
        ],
    ))
}
