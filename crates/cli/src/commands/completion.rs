//! `corro completion`: prints a completion script for a shell. The script asks the program for each completion (see [`crate::completion`]), so it never has
//! to be made again. Called through a link named `az` it completes `az`.

use std::io::{self, Write};

use clap::{Args, ValueEnum};

use crate::error::CliError;
use crate::output::OutputError;
use crate::program_name::program_name;

#[derive(Args, Debug)]
pub struct CompletionArgs {
    /// Shell to generate the script for
    #[arg(value_parser = parse_shell, value_name = "bash|zsh|fish")]
    shell: Shell,
}

/// A shell that is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub fn run(args: &CompletionArgs) -> Result<(), CliError> {
    let script = match args.shell {
        Shell::Bash => include_str!("completion/bash.sh"),
        Shell::Zsh => include_str!("completion/zsh.sh"),
        Shell::Fish => include_str!("completion/fish.fish"),
    };
    let script = script.replace("NAME", program_name());
    let mut out = io::stdout().lock();
    let written = out.write_all(script.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| CliError::from(OutputError::Write(error)))
}

fn parse_shell(text: &str) -> Result<Shell, String> {
    Shell::from_str(text, false).map_err(|_| "use 'bash', 'zsh' or 'fish'".to_owned())
}
