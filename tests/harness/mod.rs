//! Test site: a temporary home, a real `corro up`, real commands as processes. Every wait is for a condition with a deadline.
//! Each suite uses only a part, so unused items are normal.
#![allow(dead_code)]

pub mod browser;
pub mod collective;
mod command_output;
pub mod fake_clock;
pub mod fault_injection;
pub mod host;
pub mod http;
mod jobs;
pub mod logs;
pub mod machines;
pub mod ordinary_user;
pub mod page;
pub mod schema;
pub mod slurm;
pub mod slurm_files;
pub mod small_disk;
pub mod swagger;
pub mod terminal;
pub mod webdriver;
pub mod wire;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub use command_output::CommandOutput;
use serde_json::Value;

/// Timeout of every wait, long enough for a loaded machine; reaching it is a failure, not a measurement.
pub const DEADLINE: Duration = Duration::from_secs(60);

pub const GROUP: &str = "batchai.horovod";
/// `-g … -w …` of the workspace that [`Site::prepare`] creates.
pub const IN_WORKSPACE: &str = "-g batchai.horovod -w batchaidev";

pub struct Site {
    /// Disk of the data directory, for tests that fill it. Declared first, so that it is unmounted before its directory is
    /// removed.
    pub disk: Option<small_disk::SmallDisk>,
    pub dir: tempfile::TempDir,
    pub url: String,
    up: Option<Child>,
    up_args: Vec<String>,
    /// Size in megabytes of the data directory's disk, which only the server sees.
    small_disk: Option<usize>,
    /// The server and its nodes cannot create namespaces.
    no_namespaces: bool,
}

/// Runs a command in a user namespace in which no other one can be created.
const NO_NAMESPACES: &str = "echo 0 >/proc/sys/user/max_user_namespaces && exec \"$@\"";

/// Parses `NAME=value` among the arguments of `corro up`, which sets an environment variable as in a shell.
fn variable(word: &str) -> Option<(&str, &str)> {
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    word.split_once('=').filter(|(name, _)| is_name(name))
}

impl Site {
    /// Starts a server with no resources. Container jobs run on the host.
    pub fn start() -> Self {
        Self::start_with(&["--no-containers"])
    }

    pub fn start_with(up_args: &[&str]) -> Self {
        let mut site = Self::without_server();
        site.up_args = up_args.iter().map(|word| (*word).to_owned()).collect();
        site.up();
        site
    }

    /// A home without a server.
    pub fn without_server() -> Self {
        let dir = tempfile::Builder::new().prefix("corro-test-").tempdir().expect("a temporary directory");
        std::fs::create_dir(dir.path().join("home")).expect("a home directory");
        Self { disk: None, dir, url: String::new(), up: None, up_args: vec![], small_disk: None, no_namespaces: false }
    }

    /// Starts a server whose data directory is on a small disk; `None` if this user may not mount one. [`Site::inner_data`]
    /// shows its content, which vanishes with the server.
    pub fn start_on_small_disk(megabytes: usize) -> Option<Self> {
        let possible = Command::new("unshare").args(["-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]).output();
        if !possible.is_ok_and(|output| output.status.success()) {
            return None;
        }
        let dir = tempfile::Builder::new().prefix("corro-test-").tempdir().expect("a temporary directory");
        let mut site = Self {
            disk: None,
            dir,
            url: String::new(),
            up: None,
            up_args: vec![],
            small_disk: Some(megabytes),
            no_namespaces: false,
        };
        std::fs::create_dir(site.home()).and_then(|()| std::fs::create_dir(site.data())).expect("directories");
        site.up();
        Some(site)
    }

    /// Starts a server on a machine without user namespaces; `None` if this user may not disable them.
    pub fn start_without_namespaces(up_args: &[&str]) -> Option<Self> {
        let possible = Command::new("unshare").args(["-r", "sh", "-c", NO_NAMESPACES, "sh", "true"]).output();
        if !possible.is_ok_and(|output| output.status.success()) {
            return None;
        }
        let dir = tempfile::Builder::new().prefix("corro-test-").tempdir().expect("a temporary directory");
        std::fs::create_dir(dir.path().join("home")).expect("a home directory");
        let up_args = up_args.iter().map(|word| (*word).to_owned()).collect();
        let mut site =
            Self { disk: None, dir, url: String::new(), up: None, up_args, small_disk: None, no_namespaces: true };
        site.up();
        Some(site)
    }

    /// The data directory as the server sees it.
    pub fn inner_data(&self) -> PathBuf {
        let inside = PathBuf::from(format!("/proc/{}/root", self.up_pid()));
        inside.join(self.data().strip_prefix("/").expect("an absolute path"))
    }

    /// Starts `corro up` (again) on the same data directory and waits until it is ready.
    pub fn up(&mut self) {
        self.up_at("127.0.0.1:0");
    }

    /// Like `up`, on a given address: clients that lost a server reconnect to its old address.
    pub fn up_at(&mut self, listen: &str) {
        assert!(self.up.is_none(), "the server runs already");
        let log = File::options().append(true).create(true).open(self.dir.path().join("up.log")).expect("a log file");
        let mut command = self.command("corro");
        let small_disk = self.small_disk.map(|megabytes| {
            format!("mount -t tmpfs -o size={megabytes}m,mode=700 tmpfs '{}' && exec \"$@\"", self.data().display())
        });
        if let Some(script) = small_disk.or(self.no_namespaces.then(|| NO_NAMESPACES.to_owned())) {
            let mut wrapped = Command::new("unshare");
            wrapped.args(["-rm", "sh", "-c", &script, "sh"]).arg(command.get_program());
            for (name, value) in command.get_envs() {
                match value {
                    Some(value) => wrapped.env(name, value),
                    None => wrapped.env_remove(name),
                };
            }
            wrapped.current_dir(self.dir.path()).stdin(Stdio::null());
            command = wrapped;
        }
        let mut child = command
            .args(["up", "--listen", listen, "--data"])
            .arg(self.data())
            .args(self.up_args.iter().filter(|word| variable(word).is_none()))
            .envs(self.up_args.iter().filter_map(|word| variable(word)))
            .env("PATH", self.tool_path())
            .env("CORRO_LOG", "info")
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("corro up starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut first = String::new();
        lines.read_line(&mut first).expect("its output can be read");
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        let url = first.split_whitespace().find(|word| word.starts_with("http://") || word.starts_with("https://"));
        self.url = url.unwrap_or_else(|| panic!("corro up said {first:?}; its log: {}", self.up_log())).to_owned();
        self.up = Some(child);
    }

    pub fn up_log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("up.log")).unwrap_or_default()
    }

    pub fn up_pid(&self) -> u32 {
        self.up.as_ref().expect("the server runs").id()
    }

    /// `kill -9` of the server. Its nodes live on.
    pub fn kill_server(&mut self) {
        let mut child = self.up.take().expect("the server runs");
        child.kill().expect("it can be killed");
        child.wait().expect("it can be waited for");
    }

    /// Ctrl-C: the server shuts down with its nodes. Returns its exit code.
    pub fn interrupt_server(&mut self) -> Option<i32> {
        self.stop_server(rustix::process::Signal::INT)
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// The working directory of commands.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The directory of a share on the server's disk.
    pub fn share(&self) -> PathBuf {
        self.data().join("shares/mystorageaccount/myshare")
    }

    /// `corro` under the name `name`, with the home of this site.
    pub fn command(&self, name: &str) -> Command {
        let link = self.dir.path().join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_corro"), &link).expect("a link");
        }
        let mut command = Command::new(link);
        command
            .current_dir(self.dir.path())
            .env("HOME", self.home())
            .env("CORRO_CONFIG_DIR", self.dir.path().join("config"))
            .env_remove("CORRO_SERVER")
            // Ranks use our own launcher, whatever this machine has; jobs that need an mpirun name it.
            .env("CORRO_MPIRUN", "none")
            // The machine's own container engine is not used; a test with an engine puts a link here.
            .env("DOCKER_HOST", format!("unix://{}", self.dir.path().join("engine.sock").display()))
            .stdin(Stdio::null());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("AZURE_")) {
            command.env_remove(name);
        }
        command
    }

    /// Runs a command line; arguments are split at spaces, double quotes are dropped.
    pub fn corro(&self, line: &str) -> CommandOutput {
        self.run_as("corro", line)
    }

    pub fn run_as(&self, name: &str, line: &str) -> CommandOutput {
        let words = line.split_whitespace().map(|word| word.trim_matches('"'));
        CommandOutput::from(self.command(name).args(words).output().expect("the command runs"))
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.dir.path().join(name), text).expect("a file in the test's directory");
    }

    /// Creates group, workspace, experiment `cifar`, cluster `nc6cluster` with idle nodes, account, share, directory `cifar`.
    pub fn prepare(&self, nodes: usize) {
        self.corro(&format!("group create -n {GROUP} -l eastus")).ok();
        self.corro("batchai workspace create -g batchai.horovod --workspace batchaidev").ok();
        self.corro(&format!("batchai experiment create {IN_WORKSPACE} -n cifar")).ok();
        let size = "--vm-size Standard_NC6 --user-name me --password not-a-secret";
        self.corro(&format!("batchai cluster create {IN_WORKSPACE} -n nc6cluster {size} --target {nodes}")).ok();
        self.corro(&format!("storage account create -g {GROUP} -n mystorageaccount -l eastus --sku Standard_LRS")).ok();
        self.corro("storage share create -n myshare --account-name mystorageaccount").ok();
        self.corro("storage directory create -n cifar -s myshare --account-name mystorageaccount").ok();
        self.wait_for_nodes(nodes);
    }

    pub fn wait_for_nodes(&self, idle: usize) {
        wait_for(&format!("{idle} idle nodes"), || {
            self.cluster()["nodeStateCounts"]["idleNodeCount"] == idle && self.cluster()["allocationState"] == "steady"
        });
    }

    pub fn cluster(&self) -> Value {
        self.corro(&format!("batchai cluster show {IN_WORKSPACE} -n nc6cluster")).json()
    }

    /// Processes of this site's nodes: ranks, preparations and their guards.
    pub fn node_processes(&self) -> Vec<u32> {
        let nodes = std::fs::read_dir(self.data().join("nodes")).into_iter().flatten().flatten();
        nodes
            .filter_map(|node| node.file_name().into_string().ok())
            .flat_map(|node| corro_launch::kill_tagged::processes_with_tag(&format!("{node}/")))
            .collect()
    }

    /// Process ids of the agents, by node id.
    pub fn agents(&self) -> Vec<(String, u32)> {
        let nodes = std::fs::read_dir(self.data().join("nodes")).into_iter().flatten().flatten();
        let mut agents: Vec<_> = nodes
            .filter_map(|node| {
                let pid = std::fs::read_to_string(node.path().join("lock")).ok()?.trim().parse().ok()?;
                Some((node.file_name().into_string().ok()?, pid))
            })
            .filter(|(_, pid)| is_alive(*pid))
            .collect();
        agents.sort();
        agents
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(mut child) = self.up.take() {
            signal(child.id(), rustix::process::Signal::INT);
            let deadline = Instant::now() + Duration::from_secs(20);
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::park_timeout(Duration::from_millis(10));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        // A failed test with a killed server leaves agents behind; these pids are ours.
        for (node, pid) in self.agents() {
            signal(pid, rustix::process::Signal::KILL);
            corro_launch::kill_tagged::kill_by_tag_prefix(&format!("{node}/"));
        }
        if std::thread::panicking() {
            eprintln!("--- the server's log ---\n{}", self.up_log());
        }
    }
}

/// Waits for a condition; panics with `what` on timeout.
#[track_caller]
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        let waited = began.elapsed();
        assert!(waited < DEADLINE || waited < DEADLINE * load(), "waited {} s for {what}", waited.as_secs());
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Runnable processes per CPU: the factor by which timeouts are extended.
fn load() -> u32 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let running: f64 = text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
    (running / processors).ceil().clamp(1.0, 10.0) as u32
}

pub fn signal(pid: u32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid as i32) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Whether the process runs; a zombie does not.
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}
