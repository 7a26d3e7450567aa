//! Time from submitting a job of four nodes until all four ranks run, on idle nodes.
//!
//! The request is the one of `corro batchai job create`, over a keep-alive connection with an existing token; the whole
//! command, with its start, login and look-ups, is measured beside it. The floor is the time that the machine itself needs to
//! start four such processes.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::{Scale, Verdict};
use crate::api::Api;
use crate::fixture::{ACCOUNT, CLUSTER, EXPERIMENT, IN_WORKSPACE, NODES, job_json, job_request, make_resources, ranks};
use crate::rank::RankListener;
use crate::site::Site;
use crate::stats::{Samples, print_heading};

pub const PROMISE: &str = "all four ranks run 150 ms (p50) and 1 s (p99) after the job was submitted";
const LIMIT_P50_MS: f64 = 150.0;
const LIMIT_P99_MS: f64 = 1000.0;
/// Not counted: connections, caches and the login are set up.
const WARM_UP: usize = 3;

/// Times in milliseconds.
struct Measurements {
    floor: Samples,
    shell_floor: Samples,
    answered: Samples,
    first: Samples,
    all: Samples,
    command: Samples,
    command_all: Samples,
}

pub fn run(scale: Scale) -> Result<Verdict> {
    let (requests, commands) = scale.pick((50, 10), (300, 50));
    let mut site = Site::new()?;
    site.up()?;
    make_resources(&site, NODES)?;
    let api = Api::connect(&site)?;
    api.wait_for_idle_nodes(NODES)?;
    let benchmark = SubmitBenchmark {
        key: api.account_key()?,
        exe: std::env::current_exe()?,
        listener: RankListener::open()?,
        site,
        api,
    };
    let ms = |name: &str| Samples::new(name, "ms");
    let mut measurements = Measurements {
        floor: ms("floor: 4 plain fork+exec, all run"),
        shell_floor: ms("floor: 4 fork+exec of bash -c, all run"),
        answered: ms("request: answered"),
        first: ms("request: first rank runs"),
        all: ms("request: all four ranks run"),
        command: ms("job create: command ended"),
        command_all: ms("job create: all four ranks run"),
    };
    for sample in 0..WARM_UP + requests {
        benchmark.measure_request(sample, (sample >= WARM_UP).then_some(&mut measurements))?;
    }
    for sample in requests + WARM_UP..requests + WARM_UP + commands {
        benchmark.measure_command(sample, &mut measurements)?;
    }
    drop(benchmark);
    print_heading();
    let Measurements { floor, shell_floor, answered, first, all, command, command_all } = &measurements;
    [floor, shell_floor, answered, first, all, command, command_all].into_iter().for_each(Samples::print_row);
    let (p50, p99) = (all.p50(), all.p99());
    let figures = format!(
        "p50 {p50:.0} ms, p99 {p99:.0} ms (promised: {LIMIT_P50_MS:.0} and {LIMIT_P99_MS:.0} ms); {:.1} times the floor of {:.0} ms",
        p50 / shell_floor.p50(),
        shell_floor.p50()
    );
    Ok(Verdict { met: p50 <= LIMIT_P50_MS && p99 <= LIMIT_P99_MS, figures })
}

/// The site, a client and the listener of the ranks.
struct SubmitBenchmark {
    site: Site,
    api: Api,
    listener: RankListener,
    exe: std::path::PathBuf,
    key: String,
}

impl SubmitBenchmark {
    fn measure_request(&self, sample: usize, measurements: Option<&mut Measurements>) -> Result<()> {
        let floor = self.measure_processes(sample, false)?;
        let shell_floor = self.measure_processes(sample, true)?;
        let name = format!("job{sample}");
        let command = self.listener.command(&self.exe, &name);
        let job = job_request(job_json(ranks(&command)), &self.api, &self.key)?;
        let began = self.api.submit(&name, &job)?;
        let answered = Instant::now();
        let (first, all) = self.listener.wait(&name, NODES)?;
        self.wait_until_idle(&name)?;
        if let Some(measurements) = measurements {
            measurements.floor.add(floor);
            measurements.shell_floor.add(shell_floor);
            measurements.answered.add(ms(began, answered));
            measurements.first.add(ms(began, first));
            measurements.all.add(ms(began, all));
        }
        Ok(())
    }

    fn measure_command(&self, sample: usize, measurements: &mut Measurements) -> Result<()> {
        let name = format!("job{sample}");
        let job = job_json(ranks(&self.listener.command(&self.exe, &name)));
        std::fs::write(self.site.path().join("job.json"), job.to_string())?;
        let line = format!(
            "batchai job create {IN_WORKSPACE} -e {EXPERIMENT} -c {CLUSTER} -n {name} -f job.json --storage-account-name {ACCOUNT}"
        );
        let began = Instant::now();
        self.site.corro(&line)?;
        let ended = Instant::now();
        let (_, all) = self.listener.wait(&name, NODES)?;
        measurements.command.add(ms(began, ended));
        measurements.command_all.add(ms(began, all));
        self.wait_until_idle(&name)
    }

    /// The same four processes without Corro, directly or through the shell that runs command lines.
    fn measure_processes(&self, sample: usize, shell: bool) -> Result<f64> {
        let name = format!("{}{sample}", if shell { "shell" } else { "plain" });
        let command = self.listener.command(&self.exe, &name);
        let began = Instant::now();
        let children: Vec<_> = (0..NODES).map(|_| start(&command, shell)).collect::<Result<_>>()?;
        let (_, all) = self.listener.wait(&name, NODES)?;
        for mut child in children {
            if !child.wait()?.success() {
                bail!("a plain rank failed");
            }
        }
        Ok(ms(began, all))
    }

    /// Waits until all nodes are idle for the next sample.
    fn wait_until_idle(&self, name: &str) -> Result<()> {
        self.api.wait_for_success(name)?;
        self.api.wait_for_idle_nodes(NODES)
    }
}

fn start(command: &[String], shell: bool) -> Result<std::process::Child> {
    let mut command = match shell {
        true => {
            let mut bash = Command::new("bash");
            // The command as arguments, so that nothing needs quoting: bash replaces itself by the last command.
            bash.args(["-c", r#""$@""#, "bash"]).args(command);
            bash
        }
        false => {
            let mut plain = Command::new(Path::new(&command[0]));
            plain.args(&command[1..]);
            plain
        }
    };
    command.stdin(Stdio::null()).spawn().context("cannot start a plain rank")
}

fn ms(from: Instant, to: Instant) -> f64 {
    (to - from).as_secs_f64() * 1e3
}
