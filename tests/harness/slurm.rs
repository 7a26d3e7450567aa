//! A real Slurm of four nodes on this machine, for one test: controller and node daemons from Debian's packages, with their own
//! key, ports and directories. Needs root; ends with the test, including its jobs.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use corro_test_support::skip;
use rustix::process::{Signal, set_parent_process_death_signal};

use super::host::find_program;
use super::slurm_files::{self, NODES};
use super::{Site, signal, wait_for};

/// Resources of a `Standard_NC6`, whatever this machine has.
const NODE: &str = "CPUs=6 RealMemory=60000 Gres=gpu:1";
const SETTINGS: &str = "ProctrackType=proctrack/linuxproc
JobAcctGatherType=jobacct_gather/linux
SelectTypeParameters=CR_Core_Memory
KillWait=5
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=CANCEL";

pub struct Slurm {
    dir: tempfile::TempDir,
    /// Stopped in reverse order of their start.
    daemons: Vec<Child>,
}

/// One job as Slurm reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmJob {
    pub id: u64,
    pub state: String,
    pub name: String,
}

impl Slurm {
    /// `None`, with a notice, if Slurm cannot run here.
    pub fn start() -> Option<Slurm> {
        let missing = ["slurmctld", "slurmd", "sbatch", "munged"].into_iter().find(|name| find_program(name).is_none());
        if missing.is_some() || !rustix::process::geteuid().is_root() {
            skip::missing_component("a Slurm of one's own needs root and slurmctld, slurmd, slurm-client and munge");
            return None;
        }
        let dir = tempfile::Builder::new().prefix("corro-slurm-").tempdir().expect("a temporary directory");
        // The daemons refuse directories that others can write to.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        let mut slurm = Slurm { dir, daemons: Vec::new() };
        slurm.write_files();
        slurm.start_daemons();
        Some(slurm)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write_files(&self) {
        slurm_files::write(self.dir.path(), NODE, SETTINGS).expect("Slurm's files");
        // Jobs in the partition `urgent` preempt others.
        let urgent = format!("PartitionName=urgent Nodes=n[1-{NODES}] MaxTime=INFINITE State=UP PriorityTier=2\n");
        let file = fs::File::options().append(true).open(self.path("slurm.conf"));
        file.and_then(|mut file| file.write_all(urgent.as_bytes())).expect("the configuration");
        let mut gres = "AutoDetect=off\n".to_owned();
        for node in 1..=NODES {
            let device = self.path(&format!("gpu{node}"));
            let made = Command::new("mknod").arg(&device).args(["c", "1", "3"]).status().expect("mknod runs");
            assert!(made.success(), "mknod {}: {made}", device.display());
            gres += &format!("NodeName=n{node} Name=gpu File={}\n", device.display());
        }
        fs::write(self.path("gres.conf"), gres).expect("a file");
    }

    fn start_daemons(&mut self) {
        let socket = self.path("run/munge.sock");
        self.daemon("munged", &slurm_files::munged(self.dir.path()));
        wait_for("the key service", || socket.exists());
        self.daemon("slurmctld", &["-D".to_owned(), "-i".to_owned()]);
        for node in 1..=NODES {
            self.daemon("slurmd", &["-D".to_owned(), "-N".to_owned(), format!("n{node}")]);
        }
        wait_for("Slurm's nodes", || {
            let states = self.output("sinfo", "-h -N -p main -o %T");
            states.lines().filter(|state| *state == "idle").count() == NODES
        });
    }

    fn daemon(&mut self, program: &str, words: &[String]) {
        let mut command = self.command(program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: runs between fork and exec and makes one async-signal-safe system call.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
        }
        self.daemons.push(command.spawn().expect("the daemon starts"));
    }

    /// One of Slurm's programs, configured for this Slurm.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.path("slurm.conf"));
        command
    }

    /// Output of one of Slurm's programs; empty when it fails.
    pub fn output(&self, program: &str, line: &str) -> String {
        let output = self.command(program).args(line.split_whitespace()).output().expect("Slurm's programs run");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Like `output`, for a program that must succeed.
    #[track_caller]
    pub fn checked_output(&self, program: &str, line: &str) -> String {
        let output = self.command(program).args(line.split_whitespace()).output().expect("Slurm's programs run");
        assert!(output.status.success(), "{program} {line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Pending and running jobs, by number.
    pub fn jobs(&self) -> Vec<SlurmJob> {
        let text = self.checked_output("squeue", "-h --sort=i -o %A|%T|%j");
        let job = |line: &str| {
            let mut fields = line.splitn(3, '|').map(str::to_owned);
            let mut field = || fields.next().expect("three fields");
            SlurmJob { id: field().parse().expect("a number"), state: field(), name: field() }
        };
        text.lines().map(job).collect()
    }

    /// The only active job of this node.
    #[track_caller]
    pub fn job_of(&self, node: &str) -> SlurmJob {
        let jobs = self.jobs();
        let mut of_node = jobs.iter().filter(|job| job.name.ends_with(node));
        let job = of_node.next().unwrap_or_else(|| panic!("no job of {node} in {jobs:?}"));
        assert_eq!(of_node.next(), None, "{node} has more than one in {jobs:?}");
        job.clone()
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        // Remaining jobs are cancelled first: nothing else would end them.
        self.output("scancel", "--user=root");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !self.output("squeue", "-h -o %A").trim().is_empty() && std::time::Instant::now() < deadline {
            std::thread::park_timeout(std::time::Duration::from_millis(50));
        }
        while let Some(mut daemon) = self.daemons.pop() {
            signal(daemon.id(), Signal::TERM);
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
            while matches!(daemon.try_wait(), Ok(None)) && std::time::Instant::now() < deadline {
                std::thread::park_timeout(std::time::Duration::from_millis(10));
            }
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- slurmctld ---\n{}", fs::read_to_string(self.path("log/slurmctld.log")).unwrap_or_default());
        }
    }
}

impl Site {
    /// Starts `corro server --provider slurm` for this Slurm.
    pub fn start_server_on_slurm(&mut self, slurm: &Slurm, listen: &str) {
        let mut command = self.server_command("server", listen, "info");
        command.args(["--provider", "slurm", "--slurm-partition", "main", "--slurm-node-dir"]).arg(self.path());
        command.arg("--slurm-logs").arg(self.path()).env("SLURM_CONF", slurm.path("slurm.conf"));
        self.start_server_with(command);
    }

    /// Directories of agents, by node.
    pub fn slurm_nodes(&self) -> Vec<PathBuf> {
        let own = fs::read_dir(self.path()).expect("the test's directory").flatten();
        let own =
            own.filter(|entry| entry.file_name().to_string_lossy().starts_with("corro-") && entry.path().is_dir());
        own.flat_map(|entry| fs::read_dir(entry.path()).expect("a directory").flatten()).map(|e| e.path()).collect()
    }

    /// Logs of the agents in the allocations.
    pub fn slurm_logs(&self) -> String {
        let logs = fs::read_dir(self.path()).expect("the test's directory").flatten().map(|entry| entry.path());
        let logs = logs.filter(|path| path.extension().is_some_and(|end| end == "log"));
        logs.map(|path| format!("{}:\n{}\n", path.display(), fs::read_to_string(&path).unwrap_or_default())).collect()
    }
}
