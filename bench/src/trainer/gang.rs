//! Ranks of one engine: started once, pinned to their processors, and driven one request line at a time. They end when the gang
//! is dropped and when the benchmark dies.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};
use tempfile::TempDir;

use super::cpu_placement::{self, CpuPlacement};
use super::turn::{Turn, TurnResult, is_response};
use crate::allreduce::gang::GangRendezvous;
use crate::allreduce::placement::Placement;
use crate::peers::last_lines;

/// Command of one rank.
#[derive(Clone, Debug)]
pub struct Program {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub variables: Vec<(&'static str, String)>,
    /// Whether a free port for each rank is appended to the arguments.
    pub ports: bool,
}

/// Running ranks of one engine.
pub struct Gang {
    ranks: Vec<Rank>,
    /// Standard error of the ranks.
    errors: TempDir,
    _rendezvous: GangRendezvous,
}

struct Rank {
    child: Child,
    requests: ChildStdin,
    responses: Receiver<String>,
}

impl Gang {
    pub fn start(program: &Program, placement: CpuPlacement) -> Result<Self> {
        Self::start_on(program, placement, &cpu_placement::allowed_cpus()?)
    }

    /// Like `start`, on these processors instead of all that this process may use.
    pub fn start_on(program: &Program, placement: CpuPlacement, processors: &[usize]) -> Result<Self> {
        let rendezvous = GangRendezvous::start(Placement::OneHost(placement.ranks))?;
        let errors = tempfile::Builder::new().prefix("corro-bench-ranks-").tempdir()?;
        let ports = if program.ports { free_ports(placement.ranks)? } else { Vec::new() };
        let mut gang = Self { ranks: Vec::new(), errors, _rendezvous: rendezvous };
        for ((_, variables), share) in gang._rendezvous.ranks.iter().zip(placement.cpus_per_rank(processors)) {
            let mut command = Command::new(&program.program);
            command.args(&program.arguments).args(&ports).envs(variables);
            command.envs(program.variables.iter().map(|(name, value)| (name, value)));
            command.stderr(File::create(gang.errors.path().join(gang.ranks.len().to_string()))?);
            gang.ranks.push(Rank::start(&mut command, &share)?);
        }
        Ok(gang)
    }

    /// Images per second of all ranks together. Each rank reports its own time; ranks that train together report equal times.
    pub fn run_turn(&mut self, turn: &Turn, limit: Duration) -> Result<TurnResult> {
        let mut total = TurnResult::Rate(0.0);
        for response in self.request(&turn.to_line(), limit)? {
            total = match (total, turn.parse_response(&response)?) {
                (TurnResult::Rate(total), TurnResult::Rate(rate)) => TurnResult::Rate(total + rate),
                (TurnResult::Unsupported(reason), _) | (_, TurnResult::Unsupported(reason)) => {
                    TurnResult::Unsupported(reason)
                }
            };
        }
        Ok(total)
    }

    /// The responses of all ranks to one line, in rank order. After an error the gang is unusable.
    pub fn request(&mut self, line: &str, limit: Duration) -> Result<Vec<String>> {
        for (index, rank) in self.ranks.iter_mut().enumerate() {
            if rank.requests.write_all(line.as_bytes()).is_err() {
                return Err(self.exit_error(index));
            }
        }
        let deadline = Instant::now() + limit;
        let mut responses = Vec::new();
        for (index, rank) in self.ranks.iter().enumerate() {
            match rank.responses.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(response) => responses.push(response),
                Err(RecvTimeoutError::Timeout) => {
                    bail!("rank {index} has not responded to '{}' within {} s", line.trim(), limit.as_secs())
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.exit_error(index)),
            }
        }
        Ok(responses)
    }

    fn exit_error(&self, index: usize) -> anyhow::Error {
        let stderr = fs::read_to_string(self.errors.path().join(index.to_string())).unwrap_or_default();
        anyhow!("rank {index} has exited: {}", last_lines(&stderr))
    }
}

impl Rank {
    fn start(command: &mut Command, share: &[usize]) -> Result<Self> {
        let mut cores = CpuSet::new();
        share.iter().for_each(|core| cores.set(*core));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // SAFETY: runs between fork and exec and makes two async-signal-safe system calls.
        unsafe {
            command.pre_exec(move || {
                sched_setaffinity(None, &cores)?;
                Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
            });
        }
        let mut child = command.spawn().with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let requests = child.stdin.take().context("the rank has no standard input")?;
        let responses = read_responses(child.stdout.take().context("the rank has no standard output")?);
        Ok(Self { child, requests, responses })
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        // A rank that has exited already is only reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads responses on a thread that ends with the rank. Other output is ignored.
fn read_responses(output: ChildStdout) -> Receiver<String> {
    let (sender, responses) = channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        lines.filter(|line| is_response(line)).try_for_each(|line| sender.send(line))
    });
    responses
}

fn free_ports(count: usize) -> Result<Vec<String>> {
    let listeners: Vec<_> = (0..count).map(|_| std::net::TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port().to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trainer::turn::{Case, Exchange, Precision};

    fn shell(script: &str) -> Program {
        let arguments = vec!["-c".to_owned(), script.to_owned()];
        Program { program: "/bin/sh".into(), arguments, variables: Vec::new(), ports: false }
    }

    fn turn() -> Turn {
        Turn { exchange: Exchange::Disabled, case: Case { precision: Precision::F32, batch: 32 }, steps: 10 }
    }

    #[test]
    fn ranks_respond_to_every_turn_and_their_rates_add_up() {
        let script = "echo hello; while read exchange precision batch steps; do echo took $((RANK + 1)).0; done";
        let mut gang = Gang::start(&shell(script), CpuPlacement { ranks: 2, cores: 2 }).expect("a shell starts");
        for _ in 0..2 {
            let rate = gang.run_turn(&turn(), Duration::from_secs(30)).expect("both respond");
            assert_eq!(rate, TurnResult::Rate(320.0 + 160.0));
        }
    }

    #[test]
    fn a_rank_that_reports_an_unsupported_turn_continues() {
        let script = "read turn; [ $RANK = 1 ] && echo cannot do it || echo took 1; read turn; echo took 1";
        let mut gang = Gang::start(&shell(script), CpuPlacement { ranks: 2, cores: 2 }).expect("a shell starts");
        let mut run_turn = || gang.run_turn(&turn(), Duration::from_secs(30)).expect("both respond");
        assert_eq!([run_turn(), run_turn()], [TurnResult::Unsupported("do it".to_owned()), TurnResult::Rate(640.0)]);
    }

    #[test]
    fn the_error_of_a_dead_rank_ends_with_its_stderr() {
        let script = "read turn; echo no such network >&2";
        let mut gang = Gang::start(&shell(script), CpuPlacement { ranks: 1, cores: 1 }).expect("a shell starts");
        let error = gang.run_turn(&turn(), Duration::from_secs(30)).expect_err("it has exited");
        assert_eq!(error.to_string(), "rank 0 has exited: no such network");
    }
}
