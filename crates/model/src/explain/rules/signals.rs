//! Rules for signals: the last ones to be tried, as they know least. Pure.

use super::facts::JobFacts;
use super::memory::{killed, shared_memory};
use super::rule::{Answer, Failure, Finding, Found, Pattern, Rule};

pub const RULES: &[Rule] = &[
    Rule {
        key: "crashed",
        pattern: Pattern::Line(&[
            "Segmentation fault",
            "is killed by signal: Segmentation fault",
            "Signal 11 (SIGSEGV) received by PID",
            "died with <Signals.SIGSEGV: 11>",
            "*** Process received signal ***",
        ]),
        answer: Answer::Computed(crashed),
    },
    Rule { key: "crashed", pattern: Pattern::Exit(|failure| is(failure, 11)), answer: Answer::Computed(crashed) },
    Rule {
        key: "illegal-instruction",
        pattern: Pattern::Line(&[
            "Illegal instruction",
            "library was compiled to use AVX instructions",
            "Signal 4 (SIGILL) received by PID",
        ]),
        answer: Answer::Computed(illegal_instruction),
    },
    Rule {
        key: "illegal-instruction",
        pattern: Pattern::Exit(|failure| is(failure, 4)),
        answer: Answer::Computed(illegal_instruction),
    },
    Rule {
        key: "shared-memory-full",
        pattern: Pattern::Exit(|failure| is(failure, 7)),
        answer: Answer::Computed(shared_memory),
    },
    Rule {
        key: "aborted",
        pattern: Pattern::Line(&[
            "terminate called after throwing an instance of",
            "double free or corruption",
            "free(): invalid pointer",
            "malloc(): ",
            "corrupted size vs. prev_size",
        ]),
        answer: Answer::Computed(aborted),
    },
    Rule { key: "aborted", pattern: Pattern::Exit(|failure| is(failure, 6)), answer: Answer::Computed(aborted) },
    Rule {
        key: "crashed",
        pattern: Pattern::Exit(|failure| is(failure, 8)),
        answer: Answer::Fixed {
            cause: "It ended by a floating-point exception (SIGFPE): most often a division of whole numbers by zero in compiled code.",
            advice: &[
                "Set PYTHONFAULTHANDLER=1 in environmentVariables: the output then ends with the line of the script that was running.",
            ],
        },
    },
    Rule {
        key: "killed-by-signal-9",
        pattern: Pattern::Exit(|failure| is(failure, 9)),
        answer: Answer::Computed(killed),
    },
    Rule {
        key: "stopped-by-signal",
        pattern: Pattern::Exit(|failure| is(failure, 15) || is(failure, 1) || is(failure, 2)),
        answer: Answer::Fixed {
            cause: "Another program asked the process to end: Corro did not, as it would say so.",
            advice: &[
                "Look for 'kill', 'timeout' or 'pkill' in the command line and the script, and for a launcher (torchrun, mpirun) \
                 that stopped its ranks because another one had failed: its lines are above.",
                "If the machine was shut down or reboots, see 'corro batchai cluster show' and agent.log of the node.",
            ],
        },
    },
    Rule {
        key: "broken-pipe",
        pattern: Pattern::Exit(|failure| is(failure, 13)),
        answer: Answer::Fixed {
            cause: "The program wrote to a pipe whose reader had ended (SIGPIPE).",
            advice: &[
                "Check the command after '|' in the command line: 'head' and 'grep -q' end before their input does.",
            ],
        },
    },
    Rule {
        key: "ulimit-exceeded",
        pattern: Pattern::Exit(|failure| is(failure, 24)),
        answer: Answer::Fixed {
            cause: "The process used more processor time than a limit of the machine or of 'ulimit -t' allows (SIGXCPU).",
            advice: &[
                "Remove 'ulimit -t' from the command line, or ask the operator to raise the limit of the agent's user ('ulimit -t').",
            ],
        },
    },
    Rule {
        key: "ulimit-exceeded",
        pattern: Pattern::Exit(|failure| is(failure, 25)),
        answer: Answer::Fixed {
            cause: "The process wrote a larger file than a limit of the machine or of 'ulimit -f' allows (SIGXFSZ).",
            advice: &[
                "Remove 'ulimit -f' from the command line, or ask the operator to raise the limit of the agent's user ('ulimit -f').",
            ],
        },
    },
];

fn is(failure: &Failure<'_>, signal: i32) -> bool {
    failure.exit.deciding_signal() == Some(signal)
}

fn crashed(found: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let is_worker = found.line.contains("DataLoader worker");
    let cause = match is_worker {
        true => "A data loader worker crashed (SIGSEGV).",
        false => "It crashed (SIGSEGV): a mistake in compiled code of the program or of a library that it uses.",
    };
    let first = match is_worker {
        true => "Set num_workers=0 to see the error in the process itself.".to_owned(),
        false => format!(
            "{} The output then ends with the line of the script that was running.",
            facts.set_variable("PYTHONFAULTHANDLER", "1")
        ),
    };
    Some(Finding::new(
        cause,
        [
            first,
            "Frequent causes are packages that do not fit together: install the framework and its extensions in one command, or \
             use a container image that has them (containerSettings)."
                .to_owned(),
        ],
    ))
}

fn illegal_instruction(_: &Found<'_>, _: &JobFacts<'_>) -> Option<Finding> {
    Some(Finding::new(
        "The program uses instructions that the node's processor does not have (SIGILL), often AVX.",
        [
            "Run 'lscpu' on the node's machine: wheels of TensorFlow need 'avx' among the flags.".to_owned(),
            "Install a build for older processors, build it on the node, or use a cluster on other machines."
                .to_owned(),
        ],
    ))
}

fn aborted(found: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let is_heap =
        ["double free", "invalid pointer", "malloc(): ", "corrupted size"].iter().any(|text| found.line.contains(text));
    let cause = match is_heap {
        true => "Compiled code destroyed the process's own memory (SIGABRT).",
        false => "It gave up by itself (SIGABRT): its last lines say why.",
    };
    Some(Finding::new(
        cause,
        [
            "Read the lines after 'what():' or 'terminate called': they are the error.".to_owned(),
            format!(
                "{} The output then ends with the line of the script that was running.",
                facts.set_variable("PYTHONFAULTHANDLER", "1")
            ),
        ],
    ))
}
