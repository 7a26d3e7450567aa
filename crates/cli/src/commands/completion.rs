//! `corro completion`: a script that teaches a shell to complete our commands and options. Run through a link named `az`
//! it completes `az`.

use std::io::{self, Write};

use clap::{Args, Command};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::output::OutputError;

#[derive(Args, Debug)]
pub struct CompletionArgs {
    /// Which shell to write for
    #[arg(value_parser = shell, value_name = "bash|zsh|fish")]
    shell: Shell,
}

/// `command` is the whole command line, under the name the program was called by.
pub fn run(args: CompletionArgs, command: Command) -> Result<(), Failure> {
    let script = script(args.shell, command);
    let mut out = io::stdout().lock();
    out.write_all(&script).and_then(|()| out.flush()).map_err(|error| Failure::from(OutputError::Write(error)))
}

fn script(shell: Shell, mut command: Command) -> Vec<u8> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    script
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
