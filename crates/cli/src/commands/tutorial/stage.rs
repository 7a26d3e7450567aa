//! The tutorial's stage: a server of its own in a temporary directory, and a place to type commands. Every command is really run as a
//! process of its own; nothing here talks to the server by another way.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::error::CliError;
use crate::stdio::filtered_stdout;

/// A server of its own and a place to type commands. Dropped, it leaves nothing behind.
pub struct Stage {
    server: Mutex<Child>,
    typed: Mutex<Typed>,
    /// Gone after `keep`.
    temporary: Mutex<Option<tempfile::TempDir>>,
    dir: PathBuf,
}

/// What is on the command line.
enum Typed {
    Nothing,
    Running(Child),
    /// Nothing more is typed.
    Closed,
}

pub const SERVER_LOG: &str = "server.log";

impl Stage {
    pub fn open() -> Result<Self, CliError> {
        let temporary = tempfile::Builder::new().prefix("corro-tutorial-").tempdir().map_err(|error| {
            CliError::new(format!("cannot make a temporary directory: {error}"))
                .hint("set TMPDIR to a directory with space")
        })?;
        let dir = temporary.path().to_owned();
        say(&format!("Starting a server of its own in {}", dir.display()))?;
        let failed = |error: io::Error| CliError::new(format!("cannot start the tutorial's server: {error}"));
        let log = std::fs::File::create(dir.join(SERVER_LOG)).map_err(failed)?;
        let mut server = corro_in(&dir)
            .args(["up", "--listen", "127.0.0.1:0", "--data"])
            .arg(dir.join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            // A Ctrl-C is for the tutorial, which ends its server in order.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let mut out = BufReader::new(server.stdout.take().expect("it is piped"));
        let (server, temporary) = (Mutex::new(server), Mutex::new(Some(temporary)));
        let stage = Self { server, typed: Mutex::new(Typed::Nothing), temporary, dir };
        let mut first = String::new();
        let read = out.read_line(&mut first);
        // What it says later is of no interest, but it must not find a closed pipe.
        std::thread::spawn(move || io::copy(&mut out, &mut io::sink()));
        if !matches!(read, Ok(n) if n > 0) {
            let log = std::fs::read_to_string(stage.dir.join(SERVER_LOG)).unwrap_or_default();
            return Err(CliError::new(format!("the tutorial's server did not start: {}", log.trim())));
        }
        say(first.trim_end())?;
        Ok(stage)
    }

    /// Shows the command as typed, runs it, lets its output through.
    pub fn corro(&self, line: &str) -> Result<(), CliError> {
        say(&format!("\n$ corro {line}"))?;
        let status = self.run(corro_in(&self.dir).args(words(line)).stdin(Stdio::null()))?;
        check(line, status)
    }

    /// Until its end, which [`Stage::close`] may hasten.
    fn run(&self, command: &mut Command) -> Result<io::Result<ExitStatus>, CliError> {
        let pid = {
            let mut typed = self.typed();
            if let Typed::Closed = *typed {
                return Err(CliError::silent(0));
            }
            let child = match command.spawn() {
                Ok(child) => child,
                Err(error) => return Ok(Err(error)),
            };
            let pid = Pid::from_child(&child);
            *typed = Typed::Running(child);
            pid
        };
        // It keeps its number until nobody can signal it any more, and only then is asked how it ended.
        let ended = || waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        while matches!(ended(), Err(rustix::io::Errno::INTR)) {}
        let mut typed = self.typed();
        match std::mem::replace(&mut *typed, Typed::Nothing) {
            Typed::Running(mut child) => Ok(child.wait()),
            closed => {
                *typed = closed;
                Err(CliError::silent(0))
            }
        }
    }

    fn typed(&self) -> MutexGuard<'_, Typed> {
        self.typed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the command unseen; gives what it printed.
    pub fn ask(&self, line: &str) -> Result<String, CliError> {
        let output = corro_in(&self.dir).args(words(line)).stdin(Stdio::null()).output();
        let output = output.map_err(|error| CliError::from_error(&error))?;
        check(line, Ok(output.status))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    pub fn write(&self, name: &str, text: &str) -> Result<(), CliError> {
        let path = self.dir.join(name);
        std::fs::write(&path, text).map_err(|error| CliError::new(format!("cannot write {}: {error}", path.display())))
    }

    pub fn show_file(&self, name: &str) -> Result<(), CliError> {
        let text = self.read(name)?;
        say(&format!("\n$ cat {name}\n{text}"))
    }

    pub fn read(&self, name: &str) -> Result<String, CliError> {
        let path = self.dir.join(name);
        std::fs::read_to_string(&path)
            .map_err(|error| CliError::new(format!("cannot read {}: {error}", path.display())))
    }

    /// Ends what is typed, then the server, as Ctrl-C does, and waits for both. Once is enough.
    pub fn close(&self) {
        if let Typed::Running(mut child) = std::mem::replace(&mut *self.typed(), Typed::Closed) {
            let _ = kill_process(Pid::from_child(&child), Signal::INT);
            let _ = child.wait();
        }
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(server.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&server), Signal::INT);
            let _ = server.wait();
        }
    }

    /// Leaves the directory where it is.
    pub fn keep(&self) -> PathBuf {
        if let Some(temporary) = self.temporary.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = temporary.keep();
        }
        self.dir.clone()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.close();
    }
}

/// This program, at home in `dir`: neither the user's configuration nor their SSH keys are touched.
fn corro_in(dir: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.current_dir(dir).env("HOME", dir).env("CORRO_CONFIG_DIR", dir.join("config")).env_remove("CORRO_SERVER");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("AZURE_") {
            command.env_remove(name);
        }
    }
    command
}

fn check(line: &str, status: io::Result<ExitStatus>) -> Result<(), CliError> {
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(CliError::new(format!("'corro {line}' ended with {status}"))),
        Err(error) => Err(CliError::new(format!("'corro {line}' cannot be run: {error}"))),
    }
}

/// The words of a line, as a shell takes them: quotes keep together what is between them.
fn words(line: &str) -> Vec<String> {
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

/// One word for [`Stage::corro`] and for a shell, whatever is in the path.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |character: char| character.is_ascii_alphanumeric() || "/._-+,@%".contains(character);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// A reader who went away has seen enough: the tutorial ends quietly, and cleans up.
pub fn say(text: &str) -> Result<(), CliError> {
    let mut out = filtered_stdout();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|_| CliError::silent(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_as_a_shell_does() {
        assert_eq!(words("show --query \"a b\"  -n 'c d'e"), ["show", "--query", "a b", "-n", "c de"]);
        assert_eq!(
            words(&format!("--source {} x", quoted(Path::new("/my data/cifar")))),
            ["--source", "/my data/cifar", "x"]
        );
        assert_eq!(quoted(Path::new("/data/cifar-10.tar.gz")), "/data/cifar-10.tar.gz");
    }
}
