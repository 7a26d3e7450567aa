//! Changes to the environment of a site: fake programs, a terminal, a Python without a home directory. Also reads memory use
//! and open processes.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use corro_test_support::skip;

use super::{CommandOutput, Site};

impl Site {
    /// Starts a server with `tools` (name, shell script) first on its search path, hiding real programs. Jobs see them too.
    pub fn start_with_tools(tools: &[(&str, &str)], up_args: &[&str]) -> Self {
        let dir = tempfile::Builder::new().prefix("corro-test-").tempdir().expect("a temporary directory");
        fs::create_dir(dir.path().join("home")).expect("a home directory");
        fs::create_dir(dir.path().join("bin")).expect("a directory for programs");
        for (name, script) in tools {
            let path = dir.path().join("bin").join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a program");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it can be made executable");
        }
        let up_args = up_args.iter().map(|word| (*word).to_owned()).collect();
        let mut site =
            Self { disk: None, dir, url: String::new(), up: None, up_args, small_disk: None, no_namespaces: false };
        site.up();
        site
    }

    /// Search path of the server and its nodes: the test's own programs first.
    pub fn tool_path(&self) -> OsString {
        let own = self.dir.path().join("bin");
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(own).filter(|own| own.is_dir()).chain(std::env::split_paths(&inherited));
        std::env::join_paths(paths).expect("the search path has no colons inside")
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        self.url.trim_start_matches("http://").trim_start_matches("https://").trim_end_matches('/').to_owned()
    }

    /// Runs a command line, split at spaces, and returns its output as bytes.
    pub fn output(&self, line: &str) -> Output {
        self.command("corro").args(line.split_whitespace()).output().expect("the command runs")
    }

    /// Runs the command line on a terminal and types `answer` after the prompt. Returns its output and exit code; `None`, with
    /// a notice, without the program `script`.
    pub fn on_terminal(&self, name: &str, line: &str, question: &str, answer: &str) -> Option<CommandOutput> {
        if find_program("script").is_none() {
            skip::missing_component("no `script` on this machine, so nothing can be asked on a terminal");
            return None;
        }
        let link = self.command(name);
        let shell_line = format!("{} {line}", link.get_program().to_string_lossy());
        let mut command = Command::new("script");
        command.args(["-qec", &shell_line, "/dev/null"]).current_dir(self.path());
        for (name, value) in link.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("`script` starts");
        let (mut keyboard, mut screen) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let mut shown = Vec::new();
        let mut byte = [0; 1];
        while !String::from_utf8_lossy(&shown).contains(question) && screen.read(&mut byte).expect("readable") == 1 {
            shown.push(byte[0]);
        }
        let _ = keyboard.write_all(answer.as_bytes());
        screen.read_to_end(&mut shown).expect("readable");
        let code = child.wait().expect("it can be waited for").code().unwrap_or(-1);
        Some(CommandOutput { code, stdout: String::from_utf8_lossy(&shown).into_owned(), stderr: String::new() })
    }
}

impl Site {
    /// A real MPI program on the share, linked with the library of this launcher; returns the command that starts it in a job.
    /// `None`, with a notice, if it is not installed.
    pub fn mpi_program(&self, launcher: &str) -> Option<String> {
        let (library, family) = match launcher {
            "mpirun.openmpi" => ("libmpi.so.40", "-DOPEN_MPI"),
            _ => ("libmpich.so.12", "-DMPICH"),
        };
        let Some(found) = find_program(launcher).and_then(|_| find_library(library)) else {
            skip::missing_component(format_args!("{launcher} with {library} is not on this machine"));
            return None;
        };
        let name = format!("sum-{launcher}");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/jobs/sum.c");
        let program = self.share().join("cifar").join(&name);
        let built = Command::new("cc").arg(family).arg("-o").arg(program).arg(source).arg(found).status();
        assert!(built.is_ok_and(|status| status.success()), "a C compiler is needed to build this");
        Some(format!("$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/{name}"))
    }
}

/// Path of a library in the linker's cache.
fn find_library(name: &str) -> Option<PathBuf> {
    let known = Command::new(find_program("ldconfig").unwrap_or("/sbin/ldconfig".into())).arg("-p").output().ok()?;
    let known = String::from_utf8_lossy(&known.stdout).into_owned();
    known.lines().find(|line| line.trim().starts_with(name)).and_then(|line| line.rsplit(' ').next()).map(PathBuf::from)
}

/// Path of a program on the test's own search path.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// Directory of one of the service's own clients (`az`, `sdk12`), as `scripts/azure-clients` installs them, or below
/// `CORRO_TEST_AZURE` if set. `None`, with a notice, if it is not installed.
pub fn azure_client(environment: &str) -> Option<PathBuf> {
    let own = || Path::new(env!("CARGO_TARGET_TMPDIR")).join("../azure-clients");
    let folder = std::env::var_os("CORRO_TEST_AZURE").map_or_else(own, PathBuf::from).join(environment);
    if !folder.join("bin/python").is_file() {
        skip::missing_component(format_args!("no `{environment}` at {}", folder.display()));
        return None;
    }
    Some(folder)
}

/// The Python interpreter itself: `python3` may be a wrapper that needs the caller's home. `None`, with a notice, if there is
/// none.
pub fn python() -> Option<&'static Path> {
    static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = PYTHON.get_or_init(|| {
        let asked = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().ok()?;
        let path = PathBuf::from(String::from_utf8(asked.stdout).ok()?.trim());
        path.is_file().then_some(path)
    });
    if found.is_none() {
        skip::missing_component("no `python3` on this machine");
    }
    found.as_deref()
}

/// Peak memory of a process, in MiB.
pub fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_else(|| panic!("process {pid} does not tell its memory")) / 1024
}
