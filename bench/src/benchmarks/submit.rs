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
use crate::fixture::{ACCOUNT, CLUSTER, EXPERIMENT, IN_WORKSPACE, NODES, job_json, make_resources, ranks, request_of};
use crate::rank::Ear;
use crate::site::Site;
use crate::stats::{Samples, heading};

pub const PROMISE: &str = "all four ranks run 150 ms (p50) and 1 s (p99) after the job was submitted";
const LIMIT_P50_MS: f64 = 150.0;
const LIMIT_P99_MS: f64 = 1000.0;
/// Not counted: connections, caches and the login are set up.
const WARM_UP: usize = 3;

struct Measures {
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
    let bench = Bench { key: api.account_key()?, exe: std::env::current_exe()?, ear: Ear::open()?, site, api };
    let ms = |name: &str| Samples::new(name, "ms");
    let mut measures = Measures {
        floor: ms("floor: 4 plain fork+exec, all run"),
        shell_floor: ms("floor: 4 fork+exec of bash -c, all run"),
        answered: ms("request: answered"),
        first: ms("request: first rank runs"),
        all: ms("request: all four ranks run"),
        command: ms("job create: command ended"),
        command_all: ms("job create: all four ranks run"),
    };
    for sample in 0..WARM_UP + requests {
        bench.request(sample, (sample >= WARM_UP).then_some(&mut measures))?;
    }
    for sample in requests + WARM_UP..requests + WARM_UP + commands {
        bench.command(sample, &mut measures)?;
    }
    drop(bench);
    heading();
    let Measures { floor, shell_floor, answered, first, all, command, command_all } = &measures;
    [floor, shell_floor, answered, first, all, command, command_all].into_iter().for_each(Samples::row);
    let (p50, p99) = (all.p50(), all.p99());
    let figures = format!(
        "p50 {p50:.0} ms, p99 {p99:.0} ms (promised: {LIMIT_P50_MS:.0} and {LIMIT_P99_MS:.0} ms); {:.1} times the floor of {:.0} ms",
        p50 / shell_floor.p50(),
        shell_floor.p50()
    );
    Ok(Verdict { met: p50 <= LIMIT_P50_MS && p99 <= LIMIT_P99_MS, figures })
}

struct Bench {
    site: Site,
    api: Api,
    ear: Ear,
    exe: std::path::PathBuf,
    key: String,
}

impl Bench {
    fn request(&self, sample: usize, measures: Option<&mut Measures>) -> Result<()> {
        let floor = self.processes(sample, false)?;
        let shell_floor = self.processes(sample, true)?;
        let name = format!("job{sample}");
        let words = self.ear.command(&self.exe, &name);
        let job = request_of(job_json(ranks(&words)), &self.api, &self.key)?;
        let began = self.api.submit(&name, &job)?;
        let answered = Instant::now();
        let (first, all) = self.ear.wait(&name, NODES)?;
        self.rest(&name)?;
        if let Some(measures) = measures {
            measures.floor.add(floor);
            measures.shell_floor.add(shell_floor);
            measures.answered.add(ms(began, answered));
            measures.first.add(ms(began, first));
            measures.all.add(ms(began, all));
        }
        Ok(())
    }

    fn command(&self, sample: usize, measures: &mut Measures) -> Result<()> {
        let name = format!("job{sample}");
        let job = job_json(ranks(&self.ear.command(&self.exe, &name)));
        std::fs::write(self.site.path().join("job.json"), job.to_string())?;
        let line = format!(
            "batchai job create {IN_WORKSPACE} -e {EXPERIMENT} -c {CLUSTER} -n {name} -f job.json --storage-account-name {ACCOUNT}"
        );
        let began = Instant::now();
        self.site.corro(&line)?;
        let ended = Instant::now();
        let (_, all) = self.ear.wait(&name, NODES)?;
        measures.command.add(ms(began, ended));
        measures.command_all.add(ms(began, all));
        self.rest(&name)
    }

    /// The same four processes without Corro, directly or through the shell that runs command lines.
    fn processes(&self, sample: usize, shell: bool) -> Result<f64> {
        let name = format!("{}{sample}", if shell { "shell" } else { "plain" });
        let words = self.ear.command(&self.exe, &name);
        let began = Instant::now();
        let children: Vec<_> = (0..NODES).map(|_| start(&words, shell)).collect::<Result<_>>()?;
        let (_, all) = self.ear.wait(&name, NODES)?;
        for mut child in children {
            if !child.wait()?.success() {
                bail!("a plain rank failed");
            }
        }
        Ok(ms(began, all))
    }

    /// Waits until all nodes are idle for the next sample.
    fn rest(&self, name: &str) -> Result<()> {
        self.api.wait_for_success(name)?;
        self.api.wait_for_idle_nodes(NODES)
    }
}

fn start(words: &[String], shell: bool) -> Result<std::process::Child> {
    let mut command = match shell {
        true => {
            let mut bash = Command::new("bash");
            // The command as arguments, so that nothing needs quoting: bash replaces itself by the last command.
            bash.args(["-c", r#""$@""#, "bash"]).args(words);
            bash
        }
        false => {
            let mut plain = Command::new(Path::new(&words[0]));
            plain.args(&words[1..]);
            plain
        }
    };
    command.stdin(Stdio::null()).spawn().context("cannot start a plain rank")
}

fn ms(from: Instant, to: Instant) -> f64 {
    (to - from).as_secs_f64() * 1e3
}
