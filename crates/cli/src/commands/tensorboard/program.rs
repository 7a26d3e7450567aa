//! The TensorBoard of this machine: the program in PATH, or the module of a Python. Corro brings none.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use tokio::process::{Child, Command};

use crate::error::CliError;

/// How TensorBoard is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    words: Vec<PathBuf>,
}

/// Finds TensorBoard.
pub async fn find() -> Result<Program, CliError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(program) = find_in(&path, "tensorboard") {
        return Ok(Program { words: vec![program] });
    }
    for name in ["python3", "python"] {
        let Some(python) = find_in(&path, name) else { continue };
        let mut check = Command::new(&python);
        check.args(["-c", "import tensorboard"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if check.status().await.is_ok_and(|status| status.success()) {
            return Ok(Program { words: vec![python, "-m".into(), "tensorboard.main".into()] });
        }
    }
    Err(CliError::new("TensorBoard is not installed on this machine").hint(
        "install it with 'pip install tensorboard', in a virtual environment that is active or on PATH; \
         'corro job plot' and the dashboard show curves without it",
    ))
}

/// The first executable file with this name.
fn find_in(path: &std::ffi::OsStr, name: &str) -> Option<PathBuf> {
    let is_executable = |file: &PathBuf| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(path).map(|dir| dir.join(name)).find(is_executable)
}

impl Program {
    /// Starts TensorBoard with its output on this terminal. It ends with this process, also if that is killed.
    pub fn start(&self, directory: &Path, port: Option<u16>, arguments: &[String]) -> Result<Child, CliError> {
        let mut command = std::process::Command::new(&self.words[0]);
        command.args(&self.words[1..]).arg("--logdir").arg(directory);
        if let Some(port) = port {
            command.args(["--port", &port.to_string()]);
        }
        command.args(arguments).stdin(Stdio::null());
        // SAFETY: the closure runs in the forked child before exec and only calls prctl(2), which is async-signal-safe.
        unsafe {
            use std::os::unix::process::CommandExt;
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
        }
        Command::from(command).spawn().map_err(|error| {
            CliError::new(format!("cannot start TensorBoard: {}", self.words[0].display())).cause(error)
        })
    }
}

/// Sends what Ctrl-C sends.
pub fn interrupt(child: &Child) {
    // The process is not reaped yet, so its id is its own.
    if let Some(pid) = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
        let _ = kill_process(pid, Signal::INT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_first_executable_of_the_path_is_found() {
        let dir = tempfile::tempdir().expect("directory");
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        for dir in [&one, &two] {
            fs::create_dir(dir).expect("directory");
            fs::write(dir.join("tensorboard"), "").expect("file");
        }
        let path = std::env::join_paths([&one, &two]).expect("a path");
        assert_eq!(find_in(&path, "tensorboard"), None, "none is executable");
        fs::set_permissions(two.join("tensorboard"), fs::Permissions::from_mode(0o755)).expect("set");
        assert_eq!(find_in(&path, "tensorboard"), Some(two.join("tensorboard")));
        assert_eq!(find_in(&path, "two"), None);
    }
}
