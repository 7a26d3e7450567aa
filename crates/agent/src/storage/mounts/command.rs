//! Runs a user's mount command, with the mount point appended. Processes that it leaves running, such as a FUSE daemon,
//! carry the node's tag and end with the mount or with the node.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use corro_launch::environment::inherited;
use corro_launch::kill_tagged::TAG_VARIABLE;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::process::{Pid, Signal, kill_process_group};

use super::{MountError, mountinfo};
use crate::shell;

/// Time limit of a mount command. A server that does not answer would block it for longer than a job should wait.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// Limit of the captured output; further writes of the command fail.
const MAX_OUTPUT_BYTES: u64 = 64 << 10;
/// Limit of the output shown in an error: its last bytes.
const MAX_ERROR_BYTES: usize = 2000;

/// Runs the command and checks that something is mounted at `at`. Stores its output in `printed`.
pub fn run(command: &str, at: &Path, tag: &str, printed: &mut String) -> Result<(), MountError> {
    let (ended, output) = execute(command, at, tag, COMMAND_TIMEOUT)?;
    *printed = output;
    let output = tail(printed, MAX_ERROR_BYTES).to_owned();
    match ended {
        None => {
            Err(MountError::Command { outcome: format!("did not end within {} s", COMMAND_TIMEOUT.as_secs()), output })
        }
        Some(status) if !status.success() => {
            Err(MountError::Command { outcome: format!("ended with {status}"), output })
        }
        Some(_) if !mountinfo::is_mounted(at).map_err(MountError::MountPoint)? => {
            Err(MountError::NothingMounted { output })
        }
        Some(_) => Ok(()),
    }
}

/// Exit status, or `None` if it was killed at the time limit, and the output.
fn execute(command: &str, at: &Path, tag: &str, limit: Duration) -> Result<(Option<ExitStatus>, String), MountError> {
    let variables = inherited(std::env::vars_os());
    let line = format!("{} {}", command.trim_end(), quoted(at));
    let argv = shell::command(&line, variables.get("PATH").map(String::as_str));
    // Output goes to a file, not a pipe: processes that stay running would keep a pipe open.
    let failed = |error: std::io::Error| MountError::Command {
        outcome: format!("cannot be run: {error}"),
        output: String::new(),
    };
    let mut output_file = bounded_file().map_err(failed)?;
    let own = |file: &File| file.try_clone().map(Stdio::from).map_err(failed);
    let child = Command::new(&argv[0])
        .args(&argv[1..])
        .env_clear()
        .envs(variables)
        .env(TAG_VARIABLE, tag)
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(own(&output_file)?)
        .stderr(own(&output_file)?)
        .spawn();
    let mut child = child.map_err(failed)?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (sender, ended) = mpsc::channel();
    let waiter = thread::spawn(move || {
        let _ = sender.send(child.wait());
    });
    let status = match ended.recv_timeout(limit) {
        Ok(status) => Some(status.map_err(failed)?),
        Err(_) => {
            // Not reaped yet, so the process id cannot have been reused.
            let _ = group.map(|group| kill_process_group(group, Signal::KILL));
            None
        }
    };
    let _ = waiter.join();
    let mut bytes = Vec::new();
    output_file.seek(SeekFrom::Start(0)).map_err(failed)?;
    output_file.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    // Unwritten bytes of the file are zero.
    let length = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    Ok((status, String::from_utf8_lossy(&bytes[..length]).trim().to_owned()))
}

/// A memfd of fixed size.
fn bounded_file() -> std::io::Result<File> {
    let file = File::from(memfd_create("mount", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    file.set_len(MAX_OUTPUT_BYTES)?;
    fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file)
}

/// The last `max` bytes of a text, from a character boundary on.
fn tail(text: &str, max: usize) -> &str {
    let start = (text.len().saturating_sub(max)..=text.len()).find(|at| text.is_char_boundary(*at));
    &text[start.unwrap_or(0)..]
}

/// Quotes a path as one word for the shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn execute_for_test(command: &str, limit: Duration) -> (Option<Option<i32>>, String) {
        let at = Path::new("/a place/it's");
        let (status, output) = execute(command, at, "tag", limit).expect("it runs");
        (status.map(|status| status.code()), output)
    }

    #[test]
    fn the_mount_point_is_the_last_argument() {
        assert_eq!(execute_for_test("printf '%s|'", COMMAND_TIMEOUT), (Some(Some(0)), "/a place/it's|".to_owned()));
        assert_eq!(
            execute_for_test("echo no such thing >&2; exit 32 #", COMMAND_TIMEOUT),
            (Some(Some(32)), "no such thing".to_owned())
        );
        assert_eq!(execute_for_test("echo $CORRO_PROCESS_TAG #", COMMAND_TIMEOUT).1, "tag");
    }

    #[test]
    fn output_is_bounded() {
        let (status, output) =
            execute_for_test("head -c 300000 /dev/zero | tr '\\0' x; echo more >&2; exit 0 #", COMMAND_TIMEOUT);
        assert_eq!((status, output.len()), (Some(Some(0)), MAX_OUTPUT_BYTES as usize));
        assert_eq!((tail("añb", 2), tail("añb", 3), tail("a", 9)), ("b", "ñb", "a"));
    }

    #[test]
    fn a_hanging_command_is_killed_with_its_process_group() {
        let (status, output) = execute_for_test("sleep 600 & echo $!; wait #", Duration::from_millis(300));
        assert_eq!(status, None);
        let started = Pid::from_raw(output.parse().expect("a process id")).expect("a process id");
        // Killed; the new parent may take a moment to reap it.
        while rustix::process::test_kill_process(started).is_ok() && !is_dead(started) {
            thread::yield_now();
        }
    }

    fn is_dead(process: Pid) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
        status.map_or(true, |text| text.contains(") Z "))
    }

    #[test]
    fn a_command_that_mounts_nothing_is_an_error() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut printed = String::new();
        let error = run("echo done #", directory.path(), "tag", &mut printed).expect_err("nothing is mounted");
        assert_eq!(printed, "done");
        assert_eq!(error.to_string(), "the mount command succeeded, but nothing is mounted: done");
    }
}
