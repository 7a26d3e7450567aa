//! Sandbox of the tutorial: a server of its own in a temporary directory, and commands that run as separate processes, as a user would type them.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::error::CliError;
use crate::stdio::filtered_stdout;

/// A server in a temporary directory. Dropping it ends the server and removes the directory.
pub struct Sandbox {
    server: Mutex<Child>,
    command: Mutex<CommandState>,
    /// `None` after [`Sandbox::keep`].
    temporary: Mutex<Option<tempfile::TempDir>>,
    dir: PathBuf,
}

/// The command that runs now.
enum CommandState {
    Idle,
    Running(Child),
    /// No further commands are started.
    Closed,
}

pub const SERVER_LOG: &str = "server.log";

impl Sandbox {
    pub fn open() -> Result<Self, CliError> {
        let temporary = tempfile::Builder::new().prefix("corro-tutorial-").tempdir().map_err(|error| {
            CliError::new(format!("cannot create a temporary directory: {error}"))
                .hint("set TMPDIR to a directory with space")
        })?;
        let dir = temporary.path().to_owned();
        print_line(&format!("Starting a server of its own in {}", dir.display()))?;
        let failed = |error: io::Error| CliError::new(format!("cannot start the tutorial's server: {error}"));
        let log = std::fs::File::create(dir.join(SERVER_LOG)).map_err(failed)?;
        let mut server = corro_command(&dir)
            .args(["up", "--listen", "127.0.0.1:0", "--data"])
            .arg(dir.join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            // Ctrl-C must reach only the tutorial, which ends its server in order.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let mut out = BufReader::new(server.stdout.take().expect("it is piped"));
        let (server, temporary) = (Mutex::new(server), Mutex::new(Some(temporary)));
        let sandbox = Self { server, command: Mutex::new(CommandState::Idle), temporary, dir };
        let mut first = String::new();
        let read = out.read_line(&mut first);
        // Drain the rest of its output, so that it does not write to a closed pipe.
        std::thread::spawn(move || io::copy(&mut out, &mut io::sink()));
        if !matches!(read, Ok(n) if n > 0) {
            let log = std::fs::read_to_string(sandbox.dir.join(SERVER_LOG)).unwrap_or_default();
            return Err(CliError::new(format!("the tutorial's server did not start: {}", log.trim())));
        }
        print_line(first.trim_end())?;
        Ok(sandbox)
    }

    /// Prints the command line, runs it, and lets its output through.
    pub fn corro(&self, line: &str) -> Result<(), CliError> {
        print_line(&format!("\n$ corro {line}"))?;
        let status = self.run(corro_command(&self.dir).args(split_words(line)).stdin(Stdio::null()))?;
        check_status(line, status)
    }

    /// Waits for the end of a command, which [`Sandbox::close`] may cause.
    fn run(&self, command: &mut Command) -> Result<io::Result<ExitStatus>, CliError> {
        let pid = {
            let mut state = self.lock_command();
            if let CommandState::Closed = *state {
                return Err(CliError::silent(0));
            }
            let child = match command.spawn() {
                Ok(child) => child,
                Err(error) => return Ok(Err(error)),
            };
            let pid = Pid::from_child(&child);
            *state = CommandState::Running(child);
            pid
        };
        // WNOWAIT leaves a zombie, so the pid cannot be reused while `close` may still signal it.
        let wait_for_exit = || waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        while matches!(wait_for_exit(), Err(rustix::io::Errno::INTR)) {}
        let mut state = self.lock_command();
        match std::mem::replace(&mut *state, CommandState::Idle) {
            CommandState::Running(mut child) => Ok(child.wait()),
            closed => {
                *state = closed;
                Err(CliError::silent(0))
            }
        }
    }

    fn lock_command(&self) -> MutexGuard<'_, CommandState> {
        self.command.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a command without printing it, and returns its standard output.
    pub fn output_of(&self, line: &str) -> Result<String, CliError> {
        let output = corro_command(&self.dir).args(split_words(line)).stdin(Stdio::null()).output();
        let output = output.map_err(|error| CliError::from_error(&error))?;
        check_status(line, Ok(output.status))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    pub fn write(&self, name: &str, text: &str) -> Result<(), CliError> {
        let path = self.dir.join(name);
        std::fs::write(&path, text).map_err(|error| CliError::new(format!("cannot write {}: {error}", path.display())))
    }

    pub fn show_file(&self, name: &str) -> Result<(), CliError> {
        let text = self.read(name)?;
        print_line(&format!("\n$ cat {name}\n{text}"))
    }

    pub fn read(&self, name: &str) -> Result<String, CliError> {
        let path = self.dir.join(name);
        std::fs::read_to_string(&path)
            .map_err(|error| CliError::new(format!("cannot read {}: {error}", path.display())))
    }

    /// Ends the running command and then the server with SIGINT, and waits for both. Idempotent.
    pub fn close(&self) {
        if let CommandState::Running(mut child) = std::mem::replace(&mut *self.lock_command(), CommandState::Closed) {
            let _ = kill_process(Pid::from_child(&child), Signal::INT);
            let _ = child.wait();
        }
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(server.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&server), Signal::INT);
            let _ = server.wait();
        }
    }

    /// Keeps the directory and returns its path.
    pub fn keep(&self) -> PathBuf {
        if let Some(temporary) = self.temporary.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = temporary.keep();
        }
        self.dir.clone()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.close();
    }
}

/// This program with `dir` as its home directory: the user's configuration and SSH keys are not touched.
fn corro_command(dir: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.current_dir(dir).env("HOME", dir).env("CORRO_CONFIG_DIR", dir.join("config")).env_remove("CORRO_SERVER");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("AZURE_") {
            command.env_remove(name);
        }
    }
    command
}

fn check_status(line: &str, status: io::Result<ExitStatus>) -> Result<(), CliError> {
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(CliError::new(format!("'corro {line}' ended with {status}"))),
        Err(error) => Err(CliError::new(format!("'corro {line}' cannot be run: {error}"))),
    }
}

/// Splits a line into words as a shell does, with quotes.
fn split_words(line: &str) -> Vec<String> {
    let (mut words, mut quote) = (vec![String::new()], None);
    for character in line.chars() {
        match (character, quote) {
            (end, Some(begun)) if end == begun => quote = None,
            ('"' | '\'', None) => quote = Some(character),
            (' ', None) => words.push(String::new()),
            _ => words.last_mut().expect("there is one").push(character),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Quotes a path for [`Sandbox::corro`] and for a shell.
pub fn quote_path(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |character: char| character.is_ascii_alphanumeric() || "/._-+,@%".contains(character);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// Prints a line. A closed standard output ends the tutorial quietly.
pub fn print_line(text: &str) -> Result<(), CliError> {
    let mut out = filtered_stdout();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|_| CliError::silent(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_as_a_shell_does() {
        assert_eq!(split_words("show --query \"a b\"  -n 'c d'e"), ["show", "--query", "a b", "-n", "c de"]);
        assert_eq!(
            split_words(&format!("--source {} x", quote_path(Path::new("/my data/cifar")))),
            ["--source", "/my data/cifar", "x"]
        );
        assert_eq!(quote_path(Path::new("/data/cifar-10.tar.gz")), "/data/cifar-10.tar.gz");
    }
}
