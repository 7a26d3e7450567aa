//! A training under `corro run --min-np` whose processes record their places, and waits for its generations.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::harness::{CommandOutput, is_alive, signal, wait_for};

/// A running `corro run`.
pub struct Training {
    pub dir: tempfile::TempDir,
    launcher: Option<Child>,
}

/// A place that a process got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub generation: u64,
    pub rank: usize,
    pub size: usize,
    pub process: u64,
    pub pid: u32,
    pub host: String,
}

/// A directory with a discovery script that prints the file `hosts`.
pub fn directory(hosts: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    write_hosts(dir.path(), hosts);
    dir
}

fn write_hosts(dir: &Path, hosts: &str) {
    // Renamed, so that the script never reads half a list.
    std::fs::write(dir.join("hosts.new"), hosts).expect("written");
    std::fs::rename(dir.join("hosts.new"), dir.join("hosts")).expect("renamed");
}

pub fn command(dir: &Path, options: &[&str], program: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corro"));
    command.arg("run").args(options).args(program).current_dir(dir).stdin(Stdio::null());
    command
}

impl Training {
    /// Starts processes that speak the protocol and compute nothing.
    pub fn start(dir: tempfile::TempDir, options: &[&str]) -> Training {
        let worker = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/elastic/worker.py");
        Training::start_program(dir, options, &["python3", worker])
    }

    pub fn start_program(dir: tempfile::TempDir, options: &[&str], program: &[&str]) -> Training {
        let output = |name: &str| std::fs::File::create(dir.path().join(name)).expect("created");
        let mut command = command(dir.path(), options, program);
        command.stdout(output("stdout")).stderr(output("stderr"));
        let launcher = command.spawn().expect("it starts");
        Training { dir, launcher: Some(launcher) }
    }

    pub fn set_hosts(&self, hosts: &str) {
        write_hosts(self.dir.path(), hosts);
    }

    pub fn write(&self, file: &str, text: &str) {
        std::fs::write(self.dir.path().join(file), text).expect("written");
    }

    pub fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(file)).unwrap_or_default()
    }

    pub fn places(&self) -> Vec<Place> {
        let text = self.read("places");
        let place = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let [generation, rank, size, process, pid, host, _slot] = words[..] else { panic!("{line}") };
            let number = |word: &str| word.parse::<u64>().unwrap_or_else(|_| panic!("{line}"));
            Place {
                generation: number(generation),
                rank: number(rank) as usize,
                size: number(size) as usize,
                process: number(process),
                pid: number(pid) as u32,
                host: host.to_owned(),
            }
        };
        // The last line may be incomplete.
        text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(place).collect()
    }

    /// The members of the newest generation that has as many members as its size, in the order of their ranks.
    fn newest(&self) -> Vec<Place> {
        let places = self.places();
        let newest = places.iter().map(|place| place.generation).max().unwrap_or_default();
        let mut members: Vec<Place> = places.into_iter().filter(|place| place.generation == newest).collect();
        members.sort_by_key(|place| place.rank);
        members
    }

    /// Waits for a generation later than `after` with `size` members, all of which have their places.
    #[track_caller]
    pub fn wait_for_generation(&self, after: u64, size: usize) -> Vec<Place> {
        let mut members = Vec::new();
        let what = format!("a generation after {after} with {size} members");
        wait_for(&what, || {
            members = self.newest();
            let is_complete = members.len() == size && members.iter().all(|place| place.size == size);
            is_complete && members[0].generation > after
        });
        let ranks: Vec<usize> = members.iter().map(|place| place.rank).collect();
        assert_eq!(ranks, (0..size).collect::<Vec<_>>());
        members
    }

    /// Waits until standard error contains a text.
    #[track_caller]
    pub fn wait_for_stderr(&self, text: &str) {
        wait_for(&format!("{text} on stderr"), || self.read("stderr").contains(text));
    }

    pub fn signal(&self, sent: Signal) {
        signal(self.launcher.as_ref().expect("it runs").id(), sent);
    }

    /// Lets the processes complete the training, and waits.
    pub fn complete(self) -> CommandOutput {
        self.write("done", "");
        self.wait()
    }

    /// Waits for the launcher's end. No process may be left.
    pub fn wait(mut self) -> CommandOutput {
        let mut launcher = self.launcher.take().expect("it runs");
        let mut code = None;
        wait_for("the launcher to end", || {
            code = launcher.try_wait().expect("it can be waited for");
            code.is_some()
        });
        let pids: Vec<u32> = self.places().iter().map(|place| place.pid).collect();
        wait_for("the processes to end", || !pids.iter().any(|pid| is_alive(*pid)));
        let code = code.and_then(|status| status.code()).unwrap_or(-1);
        CommandOutput { code, stdout: self.read("stdout"), stderr: self.read("stderr") }
    }
}

impl Drop for Training {
    fn drop(&mut self) {
        if let Some(mut launcher) = self.launcher.take() {
            eprintln!("places:\n{}stderr:\n{}", self.read("places"), self.read("stderr"));
            let _ = launcher.kill();
            let _ = launcher.wait();
        }
    }
}

pub fn processes(members: &[Place]) -> Vec<u64> {
    members.iter().map(|place| place.process).collect()
}
