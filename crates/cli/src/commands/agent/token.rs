//! The join token comes from a file, standard input, the environment or the command line; from the last two it is gone before
//! anything else is done.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Read, Seek, Write};
use std::os::fd::{FromRawFd, IntoRawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use corro_model::Secret;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::failure::Failure;

const TOKEN_VARIABLE: &str = "CORRO_JOIN_TOKEN";
/// The one word by which the token is handed over.
pub const TOKEN_FD: &str = "--token-fd=";

/// From a token on the command line or in the environment on to one that nobody else can see: this process starts itself again
/// with the token in an open file without a name.
pub fn hide_token(on_line: Option<String>) -> Result<(), Failure> {
    let in_environment = std::env::var(TOKEN_VARIABLE).ok();
    let Some(token) = on_line.clone().or_else(|| in_environment.clone()) else { return Ok(()) };
    let failed = |error: io::Error| Failure::new(format!("cannot take the token out of sight: {error}"));
    // Not closed when the program changes: that is what it is for.
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
    words.push(format!("{TOKEN_FD}{}", file.into_raw_fd()).into());
    let error = Command::new("/proc/self/exe")
        .arg0(std::env::args_os().next().unwrap_or_else(|| "corro".into()))
        .args(words)
        .env_remove(TOKEN_VARIABLE)
        .exec();
    Err(failed(error))
}

/// What [`hide_token`] handed over. Closed, so that no agent inherits it.
pub fn take_hidden(fd: i32) -> Result<Secret, Failure> {
    let mut text = String::new();
    // SAFETY: only this program says the option, to itself, with a descriptor that it opened for this and nobody else uses.
    let mut file = unsafe { std::fs::File::from_raw_fd(fd) };
    let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
    read.map_err(|error| Failure::new(format!("cannot read the token that was handed over: {error}")))?;
    Ok(Secret::new(text))
}

pub fn read_token(file: Option<&Path>) -> Result<Secret, Failure> {
    let text = match file {
        Some(file) if file != Path::new("-") => {
            // From its beginning, also where it is an open file that was just written.
            std::fs::read_to_string(file)
                .map_err(|error| Failure::new(format!("cannot read the join token from {}: {error}", file.display())))?
        }
        None if io::stdin().is_terminal() => {
            return Err(Failure::usage("a join token is needed: this machine has not joined yet")
                .hint("make one on the server with 'corro host token', then give it with --token-file FILE, on standard input, or in CORRO_JOIN_TOKEN"));
        }
        _ => {
            let mut text = String::new();
            let read = io::stdin().take(64 * 1024).read_to_string(&mut text);
            read.map_err(|error| Failure::new(format!("cannot read the join token from standard input: {error}")))?;
            text
        }
    };
    match text.trim() {
        "" => Err(Failure::usage("the join token is empty: this machine has not joined yet")
            .hint("make one on the server with 'corro host token'")),
        token => Ok(Secret::new(token)),
    }
}
