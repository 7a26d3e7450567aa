//! `corro completion`: prints a completion script for a shell. Called through a link named `az` it completes `az`.

use std::io::{self, Write};

use clap::{Arg, Args, Command, ValueHint};
use clap_complete::Shell;

use crate::error::CliError;
use crate::output::OutputError;

#[derive(Args, Debug)]
pub struct CompletionArgs {
    /// Shell to generate the script for
    #[arg(value_parser = parse_shell, value_name = "bash|zsh|fish")]
    shell: Shell,
}

/// `command` is the command tree, under the name by which the program was called.
pub fn run(args: CompletionArgs, command: Command) -> Result<(), CliError> {
    let script = completion_script(args.shell, command);
    let mut out = io::stdout().lock();
    out.write_all(&script).and_then(|()| out.flush()).map_err(|error| CliError::from(OutputError::Write(error)))
}

fn completion_script(shell: Shell, command: Command) -> Vec<u8> {
    let name = command.get_name().to_owned();
    let mut command = without_file_completion(command);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    script
}

/// Suggests files only for arguments that are paths, not for names of jobs and the like.
fn without_file_completion(command: Command) -> Command {
    let no_files = |arg: Arg| match arg.get_value_hint() {
        ValueHint::Unknown if arg.get_action().takes_values() => arg.value_hint(ValueHint::Other),
        _ => arg,
    };
    command.mut_args(no_files).mut_subcommands(without_file_completion)
}

/// The shells that are tested.
fn parse_shell(text: &str) -> Result<Shell, String> {
    match text {
        "bash" => Ok(Shell::Bash),
        "zsh" => Ok(Shell::Zsh),
        "fish" => Ok(Shell::Fish),
        _ => Err("use 'bash', 'zsh' or 'fish'".to_owned()),
    }
}
