//! `corro __complete`: what a shell offers for the word at the cursor. Commands, options and paths come from the definition of the command line; names of
//! groups, clusters, jobs and others from the server, within a short deadline. Never prompts, and prints nothing to standard error.
//!
//! Reading order: this file, [`words`] (the command line as shells pass it), [`value_kind`] (which argument takes which names), [`names`] (requests).

mod names;
mod value_kind;
mod words;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Arg, Command, ValueHint};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter, complete};

use crate::args::completion_command;
use names::NameSource;
use value_kind::{NameKind, kind_of};
use words::{CompletionRequest, Shell};

/// Name of the command. Only completion scripts call it.
pub const SUBCOMMAND: &str = "__complete";

/// Completes the command line in `arguments`: the shell, the index of the word at the cursor, and the words.
pub fn run(arguments: &[OsString]) -> ExitCode {
    // A message would appear in the line that is being edited.
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    let Some(request) = CompletionRequest::parse(arguments) else { return ExitCode::from(2) };
    let Some(source) = NameSource::new(&request.words) else { return ExitCode::FAILURE };
    let mut command = with_names(completion_command(), &mut Vec::new(), &Arc::new(source));
    let dir = std::env::current_dir().ok();
    let found = complete(&mut command, request.words.clone(), request.index, dir.as_deref()).unwrap_or_default();
    let found = without_options(&found, request.current_word());
    let lines: Vec<String> = found.into_iter().filter_map(|candidate| line(&request, candidate)).collect();
    let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Adds the names of the server to the arguments that take them, and paths only to those that take paths.
fn with_names(command: Command, path: &mut Vec<String>, source: &Arc<NameSource>) -> Command {
    let own_path = path.clone();
    let command = command.mut_args(|arg: Arg| match kind_of(&own_path, arg.get_id().as_str()) {
        Some(kind) => {
            let completer = NameCompleter {
                kind,
                path: own_path.clone(),
                source: source.clone(),
                takes_paths: arg.get_value_hint() != ValueHint::Unknown,
            };
            arg.add(ArgValueCompleter::new(completer))
        }
        None => arg,
    });
    command.mut_subcommands(|below| {
        path.push(below.get_name().to_owned());
        let below = with_names(below, path, source);
        path.pop();
        below
    })
}

/// Completes a name of one kind.
struct NameCompleter {
    kind: NameKind,
    /// The command to which the argument belongs.
    path: Vec<String>,
    source: Arc<NameSource>,
    takes_paths: bool,
}

impl ValueCompleter for NameCompleter {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        let typed = current.to_string_lossy();
        let names = self.source.names(self.kind, &self.path, &typed);
        let names = names.into_iter().filter(|name| name.value.starts_with(&*typed));
        let mut found: Vec<CompletionCandidate> = names
            .map(|name| CompletionCandidate::new(name.value).help((!name.help.is_empty()).then(|| name.help.into())))
            .collect();
        if self.takes_paths {
            found.extend(PathCompleter::any().complete(current));
        }
        found
    }
}

/// Options are offered only if the word begins with a dash, or if there is nothing else.
fn without_options<'a>(found: &'a [CompletionCandidate], typed: &str) -> Vec<&'a CompletionCandidate> {
    let is_option = |candidate: &&CompletionCandidate| candidate.get_value().as_encoded_bytes().starts_with(b"-");
    let others: Vec<&CompletionCandidate> = found.iter().filter(|candidate| !is_option(candidate)).collect();
    if typed.starts_with('-') || others.is_empty() { found.iter().collect() } else { others }
}

/// A candidate as the shell's script reads it: the value, and for shells that show it a tab and a description.
fn line(request: &CompletionRequest, candidate: &CompletionCandidate) -> Option<String> {
    let value = candidate.get_value().to_str()?.strip_prefix(request.prefix.as_str())?;
    if value.contains(['\n', '\t']) {
        return None;
    }
    let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
    let help = help.lines().next().unwrap_or_default().replace('\t', " ");
    Some(match request.shell {
        Shell::Bash => words::escape_for_bash(value),
        Shell::Zsh | Shell::Fish if help.is_empty() => value.to_owned(),
        Shell::Zsh | Shell::Fish => format!("{value}\t{help}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_before_options() {
        let candidates = ["train-1", "--follow", "-f"].map(CompletionCandidate::new);
        let values = |typed: &str, candidates: &[CompletionCandidate]| {
            without_options(candidates, typed).into_iter().map(|found| found.get_value().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(values("", &candidates), ["train-1"]);
        assert_eq!(values("-", &candidates), ["train-1", "--follow", "-f"]);
        assert_eq!(values("", &candidates[1..]), ["--follow", "-f"]);
    }

    #[test]
    fn every_kind_of_name_has_an_argument() {
        fn kinds(command: &Command, path: &mut Vec<String>, found: &mut Vec<NameKind>) {
            found.extend(command.get_arguments().filter_map(|arg| kind_of(path, arg.get_id().as_str())));
            for below in command.get_subcommands() {
                path.push(below.get_name().to_owned());
                kinds(below, path, found);
                path.pop();
            }
        }
        let mut found = Vec::new();
        kinds(&completion_command(), &mut Vec::new(), &mut found);
        for kind in NameKind::ALL {
            assert!(found.contains(&kind), "{kind:?}");
        }
    }
}
