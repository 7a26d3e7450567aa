//! Ranks as processes. The test executable starts itself once for each rank; a rank executes commands from its standard input
//! (`rank`), one per line, and prints the outcomes. All processes are killed at the end of the test.
#![allow(dead_code, reason = "each test executable uses its own part")]

pub mod hosts;
pub mod rank;

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Time limit of every wait. Nothing should take as long, but machines may be busy.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

pub type Variables = Vec<(String, String)>;

pub fn variables(pairs: &[(&str, &str)]) -> Variables {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Variables as torchrun sets them for a rank on one host; the port is only part of the job id, and never opened.
pub fn torchrun(rank: usize, size: usize, job: &str) -> Variables {
    [torchrun_without_id(rank, size, job), variables(&[("TORCHELASTIC_RUN_ID", job)])].concat()
}

/// As [`torchrun`] without an id of the run: only the origin of the processes distinguishes the ranks of two worlds.
pub fn torchrun_without_id(rank: usize, size: usize, job: &str) -> Variables {
    let [rank, size] = [rank, size].map(|number| number.to_string());
    variables(&[
        ("RANK", &rank),
        ("WORLD_SIZE", &size),
        ("LOCAL_RANK", &rank),
        ("LOCAL_WORLD_SIZE", &size),
        ("MASTER_PORT", job),
    ])
}

/// A job id that no other job has.
pub fn new_job() -> String {
    static JOBS: AtomicU64 = AtomicU64::new(0);
    format!("{} {}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed))
}

pub fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a host has a name").trim().to_owned()
}

/// All ranks of a job.
pub struct Gang {
    pub ranks: Vec<Rank>,
}

impl Gang {
    /// Starts ranks on this host and waits until they are connected.
    pub fn connected(n: usize, more: &[(&str, &str)]) -> Gang {
        let mut gang = Gang::started(n, more);
        gang.ranks.iter_mut().for_each(|rank| drop(rank.wait_for("ready")));
        gang
    }

    /// Starts ranks on this host.
    pub fn started(n: usize, more: &[(&str, &str)]) -> Gang {
        let job = new_job();
        let rank_variables = |rank| [torchrun(rank, n, &job), variables(more)].concat();
        Gang { ranks: (0..n).map(|rank| Rank::start(own_command(), &rank_variables(rank))).collect() }
    }

    pub fn others(&mut self, victim: usize) -> impl Iterator<Item = (usize, &mut Rank)> {
        self.ranks.iter_mut().enumerate().filter(move |(rank, _)| *rank != victim)
    }

    pub fn send_all(&mut self, command: &str) {
        self.ranks.iter_mut().for_each(|rank| rank.send(command));
    }

    pub fn wait_all(&mut self, what: &str) {
        self.ranks.iter_mut().for_each(|rank| drop(rank.wait_for(what)));
    }

    /// Runs a command on every rank, and waits for its success.
    pub fn run_all(&mut self, command: &str) {
        self.send_all(command);
        self.wait_all("done");
    }

    /// Ends all ranks, and checks that they succeed.
    pub fn leave(mut self) {
        self.send_all("leave");
        self.wait_all("left");
        for rank in &mut self.ranks {
            assert!(rank.child.wait().expect("a child can be waited for").success());
        }
    }
}

/// One process.
pub struct Rank {
    pub child: Child,
    commands: ChildStdin,
    stdout: Lines,
    stderr: Lines,
}

/// The command that runs this executable as a rank.
pub fn own_command() -> Vec<OsString> {
    let own = std::env::current_exe().expect("a test has a file").into_os_string();
    [own].into_iter().chain(rank::ARGUMENTS.map(OsString::from)).collect()
}

impl Rank {
    /// `command` is [`own_command`], possibly after a launcher that runs it.
    pub fn start(command: Vec<OsString>, variables: &[(String, String)]) -> Rank {
        let mut start = Command::new(&command[0]);
        start.args(&command[1..]).env_clear().envs(variables.iter().map(|(name, value)| (name, value)));
        start.env("PATH", std::env::var_os("PATH").expect("PATH is set"));
        start.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = start.spawn().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        let commands = child.stdin.take().expect("piped");
        let stdout = Lines::read(child.stdout.take().expect("piped"));
        let stderr = Lines::read(child.stderr.take().expect("piped"));
        Rank { child, commands, stdout, stderr }
    }

    pub fn send(&mut self, command: &str) {
        writeln!(self.commands, "{command}").expect("the rank is alive");
    }

    /// Waits for an output line that begins with `prefix`, and returns the rest. Earlier lines are skipped.
    pub fn wait_for(&mut self, prefix: &str) -> String {
        let wanted = format!("{}{prefix}", rank::MARK);
        let line = self.stdout.wait(|line| line.contains(&wanted));
        let line = line.unwrap_or_else(|all| panic!("no output {prefix}: {all}\nstderr: {}", self.stderr.text()));
        let at = line.find(&wanted).expect("it was looked for");
        line[at + wanted.len()..].trim().to_owned()
    }

    pub fn has_output(&self, what: &str) -> bool {
        self.stdout.text().contains(&format!("{}{what}", rank::MARK))
    }

    /// Waits for a line of standard error that contains `text`, and returns it.
    pub fn wait_for_stderr(&mut self, what: &str) -> String {
        let found = self.stderr.wait(|line| line.contains(what));
        found.unwrap_or_else(|all| panic!("no line of stderr contains {what}: {all}"))
    }

    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Sends SIGSTOP, and waits until all threads are stopped.
    pub fn stop(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).expect("our own child can be signalled");
        let stopped = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|(_, state)| state.trim_start().starts_with('T'))
        };
        let tasks = format!("/proc/{}/task", self.child.id());
        until("it is stopped", || std::fs::read_dir(&tasks).expect("it lives").flatten().all(stopped));
    }

    pub fn resume(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).expect("our own child can be signalled");
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("our own child can be killed");
        self.child.wait().expect("a child can be waited for");
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Output lines of a process, read by a thread.
struct Lines {
    shared: Arc<(Mutex<Vec<String>>, Condvar)>,
    seen: usize,
}

impl Lines {
    fn read(source: impl Read + Send + 'static) -> Lines {
        let shared = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let writer = shared.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(source).lines().map_while(Result::ok) {
                writer.0.lock().expect("no reader panics").push(line);
                writer.1.notify_all();
            }
        });
        Lines { shared, seen: 0 }
    }

    /// Waits for the next line that matches; on timeout an error with all lines.
    fn wait(&mut self, wanted: impl Fn(&str) -> bool) -> Result<String, String> {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        let (lines, more) = &*self.shared;
        let mut lines = lines.lock().expect("no reader panics");
        loop {
            while let Some(line) = lines.get(self.seen) {
                self.seen += 1;
                if wanted(line) {
                    return Ok(line.clone());
                }
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Err(lines.join("\n"));
            }
            lines = more.wait_timeout(lines, remaining).expect("no reader panics").0;
        }
    }

    fn text(&self) -> String {
        self.shared.0.lock().expect("no reader panics").join("\n")
    }
}

/// Polls a condition every few milliseconds until it holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Inodes of the sockets of a process.
pub fn sockets_of(pid: u32) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let links = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let inode = |link: std::path::PathBuf| {
        let name = link.to_string_lossy().into_owned();
        name.strip_prefix("socket:[")?.strip_suffix(']').map(str::to_owned)
    };
    links.filter_map(inode).collect()
}
