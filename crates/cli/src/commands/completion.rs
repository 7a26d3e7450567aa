//! `corro completion`: a script that teaches a shell to complete our commands and options. Run through a link named `az`
//! it completes `az`.

use std::io::{self, Write};

use clap::{Arg, Args, Command, ValueHint};
use clap_complete::Shell;

use crate::error::CliError;
use crate::output::OutputError;

#[derive(Args, Debug)]
pub struct CompletionArgs {
    /// Which shell to write for
    #[arg(value_parser = shell, value_name = "bash|zsh|fish")]
    shell: Shell,
}

/// `command` is the whole command line, under the name the program was called by.
pub fn run(args: CompletionArgs, command: Command) -> Result<(), CliError> {
    let script = script(args.shell, command);
    let mut out = io::stdout().lock();
    out.write_all(&script).and_then(|()| out.flush()).map_err(|error| CliError::from(OutputError::Write(error)))
}

fn script(shell: Shell, command: Command) -> Vec<u8> {
    let name = command.get_name().to_owned();
    let mut command = offering_no_files(command);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    script
}

/// Files are offered for arguments that are paths, and for nothing else: the name of a job is none.
fn offering_no_files(command: Command) -> Command {
    let quiet = |arg: Arg| match arg.get_value_hint() {
        ValueHint::Unknown if arg.get_action().takes_values() => arg.value_hint(ValueHint::Other),
        _ => arg,
    };
    command.mut_args(quiet).mut_subcommands(offering_no_files)
}

/// Those that somebody has tried.
fn shell(text: &str) -> Result<Shell, String> {
    match text {
        "bash" => Ok(Shell::Bash),
        "zsh" => Ok(Shell::Zsh),
        "fish" => Ok(Shell::Fish),
        _ => Err("use 'bash', 'zsh' or 'fish'".to_owned()),
    }
}
