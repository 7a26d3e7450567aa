//! Sources of the join token: a file, standard input, the environment or the command line. The last two are visible to others, so the program
//! re-executes itself without them first.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Read, Seek, Write};
use std::os::fd::{FromRawFd, IntoRawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use corro_model::Secret;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::error::CliError;

const TOKEN_VARIABLE: &str = "CORRO_JOIN_TOKEN";
/// Option that passes the file descriptor of the token to the re-executed program.
pub const TOKEN_FD_OPTION: &str = "--token-fd=";

/// If the token is on the command line or in the environment, re-executes this program with the token in a memfd. Returns only if there is none,
/// or on an error.
pub fn hide_token(argument: Option<String>) -> Result<(), CliError> {
    let in_environment = std::env::var(TOKEN_VARIABLE).ok();
    let Some(token) = argument.clone().or_else(|| in_environment.clone()) else { return Ok(()) };
    let failed = |error: io::Error| CliError::new(format!("cannot hide the token: {error}"));
    // Without CLOEXEC: the re-executed program inherits it.
    let file = memfd_create("join-token", MemfdFlags::empty()).map_err(|errno| failed(errno.into()))?;
    let mut file = std::fs::File::from(file);
    file.write_all(token.trim().as_bytes()).map_err(failed)?;
    let mut words: Vec<OsString> = Vec::new();
    let mut skip = false;
    for word in std::env::args_os().skip(1) {
        let text = word.to_string_lossy();
        if std::mem::take(&mut skip) || text.starts_with("--token=") {
            continue;
        }
        if text == "--token" {
            skip = true;
            continue;
        }
        words.push(word);
    }
    words.push(format!("{TOKEN_FD_OPTION}{}", file.into_raw_fd()).into());
    let error = Command::new("/proc/self/exe")
        .arg0(std::env::args_os().next().unwrap_or_else(|| "corro".into()))
        .args(words)
        .env_remove(TOKEN_VARIABLE)
        .exec();
    Err(failed(error))
}

/// Reads the token that [`hide_token`] passed, and closes the descriptor so that no agent inherits it.
pub fn read_hidden_token(fd: i32) -> Result<Secret, CliError> {
    let mut text = String::new();
    // SAFETY: the hidden option is set by `hide_token` only, with a memfd that it opened for this purpose, so the descriptor is open and owned by
    // nothing else in this process.
    let mut file = unsafe { std::fs::File::from_raw_fd(fd) };
    let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
    read.map_err(|error| CliError::new(format!("cannot read the hidden token: {error}")))?;
    Ok(Secret::new(text))
}

/// Reads the token from a file, or without one (or with `-`) from standard input.
pub fn read_token(file: Option<&Path>) -> Result<Secret, CliError> {
    let text = match file {
        Some(file) if file != Path::new("-") => {
            // By path, so that an open file such as /dev/fd/3 is read from its beginning.
            std::fs::read_to_string(file).map_err(|error| {
                CliError::new(format!("cannot read the join token from {}: {error}", file.display()))
            })?
        }
        None if io::stdin().is_terminal() => {
            return Err(CliError::usage("a join token is needed: this machine has not joined yet")
                .hint("make one on the server with 'corro host token', then give it with --token-file FILE, on standard input, or in CORRO_JOIN_TOKEN"));
        }
        _ => {
            let mut text = String::new();
            let read = io::stdin().take(64 * 1024).read_to_string(&mut text);
            read.map_err(|error| CliError::new(format!("cannot read the join token from standard input: {error}")))?;
            text
        }
    };
    match text.trim() {
        "" => Err(CliError::usage("the join token is empty: this machine has not joined yet")
            .hint("make one on the server with 'corro host token'")),
        token => Ok(Secret::new(token)),
    }
}
