//! Real container engines, started for a test and ended by process id: Docker's daemon and Podman's service, each with its own
//! directories, and images made from this machine's programs. `None`, with a notice, where they are not installed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use corro_test_support::skip;
use rustix::process::Signal;

use crate::harness::host::find_program;
use crate::harness::{Site, is_alive, signal, wait_for};

/// Image with a shell, the usual small programs, and a variable of its own.
pub const IMAGE: &str = "corro-test:1";
/// The same without a `PATH`.
pub const WITHOUT_PATH: &str = "corro-test-without-path:1";
/// Image without any executable.
pub const EMPTY: &str = "corro-empty:1";

pub struct Engine {
    pub kind: &'static str,
    dir: tempfile::TempDir,
    daemon: Child,
}

impl Engine {
    pub fn docker() -> Option<Engine> {
        let dir = place("dockerd")?;
        let at = |name: &str| dir.path().join(name);
        let mut command = Command::new(find_program("dockerd")?);
        command.arg("--data-root").arg(at("data")).arg("--exec-root").arg(at("exec")).arg("--pidfile").arg(at("pid"));
        // Only host networks are used, so the machine's own network is untouched.
        command.args(["--iptables=false", "--bridge=none", "-H"]).arg(format!("unix://{}", at("sock").display()));
        Engine { kind: "Docker", daemon: start(command, &dir), dir }.once_up()
    }

    pub fn podman() -> Option<Engine> {
        find_program("runc").or_else(|| missing("runc"))?;
        let dir = place("podman")?;
        let settings = "[containers]\ndefault_ulimits = [\"nofile=4096:4096\", \"nproc=4096:4096\"]\n\
                        [engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n";
        fs::write(dir.path().join("containers.conf"), settings).expect("its settings");
        let mut command = podman(dir.path());
        command.args(["system", "service", "--time", "0"]).arg(format!("unix://{}", dir.path().join("sock").display()));
        Engine { kind: "Podman", daemon: start(command, &dir), dir }.once_up()
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("sock")
    }

    /// A server whose nodes use this engine.
    pub fn site(&self, up_args: &[&str]) -> Site {
        let mut site = Site::unstarted(up_args);
        symlink(self.socket(), site.path().join("engine.sock")).expect("a link");
        site.up();
        site
    }

    /// Runs the engine's own command; `docker ps -a`.
    pub fn run(&self, words: &[&str]) -> Output {
        let mut command = match self.kind {
            "Docker" => {
                let mut docker = Command::new("docker");
                docker.arg("-H").arg(format!("unix://{}", self.socket().display()));
                docker
            }
            _ => podman(self.dir.path()),
        };
        command.args(words).output().expect("the engine's command runs")
    }

    pub fn checked_output(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Ids of all containers, running or not.
    pub fn containers(&self) -> Vec<String> {
        self.checked_output(&["ps", "-a", "-q", "--no-trunc"]).lines().map(str::to_owned).collect()
    }

    #[track_caller]
    pub fn wait_until_empty(&self) {
        wait_for("no container", || self.containers().is_empty());
    }

    /// Waits until it is up and loads the images. `None` where this machine does not let its root run one.
    fn once_up(self) -> Option<Engine> {
        let up = || self.socket().exists() && self.run(&["version"]).status.success();
        wait_for(&format!("{} to answer", self.kind), || up() || !is_alive(self.daemon.id()));
        if is_alive(self.daemon.id()) {
            self.make_images();
            return Some(self);
        }
        let log = self.log().to_lowercase();
        let forbidden = ["not permitted", "permission denied"].iter().any(|words| log.contains(words));
        assert!(forbidden, "{} ended: {}", self.kind, self.log());
        unsupported("right to run a container engine")
    }

    fn make_images(&self) {
        let root = self.dir.path().join("root");
        fill(&root);
        let tar = self.pack("image.tar", &root);
        self.checked_output(&[
            "import",
            "--change",
            "ENV IN_IMAGE=yes",
            "--change",
            "ENV PATH=/usr/bin:/bin",
            &tar,
            IMAGE,
        ]);
        self.checked_output(&["import", "--change", "ENV IN_IMAGE=yes", &tar, WITHOUT_PATH]);
        let empty = self.dir.path().join("empty");
        fs::create_dir(&empty).and_then(|()| fs::write(empty.join("nothing"), "")).expect("almost nothing");
        let tar = self.pack("empty.tar", &empty);
        self.checked_output(&["import", &tar, EMPTY]);
    }

    fn pack(&self, name: &str, root: &Path) -> String {
        let tar = self.dir.path().join(name);
        let packed = Command::new("tar").arg("-C").arg(root).arg("-cf").arg(&tar).arg(".").status();
        assert!(packed.is_ok_and(|status| status.success()), "tar");
        tar.display().to_string()
    }

    /// The image's files, as one archive.
    pub fn archive(&self) -> PathBuf {
        self.dir.path().join("image.tar")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let lines: Vec<String> = self.log().lines().rev().take(40).map(str::to_owned).collect();
            eprintln!("--- the end of the log of {} ---", self.kind);
            lines.iter().rev().for_each(|line| eprintln!("{line}"));
        } else if is_alive(self.daemon.id()) {
            for id in self.containers() {
                self.run(&["rm", "-f", &id]);
            }
        }
        signal(self.daemon.id(), Signal::TERM);
        wait_for("the engine's end", || self.daemon.try_wait().is_ok_and(|ended| ended.is_some()));
        // Podman's monitors of ended processes stay for minutes, and Docker leaves a mount.
        let mine = self.dir.path().display().to_string();
        for pid in processes_naming(&mine) {
            signal(pid, Signal::KILL);
            wait_for("a watcher's end", || !is_alive(pid));
        }
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        for mount in mounts.lines().rev().filter_map(|line| line.split(' ').nth(1)).filter(|at| at.starts_with(&mine)) {
            let _ = Command::new("umount").arg(mount).status();
        }
    }
}

/// Processes whose command line contains this text, except this process.
fn processes_naming(text: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let names = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(text)
    };
    pids.filter(|pid| *pid != std::process::id()).filter(names).collect()
}

fn podman(dir: &Path) -> Command {
    let mut podman = Command::new("podman");
    podman.env("CONTAINERS_CONF", dir.join("containers.conf"));
    podman.arg("--root").arg(dir.join("pm")).arg("--runroot").arg(dir.join("pmrun"));
    podman
}

/// A directory for an engine, if this user may run one.
fn place(program: &str) -> Option<tempfile::TempDir> {
    find_program(program).or_else(|| missing(program))?;
    if !rustix::process::geteuid().is_root() {
        return unsupported("root");
    }
    Some(tempfile::Builder::new().prefix("corro-engine-").tempdir().expect("a temporary directory"))
}

fn unsupported<T>(what: &str) -> Option<T> {
    skip::unsupported_machine(format_args!("no {what} on this machine, so containers are not tried"));
    None
}

fn missing<T>(what: &str) -> Option<T> {
    skip::missing_component(format_args!("no {what} on this machine, so containers are not tried"));
    None
}

fn start(mut command: Command, dir: &tempfile::TempDir) -> Child {
    let log = fs::File::create(dir.path().join("log")).expect("a log file");
    // Some engines write files into their working directory.
    command.current_dir(dir.path());
    command.stdin(Stdio::null()).stdout(log.try_clone().expect("its copy")).stderr(log);
    command.spawn().expect("the engine starts")
}

/// A root file system of this machine's own programs and the libraries they need.
fn fill(root: &Path) {
    for directory in ["bin", "etc", "root", "tmp", "usr/bin", "proc", "dev", "sys"] {
        fs::create_dir_all(root.join(directory)).expect("a directory");
    }
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/bash\n").expect("users");
    // As in Ubuntu's images: non-interactive shells return early.
    fs::write(root.join("root/.bashrc"), "[ -z \"$PS1\" ] && return\n").expect("a start-up file");
    for name in ["bash", "cat", "df", "env", "head", "id", "ls", "sleep", "tail", "touch"] {
        let program = find_program(name).unwrap_or_else(|| panic!("{name} is on every machine"));
        copy(&program, root, &root.join("bin").join(name));
        let needs = Command::new("ldd").arg(&program).output().expect("ldd runs");
        for library in String::from_utf8_lossy(&needs.stdout).split_whitespace().filter(|word| word.starts_with('/')) {
            copy(Path::new(library), root, &root.join(library.trim_start_matches('/')));
        }
    }
    symlink("bash", root.join("bin/sh")).expect("a link");
}

fn copy(from: &Path, root: &Path, to: &Path) {
    if to.exists() {
        return;
    }
    fs::create_dir_all(to.parent().unwrap_or(root)).expect("a directory");
    fs::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).expect("its mode");
}
