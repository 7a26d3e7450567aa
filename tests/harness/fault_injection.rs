//! Helpers for fault tests: alternative ways to start, kills by process id, and process listings.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use corro_launch::kill_tagged;
use rustix::process::Signal;

use super::{Site, is_alive, signal, wait_for};

/// Path of the share in a job of `job_json`.
pub const SHARE: &str = "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare";

/// The line that a rank writes first; see [`waiting_rank`].
#[derive(Clone, Debug, PartialEq)]
pub struct RankStart {
    pub rank: usize,
    /// Process id of the shell that is the rank.
    pub pid: u32,
    pub node: String,
}

/// Rank that records its start, runs `then`, and exits with 0 once the file `go` is on the share.
pub fn waiting_rank(then: &str) -> String {
    let wait = format!("while [ ! -e {SHARE}/go ]; do sleep 0.1; done");
    format!("echo \"$RANK $$ $HOROVOD_HOSTNAME\" >> {SHARE}/starts; {then} {wait}; echo \"rank $RANK is done\"")
}

impl Site {
    /// Site whose server is not started.
    pub fn unstarted(up_args: &[&str]) -> Self {
        let dir = tempfile::Builder::new().prefix("corro-test-").tempdir().expect("a temporary directory");
        std::fs::create_dir(dir.path().join("home")).expect("a home directory");
        let up_args = up_args.iter().map(|word| (*word).to_owned()).collect();
        Self { disk: None, dir, url: String::new(), up: None, up_args, small_disk: None, no_namespaces: false }
    }

    /// Starts a server with `corro up` or `corro server`, logging at `level`, and waits until it is ready.
    pub fn start_server(&mut self, word: &str, listen: &str, level: &str) {
        self.start_server_with(self.server_command(word, listen, level));
    }

    /// Starts a server with this command, and waits until it is ready.
    pub fn start_server_with(&mut self, mut command: Command) {
        assert!(self.up.is_none(), "the server runs already");
        let mut child = command.stdout(Stdio::piped()).spawn().expect("corro starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut first = String::new();
        lines.read_line(&mut first).expect("its output can be read");
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        let url = first.split_whitespace().find(|word| word.starts_with("http://") || word.starts_with("https://"));
        self.url = url.unwrap_or_else(|| panic!("corro said {first:?}; its log: {}", self.up_log())).to_owned();
        self.up = Some(child);
    }

    /// Command for `corro up` or `corro server` on this site's data, not started yet.
    pub fn server_command(&self, word: &str, listen: &str, level: &str) -> Command {
        let log = File::options().append(true).create(true).open(self.path().join("up.log")).expect("a log file");
        let mut command = self.command("corro");
        command.args([word, "--listen", listen, "--data"]).arg(self.data()).args(&self.up_args);
        command.env("CORRO_LOG", level).stdout(Stdio::null()).stderr(log);
        command
    }

    /// `kill -9`, then a restart at the same address, as after a crash.
    pub fn crash_and_restart(&mut self) {
        self.kill_server();
        self.up_at(&self.address());
    }

    /// Stops the server with this signal and returns its exit code.
    pub fn stop_server(&mut self, how: Signal) -> Option<i32> {
        let mut child = self.up.take().expect("the server runs");
        signal(child.id(), how);
        let deadline = Instant::now() + super::DEADLINE;
        while child.try_wait().expect("it can be waited for").is_none() {
            assert!(Instant::now() < deadline, "the server does not end");
            std::thread::park_timeout(Duration::from_millis(10));
        }
        child.wait().expect("it has ended").code()
    }

    /// Lines that the ranks of [`waiting_rank`] jobs wrote, oldest first.
    pub fn starts(&self) -> Vec<RankStart> {
        let text = std::fs::read_to_string(self.share().join("starts")).unwrap_or_default();
        let line = |line: &str| {
            let mut words = line.split(' ');
            let mut word = || words.next().expect("three words").to_owned();
            let (rank, pid) = (word().parse().unwrap_or_default(), word().parse().expect("a process id"));
            RankStart { rank, pid, node: word() }
        };
        // An incomplete last line is ignored.
        text.split_inclusive('\n').filter(|text| text.ends_with('\n')).map(|text| line(text.trim_end())).collect()
    }

    /// Waits until that many ranks have started, over all attempts.
    #[track_caller]
    pub fn wait_for_starts(&self, n_starts: usize) -> Vec<RankStart> {
        wait_for(&format!("{n_starts} starts of ranks"), || self.starts().len() >= n_starts);
        self.starts()
    }

    /// Lets the [`waiting_rank`]s end.
    pub fn release_ranks(&self) {
        std::fs::write(self.share().join("go"), "").expect("a file on the share");
    }

    /// Process id of the agent of a node.
    #[track_caller]
    pub fn agent_of(&self, node: &str) -> u32 {
        let agents = self.agents();
        agents.iter().find(|(id, _)| id == node).unwrap_or_else(|| panic!("no agent of {node}: {agents:?}")).1
    }

    /// A file of the job's `stdouterr` directory on the share, read from the server's disk.
    pub fn job_file(&self, job: &str, file: &str) -> String {
        let segment = self.job(job)["jobOutputDirectoryPathSegment"].as_str().expect("text").to_owned();
        let path = self.share().join("cifar").join(segment).join("stdouterr").join(file);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

/// Process ids of a node: ranks, preparations, their guards and all descendants.
pub fn processes_of(node: &str) -> Vec<u32> {
    kill_tagged::processes_with_tag(&format!("{node}/"))
}

#[track_caller]
pub fn wait_until_dead(what: &str, pids: &[u32]) {
    wait_for(&format!("{what} to be dead"), || !pids.iter().any(|pid| is_alive(*pid)));
}

pub fn parent_of(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process lives");
    let rest = stat.rsplit_once(')').expect("a name in brackets").1;
    rest.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a parent")
}

/// Agent that the test started and that joined by itself. Killed with all its processes on drop.
pub struct JoinedAgent {
    pub child: Child,
    dir: PathBuf,
}

impl JoinedAgent {
    /// Starts an agent for a site started with `corro server`.
    pub fn start(site: &Site, name: &str) -> Self {
        Self::start_at(site, name, &site.url, &[])
    }

    /// Like `start`, with another server address and more arguments.
    pub fn start_at(site: &Site, name: &str, server: &str, words: &[&str]) -> Self {
        let dir = site.path().join(name);
        let log = File::create(site.path().join(format!("{name}.log"))).expect("a log file");
        let child = site
            .command("corro")
            .args(["agent", "--once", "--server", server, "--join-token-file"])
            .arg(site.data().join("join-token"))
            .arg("--data")
            .arg(&dir)
            .args(words)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        Self::new(child.expect("the agent starts"), dir)
    }

    pub fn new(child: Child, dir: PathBuf) -> Self {
        Self { child, dir }
    }

    /// The node's id, once it has joined.
    pub fn node(&self) -> Option<String> {
        node_in(&self.dir)
    }

    /// Its exit code, once it has exited.
    pub fn ended(&mut self) -> Option<i32> {
        self.child.try_wait().expect("it can be waited for").and_then(|status| status.code())
    }
}

impl Drop for JoinedAgent {
    fn drop(&mut self) {
        let node = self.node();
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(node) = node {
            kill_tagged::kill_by_tag_prefix(&format!("{node}/"));
        }
    }
}

fn node_in(dir: &Path) -> Option<String> {
    let text = std::fs::read(dir.join("credential.json")).ok()?;
    let credential: serde_json::Value = serde_json::from_slice(&text).ok()?;
    Some(credential["node"].as_str()?.to_owned())
}
