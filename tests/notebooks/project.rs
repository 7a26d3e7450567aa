//! A project directory of a site, its commands, and programs that the commands find on PATH.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::harness::{CommandOutput, Site, signal, wait_for};

/// A site whose commands run in the directory `cifar` of a project.
pub struct ProjectSite {
    pub site: Site,
}

impl ProjectSite {
    /// `programs` are on the PATH of the server, its nodes and the commands.
    pub fn new(programs: &[(&str, &str)]) -> ProjectSite {
        let mut site = Site::without_server();
        let bin = site.path().join("bin");
        std::fs::create_dir(&bin).expect("a directory");
        for (name, text) in programs {
            write_program(&bin.join(name), text);
        }
        std::fs::create_dir(site.path().join("cifar")).expect("a directory");
        site.up();
        ProjectSite { site }
    }

    pub fn dir(&self) -> PathBuf {
        self.site.path().join("cifar")
    }

    pub fn command(&self, line: &str) -> Command {
        let mut command = self.site.command("corro");
        command.args(line.split_whitespace()).current_dir(self.dir()).env("PATH", self.site.tool_path());
        command
    }

    pub fn corro(&self, line: &str) -> CommandOutput {
        CommandOutput::from(self.command(line).output().expect("the command runs"))
    }

    pub fn start(&self, line: &str) -> Running {
        Running::start(self.command(line))
    }

    /// The directory of a job on the server's disk.
    pub fn job_directory(&self, job: &str) -> PathBuf {
        self.site.data().join("shares/defaultprojects/projects/default/cifar").join(job)
    }

    pub fn job_state(&self, job: &str) -> String {
        let shown = self.site.corro(&format!("batchai job show -g default -w default -e cifar -n {job}"));
        shown.json()["executionState"].as_str().expect("a state").to_owned()
    }
}

fn write_program(path: &Path, text: &str) {
    std::fs::write(path, text).expect("a program");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("it can be run");
}

/// A command whose output is collected while it runs. Killed on drop.
pub struct Running {
    child: Child,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
}

impl Running {
    pub fn start(mut command: Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
        let stdout = collect(child.stdout.take().expect("it is piped"));
        let stderr = collect(child.stderr.take().expect("it is piped"));
        Running { child, stdout, stderr }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn stdout(&self) -> String {
        self.stdout.lock().expect("no panic").clone()
    }

    pub fn stderr(&self) -> String {
        self.stderr.lock().expect("no panic").clone()
    }

    /// Waits for a line of standard output that begins like this.
    pub fn wait_for_line(&mut self, start: &str) -> String {
        let mut found = None;
        wait_for(&format!("a line that begins with {start:?}"), || {
            found = self.stdout().lines().find(|line| line.starts_with(start)).map(str::to_owned);
            if found.is_none() && self.child.try_wait().expect("it can be waited for").is_some() {
                panic!("the command has ended: {}{}", self.stdout(), self.stderr());
            }
            found.is_some()
        });
        found.expect("it was found")
    }

    pub fn interrupt(&self) {
        signal(self.pid(), rustix::process::Signal::INT);
    }

    /// Waits for the end; returns output and exit code.
    pub fn end(&mut self) -> CommandOutput {
        let mut status = None;
        wait_for("the end of the command", || {
            status = self.child.try_wait().expect("it can be waited for");
            status.is_some()
        });
        let code = status.and_then(|status| status.code()).unwrap_or(-1);
        // The threads that read have reached the end a moment later.
        wait_for("all output", || Arc::strong_count(&self.stdout) == 1 && Arc::strong_count(&self.stderr) == 1);
        CommandOutput { code, stdout: self.stdout(), stderr: self.stderr() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the command printed ---\n{}{}", self.stdout(), self.stderr());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(from: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let collected = text.clone();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(from);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            collected.lock().expect("no panic").push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    });
    text
}
