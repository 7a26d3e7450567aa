//! Rules for the memory of a node, its shared memory, and its limit of processes. Pure.

use super::facts::JobFacts;
use super::rule::{Answer, Finding, Found, MAX_ADVICE, Pattern, Rule};

/// What the node reports. It is certain, whatever the output says.
pub const LIMITS: &[Rule] = &[
    Rule {
        key: "out-of-memory",
        pattern: Pattern::Exit(|failure| failure.is_out_of_memory),
        answer: Answer::Computed(out_of_memory),
    },
    Rule {
        key: "out-of-processes",
        pattern: Pattern::Exit(|failure| failure.is_out_of_processes),
        answer: Answer::Fixed {
            cause: "The job reached its limit of processes and threads on a node.",
            advice: &[
                "Start fewer: data loader workers (num_workers), threads (OMP_NUM_THREADS).",
                "Or use a cluster of a VM size with more cores, or ask the server's operator to raise --max-processes.",
            ],
        },
    },
];

pub const RULES: &[Rule] = &[
    Rule {
        key: "too-many-open-files",
        pattern: Pattern::Line(&["unable to open shared memory object"]),
        answer: Answer::Computed(|found, _| {
            found.line.contains("Too many open files").then(|| {
                Finding::new(
                    "PyTorch's data loader holds more files open than the process may.",
                    [
                        "Call torch.multiprocessing.set_sharing_strategy('file_system') at the beginning of the script.".to_owned(),
                        "Or raise the limit in the command line: 'ulimit -n 65536; python3 train.py'.".to_owned(),
                    ],
                )
            })
        }),
    },
    Rule {
        key: "shared-memory-full",
        pattern: Pattern::Line(&[
            "unable to open shared memory object",
            "unable to write to file </torch_",
            "unable to mmap ",
            "is killed by signal: Bus error",
            "Unexpected bus error encountered in worker",
            "No space left on device: '/dev/shm",
            "Error: failed to extend /dev/shm/nccl-",
            "Call to posix_fallocate failed : No space left on device",
            "Bus error",
        ]),
        answer: Answer::Computed(shared_memory),
    },
    Rule {
        key: "out-of-memory",
        pattern: Pattern::Line(&[
            "MemoryError",
            "std::bad_alloc",
            "Cannot allocate memory",
            "DefaultCPUAllocator: can't allocate memory",
            "DefaultCPUAllocator: not enough memory",
            "is killed by signal: Killed",
            "java.lang.OutOfMemoryError",
            "oom-kill",
            "A process in the process pool was terminated abruptly",
        ]),
        answer: Answer::Computed(out_of_memory),
    },
    Rule {
        key: "out-of-memory",
        pattern: Pattern::Line(&["OOM when allocating tensor"]),
        answer: Answer::Computed(|found, facts| {
            found.line.contains("device:CPU").then(|| out_of_memory(found, facts)).flatten()
        }),
    },
    Rule {
        key: "out-of-processes",
        pattern: Pattern::Line(&[
            "RuntimeError: can't start new thread",
            "fork: retry: Resource temporarily unavailable",
            "BlockingIOError: [Errno 11] Resource temporarily unavailable",
            "libgomp: Thread creation failed: Resource temporarily unavailable",
            "OpenBLAS blas_thread_init: pthread_create failed",
        ]),
        answer: Answer::Fixed {
            cause: "The node refused to start another process or thread.",
            advice: &[
                "Start fewer: data loader workers (num_workers), threads (OMP_NUM_THREADS, OPENBLAS_NUM_THREADS).",
                "Or use a cluster of a VM size with more cores, or ask the server's operator to raise --max-processes.",
            ],
        },
    },
    // Bash's message about a child.
    Rule {
        key: "killed-by-signal-9",
        pattern: Pattern::LineWith(|line| line == "Killed" || line.ends_with(" Killed") || line.contains(" Killed  ")),
        answer: Answer::Computed(killed),
    },
    Rule {
        key: "killed-by-signal-9",
        pattern: Pattern::Line(&["Signal 9 (SIGKILL) received by PID", "died with <Signals.SIGKILL: 9>"]),
        answer: Answer::Computed(killed),
    },
];

fn memory_of(facts: &JobFacts<'_>) -> String {
    facts.size().map_or_else(String::new, |size| format!(" ({} GiB with the VM size {})", size.memory_gib, size.name))
}

fn out_of_memory(found: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let memory = memory_of(facts);
    let ranks = facts.ranks_per_node();
    let cause = match found.failure.is_out_of_memory {
        true => format!(
            "The processes of the job needed more memory than they may use on a node{memory}: the kernel ended one."
        ),
        false => format!("A process got no more memory from its node{memory}."),
    };
    Some(Finding { cause, advice: less_memory(ranks, facts) })
}

fn less_memory(ranks: usize, facts: &JobFacts<'_>) -> Vec<String> {
    let mut advice = vec![
        "Use less memory: a smaller batch, fewer data loader workers (num_workers), data that is read in pieces."
            .to_owned(),
        "Or use a cluster of a VM size with more memory: 'corro submit --memory 32G', or vmSize of a new cluster."
            .to_owned(),
    ];
    if let (2.., Some(field)) = (ranks, facts.process_count_field()) {
        advice
            .insert(1, format!("Or start fewer ranks on each node: a node has {ranks} of them (nodeCount, {field})."));
    }
    advice
}

pub fn killed(_: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let mut advice = less_memory(facts.ranks_per_node(), facts);
    advice.insert(0, "Look for 'Out of memory' in 'dmesg' on the node's machine.".to_owned());
    advice.truncate(MAX_ADVICE);
    let cause = "It was killed (SIGKILL), and not by Corro's limits: unless this was done by hand, the machine had no memory left.";
    Some(Finding { cause: cause.to_owned(), advice })
}

pub fn shared_memory(found: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    // A bus error without a sign of shared memory can be a file on a share that became shorter.
    let is_certain = !found.line.is_empty() && !is_bare_bus_error(found.line);
    let cause = match is_certain {
        true => "The shared memory of the node (/dev/shm) is full: data loader workers and NCCL pass data through it.",
        false => {
            "It was ended by a bus error (SIGBUS): most often the shared memory of the node (/dev/shm) is full, or a file \
                  that is mapped into memory became shorter."
        }
    };
    let fewer = "Or start fewer data loader workers (num_workers; 0 uses no shared memory).".to_owned();
    let larger = match facts.spec.container_settings.as_ref().map(|settings| settings.shm_size.as_deref()) {
        Some(Some(size)) => format!("Raise containerSettings.shmSize in the job file: it is {size}."),
        Some(None) => "Give the container more: \"shmSize\": \"8g\" in containerSettings of the job file. The default is 64 MiB.".to_owned(),
        None => "See what fills it with 'df -h /dev/shm' on the node's machine: files that ended processes have left can be deleted."
            .to_owned(),
    };
    Some(Finding::new(cause, [larger, fewer]))
}

fn is_bare_bus_error(line: &str) -> bool {
    line.contains("Bus error") && !line.contains("worker")
}
