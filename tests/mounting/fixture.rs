//! Fixture: a real `corro files` with one share, commands that mount it, and the processes that serve mounts.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use corro_test_support::skip;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::host::find_program;
use crate::harness::{CommandOutput, DEADLINE};

/// The kernel's write modes: write-through, or writeback.
pub const WRITE_MODES: [&str; 2] = ["", "--write-cache"];

/// A running `corro files` with the share `share` of the account `one`, stopped and unmounted on drop.
pub struct Share {
    pub dir: tempfile::TempDir,
    pub server: Option<Child>,
    pub address: String,
}

/// Starts a server with the share; `None`, with a notice, if nothing can be mounted.
pub fn start_share() -> Option<Share> {
    let is_root = rustix::process::geteuid().is_root();
    if !Path::new("/dev/fuse").exists() || !(is_root || find_program("fusermount3").is_some()) {
        skip::unsupported_machine("no FUSE on this machine, so nothing can be mounted");
        return None;
    }
    let dir = tempfile::Builder::new().prefix("corro-test-").tempdir().expect("a temporary directory");
    let mut share = Share { dir, server: None, address: "127.0.0.1:0".to_owned() };
    share.serve();
    share.corro("storage share create -n share").ok();
    Some(share)
}

impl Share {
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Path of a file of the share on the server's disk.
    pub fn on_disk(&self, name: &str) -> PathBuf {
        self.path("data/shares/one/share").join(name)
    }

    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corro"));
        command.args(line.split_whitespace()).current_dir(self.dir.path()).stdin(Stdio::null()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", self.dir.path());
        command
    }

    /// Starts the server; later starts reuse its address.
    fn serve(&mut self) {
        let mut command = self.command(&format!("files --data data --account one --listen {}", self.address));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let mut first = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut first).expect("a first line");
        let url = first.split_whitespace().find_map(|word| word.strip_prefix("http://"));
        self.address = url.unwrap_or_else(|| panic!("no URL in {first:?}")).trim_end_matches('/').to_owned();
        self.server = Some(child);
    }

    pub fn kill_server(&mut self) {
        let mut child = self.server.take().expect("it runs");
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
    }

    /// Sends a signal to the server. After SIGSTOP every thread has stopped: a busy machine lets them run on for a while.
    pub fn signal_server(&self, signal: Signal) {
        let server = self.server.as_ref().expect("it runs");
        kill_process(Pid::from_child(server), signal).expect("it runs");
        if signal == Signal::STOP {
            wait_until("the stop of all threads", || is_stopped(server.id()));
        }
    }

    pub fn connection(&self) -> String {
        fs::read_to_string(self.path("data/accounts/one.connection")).expect("it is kept").trim().to_owned()
    }

    pub fn corro(&self, line: &str) -> CommandOutput {
        let mut command = self.command(line);
        command.env("AZURE_STORAGE_CONNECTION_STRING", self.connection());
        CommandOutput::from(command.output().expect("it runs"))
    }

    /// Mounts the share at a new directory.
    pub fn mount(&self, name: &str, options: &str) -> PathBuf {
        let mount_point = self.path(name);
        fs::create_dir(&mount_point).expect("a directory");
        let ended = self.corro(&format!("mount share {name} --log-file {name}.log {options}")).ok();
        assert!(ended.stdout.contains("Mounted the share share of the account one at http://"), "{}", ended.stdout);
        assert!(ended.stderr.contains("corro unmount"), "{}", ended.stderr);
        mount_point
    }

    pub fn unmount(&self, name: &str) {
        assert!(self.corro(&format!("unmount {name}")).ok().stdout.starts_with("Unmounted "));
        assert!(!is_mounted(&self.path(name)));
    }

    pub fn log(&self, name: &str) -> String {
        fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        for mount_point in mounts().iter().filter(|path| path.starts_with(self.dir.path())) {
            let _ = Command::new("fusermount3").args(["-u", "-z"]).arg(mount_point).status();
            let _ = Command::new("umount").arg("-l").arg(mount_point).stderr(Stdio::null()).status();
        }
        if let Some(mut child) = self.server.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Mount points of `corro mount` on this machine.
fn mounts() -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("Linux has it");
    let ours = table.lines().filter(|line| line.contains("corro://"));
    ours.filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from).collect()
}

pub fn is_mounted(mount_point: &Path) -> bool {
    mounts().contains(&mount_point.to_owned())
}

#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < DEADLINE, "{what} did not happen within {DEADLINE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_stopped(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let mut stats = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    stats.all(|stat| stat.rsplit(") ").next().is_some_and(|fields| fields.starts_with('T')))
}

/// The process that serves the mount: the parent of its watchdog, whose command line has the mount point.
pub fn mount_process(mount_point: &Path) -> Pid {
    let arguments = format!("mount-watch\0{}\0", mount_point.display());
    let pids =
        fs::read_dir("/proc").expect("Linux has it").flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let watchdog = pids
        .into_iter()
        .find(|pid| fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(&arguments)));
    let status = fs::read_to_string(format!("/proc/{}/status", watchdog.expect("a watchdog"))).expect("its status");
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("a parent");
    Pid::from_raw(parent.trim().parse().expect("a number")).expect("a process")
}

/// Content that differs at every position and in every block.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * 31) ^ (at >> 8)) as u8).collect()
}

#[track_caller]
pub fn fails<T>(result: std::io::Result<T>, errno: Errno) {
    let error = result.err().expect("it must fail");
    assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()), "{error}");
}
