//! Test site: a server with its own home directory, and commands run against it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// A server with its own home directory; stopped on drop.
pub struct Site {
    pub dir: tempfile::TempDir,
    server: Option<Child>,
}

impl Site {
    pub fn new() -> Site {
        Site { dir: tempfile::tempdir().expect("temp dir"), server: None }
    }

    /// Starts the server and returns its address.
    pub fn start(&mut self, listen: &str) -> String {
        let mut server =
            self.command(&["up", "--listen", listen]).stdout(Stdio::piped()).spawn().expect("corro starts");
        let mut line = String::new();
        BufReader::new(server.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        self.server = Some(server);
        let address = line.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next());
        address.unwrap_or_else(|| panic!("no address in {line:?}")).to_owned()
    }

    /// Ends the server with this signal, if it runs.
    pub fn kill(&mut self, signal: Signal) {
        let Some(mut server) = self.server.take() else { return };
        let pid = Pid::from_child(&server);
        kill_process(pid, signal).expect("it runs");
        server.wait().expect("it ends");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corro"));
        command.args(args).current_dir(self.dir.path()).stdin(Stdio::null()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.dir.path()).env("USER", "me").env("CORRO_CONFIG_DIR", self.path("conf"));
        command
    }

    pub fn run(&self, line: &str) -> Output {
        let args: Vec<&str> = line.split(' ').collect();
        self.command(&args).output().expect("corro starts")
    }

    /// Standard output of a command that must succeed.
    pub fn out(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "{line}\n{}", text(&output.stderr));
        text(&output.stdout)
    }

    pub fn json(&self, line: &str) -> Value {
        let out = self.out(line);
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{line}: {error}\n{out}"))
    }

    /// Asserts that a command fails with this exit code and standard error.
    pub fn fails(&self, line: &str, code: i32, expected: &str) {
        let output = self.run(line);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(code), ""), "{line}");
        assert_eq!(text(&output.stderr), expected, "{line}");
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.kill(Signal::INT);
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < WAIT_TIMEOUT, "{what} did not happen within {WAIT_TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Arguments that name the experiment of [`prepare`].
pub const IN_EXPERIMENT: &str = "-g g -w w -e e";

/// Group, workspace, experiment, a cluster of one node, account and share.
pub fn prepare(site: &Site) {
    for line in [
        "group create -n g -l eastus",
        "batchai workspace create -g g -n w",
        "batchai experiment create -g g -w w -n e",
        "batchai cluster create -g g -w w -n c -s Standard_D1 -t 1 -p secret",
        "storage account create -g g -n acc --sku Standard_LRS",
        "storage share create -n myshare --account-name acc",
    ] {
        site.out(line);
    }
}

/// Writes a job file that runs `command` on one node and mounts the share.
pub fn write_job(path: &Path, command: &str) {
    let job = json!({"properties": {
        "nodeCount": 1,
        "customToolkitSettings": {"commandLine": command},
        "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare",
        "mountVolumes": {"azureFileShares": [{
            "azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/myshare",
            "relativeMountPath": "myshare"
        }]}
    }});
    fs::write(path, job.to_string()).expect("written");
}
