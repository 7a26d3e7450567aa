//! A home without a server, in which tests start servers in the background. What a test leaves running is ended on drop.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{CommandOutput, Site};

pub struct BackgroundSite {
    pub site: Site,
}

/// Arguments of a start in the background on any port.
pub const UP: &str = "up --detach --listen 127.0.0.1:0 --nfs off --no-containers --data data";

impl BackgroundSite {
    pub fn new() -> BackgroundSite {
        BackgroundSite { site: Site::without_server() }
    }

    pub fn command(&self, line: &str) -> Command {
        let mut command = self.site.command("corro");
        command.args(line.split_whitespace()).env("CORRO_LOG", "info").env("PATH", self.site.tool_path());
        command
    }

    pub fn corro(&self, line: &str) -> CommandOutput {
        CommandOutput::from(self.command(line).output().expect("the command runs"))
    }

    pub fn start(&self, line: &str) -> std::process::Child {
        self.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts")
    }

    /// What `corro status` says, whatever its exit code.
    pub fn status(&self) -> Value {
        let output = self.corro("status -o json");
        serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    /// Process id of the server that runs.
    pub fn pid(&self) -> u32 {
        let status = self.status();
        status["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).unwrap_or_else(|| panic!("no process: {status}"))
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.site.data().join("server.log")).unwrap_or_default()
    }

    /// Process ids of servers in the background with a data directory of this site.
    pub fn servers(&self) -> Vec<i32> {
        let is_ours = |pid: &i32| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
            words.split(|byte| *byte == 0).any(|word| word == b"--in-background") && cwd.starts_with(self.site.path())
        };
        corro_base::procfs::pids().into_iter().filter(is_ours).collect()
    }

    pub fn default_data(&self) -> PathBuf {
        self.site.path().join("config/data")
    }
}

impl Drop for BackgroundSite {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the log of the server in the background ---\n{}", self.log());
        }
        for data in [self.site.data(), self.default_data()] {
            let mut stop = self.site.command("corro");
            let _ = stop.args(["stop", "--now", "--data"]).arg(data).output();
        }
        for pid in self.servers() {
            crate::harness::signal(u32::try_from(pid).unwrap_or(0), rustix::process::Signal::KILL);
        }
    }
}
