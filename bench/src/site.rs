//! A private Corro site in a temporary directory: the real `corro up`, real commands. Its processes end on drop; a server also
//! ends when the benchmark is killed.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use corro_client::Profile;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

/// Timeout of every wait. Reaching it is a failed benchmark, not a measurement.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// Timeout for the orderly shutdown of a server with its nodes.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// Data directory, configuration and server process of one installation.
pub struct Site {
    /// Not deleted when the variable `CORRO_BENCH_KEEP` is set, for debugging.
    dir: tempfile::TempDir,
    corro: PathBuf,
    server: Option<Child>,
    /// More environment variables for servers.
    variables: Vec<(&'static str, PathBuf)>,
}

impl Site {
    /// A site without a server.
    pub fn new() -> Result<Self> {
        let mut dir =
            tempfile::Builder::new().prefix("corro-bench-").tempdir().context("cannot create a temporary directory")?;
        dir.disable_cleanup(std::env::var_os("CORRO_BENCH_KEEP").is_some());
        std::fs::create_dir(dir.path().join("home"))?;
        Ok(Self { dir, corro: corro_binary()?, server: None, variables: Vec::new() })
    }

    /// Sets an environment variable for every server started from now on.
    pub fn set_variable(&mut self, name: &'static str, value: PathBuf) {
        self.variables.push((name, value));
    }

    /// Starts `corro up` and waits for its first line. Returns the start time.
    pub fn up(&mut self) -> Result<Instant> {
        self.start("up", &[])
    }

    /// Like `up`, with more options.
    pub fn up_with(&mut self, options: &[&str]) -> Result<Instant> {
        self.start("up", options)
    }

    /// Starts `corro server`, whose nodes join by themselves.
    pub fn serve(&mut self) -> Result<Instant> {
        self.start("server", &[])
    }

    /// Like `serve`, with more options.
    pub fn serve_with(&mut self, options: &[&str]) -> Result<Instant> {
        self.start("server", options)
    }

    /// Like `serve_with`, over TLS, for machines that reach this one at the address.
    pub fn serve_at(&mut self, listen: &str, options: &[&str]) -> Result<Instant> {
        self.start_at("server", listen, &[&["--tls"], options].concat())
    }

    fn start(&mut self, subcommand: &str, options: &[&str]) -> Result<Instant> {
        self.start_at(subcommand, "127.0.0.1:0", options)
    }

    fn start_at(&mut self, subcommand: &str, listen: &str, options: &[&str]) -> Result<Instant> {
        let log = File::options().append(true).create(true).open(self.path().join("server.log"))?;
        let mut command = self.command();
        command.args([subcommand, "--listen", listen, "--data"]).arg(self.data()).args(options);
        // Ranks use our own launcher, whatever this machine has.
        command.env("CORRO_MPIRUN", "none").envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdout(Stdio::piped()).stderr(log);
        // SAFETY: runs between fork and exec and makes one async-signal-safe system call.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::INT))?));
        }
        let began = Instant::now();
        let mut server = command.spawn().with_context(|| format!("cannot start corro {subcommand}"))?;
        let mut lines = BufReader::new(server.stdout.take().expect("it is piped"));
        self.server = Some(server);
        let mut first = String::new();
        lines.read_line(&mut first)?;
        if !first.contains("http://") && !first.contains("https://") {
            bail!("corro {subcommand} printed {first:?} instead of its URL; its log: {}", self.log());
        }
        // Drains later output, so that the server does not write to a closed pipe.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Ok(began)
    }

    /// Stops the server as Ctrl-C does, with its nodes.
    pub fn down(&mut self) -> Result<()> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        signal(server.id(), Signal::INT);
        let deadline = Instant::now() + STOP_TIMEOUT;
        while server.try_wait()?.is_none() {
            if Instant::now() > deadline {
                server.kill()?;
                server.wait()?;
                bail!("the server did not stop within {} s and was killed", STOP_TIMEOUT.as_secs());
            }
            std::thread::park_timeout(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        let mut server = self.server.take().context("no server runs")?;
        server.kill()?;
        server.wait()?;
        Ok(())
    }

    pub fn server_pid(&self) -> Result<u32> {
        Ok(self.server.as_ref().context("no server runs")?.id())
    }

    pub fn profile(&self) -> Result<Profile> {
        Ok(Profile::load(&self.path().join("config"))?)
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    /// Container engine socket of the site's nodes; unused unless a benchmark starts an engine.
    pub fn engine_socket(&self) -> PathBuf {
        self.path().join("engine.sock")
    }

    /// `corro` with the home of this site: the user's own configuration is neither read nor written.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.corro);
        command.current_dir(self.path()).env("HOME", self.path().join("home")).stdin(Stdio::null());
        command.env("CORRO_CONFIG_DIR", self.path().join("config")).env_remove("CORRO_SERVER");
        command.env("DOCKER_HOST", format!("unix://{}", self.engine_socket().display()));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("AZURE_")) {
            command.env_remove(name);
        }
        command
    }

    /// Runs a command line to its end; arguments are split at spaces.
    pub fn corro(&self, line: &str) -> Result<()> {
        let output = self.command().args(line.split_whitespace()).output()?;
        if !output.status.success() {
            bail!("'corro {line}' ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    /// Process ids of the living agents, by node.
    pub fn agents(&self) -> Vec<(String, u32)> {
        let nodes = std::fs::read_dir(self.data().join("nodes")).into_iter().flatten().flatten();
        let mut agents: Vec<_> = nodes
            .filter_map(|node| {
                let pid = std::fs::read_to_string(node.path().join("lock")).ok()?.trim().parse().ok()?;
                Some((node.file_name().into_string().ok()?, pid))
            })
            .filter(|(_, pid)| is_agent(*pid))
            .collect();
        agents.sort();
        agents
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("server.log")).unwrap_or_default()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Err(error) = self.down() {
            eprintln!("{error:#}");
        }
        // Only a server that did not shut down in order leaves agents.
        for (node, pid) in self.agents() {
            signal(pid, Signal::KILL);
            corro_launch::kill_tagged::kill_by_tag_prefix(&format!("{node}/"));
        }
    }
}

/// The release binary beside this one.
pub fn corro_binary() -> Result<PathBuf> {
    let corro = std::env::current_exe()?.with_file_name("corro");
    if !corro.is_file() {
        bail!("no corro beside this binary; build it with 'cargo build --profile dist -p corro-cli'");
    }
    Ok(corro)
}

/// Calls `poll` every `interval` until it returns a value; fails after [`DEADLINE`].
pub fn wait_for<T>(what: &str, interval: Duration, mut poll: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(value) = poll()? {
            return Ok(value);
        }
        if Instant::now() > deadline {
            bail!("waited {} s for {what}", DEADLINE.as_secs());
        }
        std::thread::park_timeout(interval);
    }
}

/// Whether the process is an agent: its id may have been reused since it was recorded.
fn is_agent(pid: u32) -> bool {
    let command_line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    command_line.split(|byte| *byte == 0).nth(1).is_some_and(|word| word == b"agent")
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have exited already.
        let _ = kill_process(pid, signal);
    }
}
