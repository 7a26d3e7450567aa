//! Slurm from Debian's packages: a controller and four node daemons on this machine, with their own key, ports and directories.
//! Tuned for many short jobs according to its documentation and its log: see `SETTINGS`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::{Daemon, count_files, find, install, output_of};
use crate::site::wait_for;
use crate::slurm_files::{self, NODES};

/// One processor, so that a node runs one job at a time as Corro's do.
const NODE_PARAMETERS: &str = "CPUs=1 RealMemory=1000";
/// Settings for speed: no accounting, no backfill scheduler, no pause between two scheduling passes, the cheapest process
/// tracking. The epilog is there for its side effect: without one, a loop that runs once a second notices a finished node; with
/// one, the node reports itself, and the queue is scheduled immediately (ten times the jobs per second).
const SETTINGS: &str = "SlurmctldDebug=error
SlurmdDebug=error
ProctrackType=proctrack/pgid
JobAcctGatherType=jobacct_gather/none
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,default_queue_depth=10000,partition_job_depth=10000
Epilog=/bin/true
MaxJobCount=100000
MaxArraySize=100001";
/// Concurrent submit commands.
const CLIENTS: usize = 4;
/// Poll interval, long enough to leave the processor to Slurm.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Timeout for the jobs of one round. Reaching it is a failed peer, not a measurement.
const JOBS_TIMEOUT: Duration = Duration::from_secs(300);

pub struct Slurm {
    directory: PathBuf,
    pub version: String,
    /// Stopped in reverse order of their start.
    daemons: Vec<Daemon>,
}

impl Slurm {
    /// Installs missing packages, starts everything and waits until all nodes are idle.
    pub fn start(directory: &Path) -> Result<Self> {
        ensure!(rustix::process::geteuid().is_root(), "Slurm's daemons need root here");
        install_missing()?;
        let directory = directory.join("slurm");
        fs::create_dir_all(directory.join("out"))?;
        slurm_files::write(&directory, NODE_PARAMETERS, SETTINGS)?;
        fs::write(directory.join("job.sh"), "#!/bin/bash\necho done\n")?;
        let version = output_of(Command::new("slurmctld").arg("-V"))?.trim().to_owned();
        let mut slurm = Self { directory, version, daemons: Vec::new() };
        slurm.start_daemons()?;
        Ok(slurm)
    }

    fn start_daemons(&mut self) -> Result<()> {
        let mut munged = Command::new("munged");
        munged.args(slurm_files::munged(&self.directory)).arg("--num-threads=4");
        let socket = self.directory.join("run/munge.sock");
        self.daemons.push(Daemon::start(&mut munged)?);
        wait_for("the key service", POLL_INTERVAL, || Ok(socket.exists().then_some(())))?;
        let controller = Daemon::start(&mut self.command("slurmctld", &["-D", "-i"]))?;
        self.daemons.push(controller);
        for node in 1..=NODES {
            let daemon = Daemon::start(&mut self.command("slurmd", &["-D", "-N", &format!("n{node}")]))?;
            self.daemons.push(daemon);
        }
        wait_for("Slurm's nodes", Duration::from_millis(200), || {
            let states = output_of(&mut self.command("sinfo", &["-h", "-N", "-o", "%T"])).unwrap_or_default();
            Ok((states.lines().filter(|state| *state == "idle").count() == NODES).then_some(()))
        })
    }

    /// Jobs per second, each submitted by its own command, several commands at once.
    pub fn single(&self, jobs: usize) -> Result<f64> {
        let out = self.fresh_output()?;
        let began = Instant::now();
        std::thread::scope(|scope| {
            let submit = |client: usize| {
                let out = &out;
                move || (client..jobs).step_by(CLIENTS).try_for_each(|job| self.submit(&out.join(job.to_string()), &[]))
            };
            let clients: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(submit(client))).collect();
            clients.into_iter().try_for_each(|client| client.join().expect("submitting does not panic"))
        })?;
        self.wait(&out, jobs)?;
        Ok(jobs as f64 / began.elapsed().as_secs_f64())
    }

    /// Jobs per second, all submitted as one array.
    pub fn array(&self, jobs: usize) -> Result<f64> {
        let out = self.fresh_output()?;
        let began = Instant::now();
        self.submit(&out.join("%a"), &[&format!("--array=1-{jobs}")])?;
        self.wait(&out, jobs)?;
        Ok(jobs as f64 / began.elapsed().as_secs_f64())
    }

    /// The configuration file of this Slurm.
    pub fn configuration_file(&self) -> PathBuf {
        self.directory.join("slurm.conf")
    }

    /// Submits a script that takes one node.
    pub fn submit_script(&self, script: &Path) -> Result<()> {
        let mut command = self.command("sbatch", &["-Q", "-n1", "-o", "/dev/null"]);
        output_of(command.arg(script).current_dir(&self.directory)).map(|_| ())
    }

    pub fn cancel_all(&self) -> Result<()> {
        output_of(&mut self.command("scancel", &["--user=root"])).map(|_| ())
    }

    /// Waits until no job is pending, running or completing, and every node is idle.
    pub fn wait_until_free(&self) -> Result<()> {
        wait_for("Slurm to be free", POLL_INTERVAL, || {
            let jobs = output_of(&mut self.command("squeue", &["-h", "-o", "%i"]))?;
            let states = output_of(&mut self.command("sinfo", &["-h", "-N", "-o", "%T"]))?;
            let free = states.lines().filter(|state| *state == "idle").count() == NODES;
            Ok((free && jobs.is_empty()).then_some(()))
        })
    }

    fn submit(&self, log: &Path, options: &[&str]) -> Result<()> {
        let mut command = self.command("sbatch", &["-Q", "-n1", "-o"]);
        command.arg(log).args(options).arg(self.directory.join("job.sh"));
        output_of(command.current_dir(&self.directory)).map(|_| ())
    }

    /// Polls the logs first, which costs Slurm nothing, and queries it only when all are there.
    fn wait(&self, out: &Path, jobs: usize) -> Result<()> {
        let deadline = Instant::now() + JOBS_TIMEOUT;
        while count_files(out)? < jobs || !output_of(&mut self.command("squeue", &["-h", "-o", "%i"]))?.is_empty() {
            if Instant::now() > deadline {
                bail!("Slurm did not end {jobs} jobs within {} s", JOBS_TIMEOUT.as_secs());
            }
            std::thread::park_timeout(POLL_INTERVAL);
        }
        let is_complete =
            |file: std::io::Result<fs::DirEntry>| Ok::<_, std::io::Error>(fs::read(file?.path())? == b"done\n");
        let logs: Vec<bool> = fs::read_dir(out)?.map(is_complete).collect::<Result<_, _>>()?;
        ensure!(logs.iter().all(|complete| *complete), "some of Slurm's logs are incomplete");
        Ok(())
    }

    fn fresh_output(&self) -> Result<PathBuf> {
        Ok(tempfile::Builder::new().prefix("round-").tempdir_in(self.directory.join("out"))?.keep())
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).env("SLURM_CONF", self.configuration_file());
        command
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        // Jobs of a failed benchmark would otherwise run on.
        let _ = self.cancel_all();
        while let Some(daemon) = self.daemons.pop() {
            drop(daemon);
        }
    }
}

fn install_missing() -> Result<()> {
    if ["slurmctld", "slurmd", "sbatch", "munged"].iter().any(|name| find(name).is_none()) {
        install("slurmctld slurmd slurm-client munge")?;
    }
    Ok(())
}
