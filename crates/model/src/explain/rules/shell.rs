//! Rules for command lines: line endings, interpreters, programs that are missing or cannot be run, arguments. Pure.

use super::facts::JobFacts;
use super::rule::{Answer, Finding, Found, Pattern, Rule};
use super::text::{missing_program, quotable};
use super::variables::misspelled_variable;

pub const RULES: &[Rule] = &[
    Rule {
        key: "windows-line-endings",
        pattern: Pattern::LineWith(has_carriage_return),
        answer: Answer::Fixed {
            cause: "The script has the line endings of Windows, which Linux takes for a part of each line.",
            advice: &[
                "Convert the file: 'sed -i \"s/\\r$//\" SCRIPT', or 'dos2unix SCRIPT'.",
                "In a git repository, 'SCRIPT text eol=lf' in .gitattributes keeps them away.",
            ],
        },
    },
    Rule {
        key: "interpreter-missing",
        pattern: Pattern::Line(&[
            ": bad interpreter: No such file or directory",
            ": cannot execute: required file not found",
        ]),
        answer: Answer::Computed(|found, _| {
            let interpreter = found.line.strip_suffix(": bad interpreter: No such file or directory");
            let interpreter = interpreter.and_then(|before| before.rsplit(": ").next()).map(quotable);
            let named = interpreter.map_or_else(String::new, |interpreter| format!(" {interpreter}"));
            Some(Finding::new(
                format!("The first line of the script names an interpreter{named} that the node does not have."),
                [
                    "Write '#!/usr/bin/env bash' or '#!/usr/bin/env python3' there, or name the interpreter in the command line: \
                     'bash run.sh'."
                        .to_owned(),
                    "A compiled program says this if its loader is missing: build it for the nodes' system, or use an image \
                     (containerSettings)."
                        .to_owned(),
                ],
            ))
        }),
    },
    Rule {
        key: "wrong-architecture",
        pattern: Pattern::Line(&["cannot execute binary file: Exec format error", "Exec format error"]),
        answer: Answer::Fixed {
            cause: "The program was built for another processor, or is a script without '#!' in its first line.",
            advice: &[
                "Build it for the nodes' processors ('uname -m' shows theirs, 'file PROGRAM' the program's).",
                "If it is a script, name its interpreter in the command line: 'bash run.sh'.",
            ],
        },
    },
    Rule {
        key: "arguments-wrong",
        pattern: Pattern::Line(&[
            ": error: unrecognized arguments: ",
            ": error: the following arguments are required: ",
            ": error: argument ",
            ": error: ambiguous option: ",
            ": error: one of the arguments ",
            "Error: No such option",
            "Error: Missing option ",
            "Error: Missing argument ",
            "Unknown command line flag '",
        ]),
        answer: Answer::Computed(wrong_arguments),
    },
    Rule {
        key: "command-not-found",
        pattern: Pattern::LineWith(|line| missing_program(line).is_some()),
        answer: Answer::Computed(|found, facts| {
            (found.failure.exit.code == Some(127)).then(|| command_not_found(missing_program(found.line), facts))
        }),
    },
    Rule {
        key: "command-not-found",
        pattern: Pattern::Exit(|failure| failure.exit.code == Some(127)),
        answer: Answer::Computed(|_, facts| Some(command_not_found(None, facts))),
    },
    Rule {
        key: "command-not-executable",
        pattern: Pattern::Exit(|failure| failure.exit.code == Some(126)),
        answer: Answer::Computed(not_executable),
    },
    Rule {
        key: "shell-syntax",
        pattern: Pattern::Line(&[
            "syntax error near unexpected token",
            "syntax error: unexpected end of file",
            "unexpected EOF while looking for matching",
            "Syntax error: Unterminated quoted string",
            ": Syntax error: ",
        ]),
        answer: Answer::Computed(|_, facts| {
            Some(Finding::new(
                "The shell cannot read the command line or the script: a quote or a bracket has no end, or is not quoted.",
                [
                    format!("Correct {}: in JSON, write \\\" for a double quote.", facts.command_field()),
                    "Or put long commands into a script that is sent with the job, and run 'bash run.sh'.".to_owned(),
                ],
            ))
        }),
    },
];

/// Whether a shell or `env` shows a carriage return: `$'\r': command not found`, `/bin/bash^M: bad interpreter`.
fn has_carriage_return(line: &str) -> bool {
    line.contains("^M: bad interpreter") || line.contains("\\r'") || line.contains("\\r’")
}

fn wrong_arguments(found: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let line = found.line;
    let field = facts.command_field();
    let message =
        quotable(line.split_once("error: ").or_else(|| line.split_once("Error: ")).map_or(line, |(_, rest)| rest));
    if line.contains("unrecognized arguments: --local-rank") || line.contains("unrecognized arguments: --local_rank") {
        return Some(Finding::new(
            "The launcher of PyTorch passes --local-rank, which the script does not know.",
            [
                "Start it with 'torchrun' instead of 'python -m torch.distributed.launch', and read int(os.environ['LOCAL_RANK']) \
                 in the script."
                    .to_owned(),
                "Or add the argument: parser.add_argument('--local-rank', '--local_rank', type=int).".to_owned(),
            ],
        ));
    }
    let name = message.trim_start_matches("unrecognized arguments: ").to_owned();
    let cause = match line.contains("unrecognized arguments") {
        true => format!("The script does not know these arguments: {name}."),
        false => format!("The script refuses its arguments: {message}."),
    };
    let advice = match facts.is_preparation || facts.script_field().is_none() {
        true => format!("Correct the arguments in {field}; with 'corro submit', those after the script."),
        false => format!("Correct {field}; with 'corro submit', the arguments after the script."),
    };
    Some(Finding::new(cause, [advice, "'python3 SCRIPT --help' shows what it accepts.".to_owned()]))
}

fn command_not_found(program: Option<&str>, facts: &JobFacts<'_>) -> Finding {
    let named = program.map_or_else(
        || "The program of the command line".to_owned(),
        |program| format!("The program {}", quotable(program)),
    );
    if let Some((wrong, known)) = misspelled_variable(facts) {
        let instead = known.map_or_else(
            || "Correct it, or set it in environmentVariables.".to_owned(),
            |known| format!("Write ${known} instead."),
        );
        return Finding::new(
            format!(
                "{named} was not found on the node: there is no variable ${wrong} in the job, so that nothing stands in its place."
            ),
            [instead],
        );
    }
    let field = facts.command_field();
    match program.is_some_and(|program| program.contains('/')) {
        true => Finding::new(
            format!("{named} was not found on the node."),
            [
                format!(
                    "Correct the path in {field}: it begins with a variable, such as $AZ_BATCHAI_JOB_MOUNT_ROOT/SHARE/run.sh; a \
                         relative path begins at workingDirectory."
                ),
                "If the file exists, its first line ('#!') names an interpreter that the node does not have."
                    .to_owned(),
            ],
        ),
        false => Finding::new(
            format!("{named} was not found on the node."),
            [
                format!(
                    "Check its name in {field}. A program of a share needs its path; a file of the working directory needs './' \
                         before it."
                ),
                match facts.is_in_container() {
                    true => "Install it in jobPreparation, or use an image that has it.".to_owned(),
                    false => "Or install it on every node (a Python program: 'corro submit --pip PACKAGE', or pip in \
                              jobPreparation), or use a container image that has it."
                        .to_owned(),
                },
            ],
        ),
    }
}

fn not_executable(found: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let output = &found.failure.output;
    let mut lines = output.error_lines().map(|index| output.lines()[index]);
    let named = lines.find_map(|line| {
        let before = line.strip_suffix(": Permission denied").or_else(|| line.strip_suffix(": Is a directory"))?;
        Some((quotable(before.rsplit(": ").next()?), line.ends_with("directory")))
    });
    let field = facts.command_field();
    Some(match named {
        Some((path, true)) => Finding::new(
            format!("{path} is a directory, and the command line runs it."),
            [format!("Name the program in {field}, or begin with 'cd'.")],
        ),
        named => {
            let path = named.map_or_else(|| "The program".to_owned(), |(path, _)| path);
            Finding::new(
                format!("{path} was found but cannot be run: it is not executable."),
                [
                    format!("Name its interpreter in {field}: 'bash run.sh', 'python3 train.py'."),
                    "Or make it executable before it is sent: 'chmod +x FILE'; on a share, fileMode in mountVolumes must have the \
                     execute bits."
                        .to_owned(),
                ],
            )
        }
    })
}
