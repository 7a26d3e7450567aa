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

use super::place::{self, Place};
use super::turn::{Answer, Turn, is_answer};
use crate::allreduce::gang::Meeting;
use crate::allreduce::place::Place as Hosts;
use crate::peers::last_words;

/// Command of one rank.
#[derive(Clone, Debug)]
pub struct Program {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub variables: Vec<(&'static str, String)>,
    /// Whether it gets a free port for each rank, as further arguments.
    pub ports: bool,
}

pub struct Gang {
    ranks: Vec<Rank>,
    /// Standard error of the ranks.
    errors: TempDir,
    _meeting: Meeting,
}

struct Rank {
    child: Child,
    turns: ChildStdin,
    answers: Receiver<String>,
}

impl Gang {
    pub fn start(program: &Program, at: Place) -> Result<Self> {
        Self::start_on(program, at, &place::allowed()?)
    }

    /// Like `start`, on these processors instead of all that this process may use.
    pub fn start_on(program: &Program, at: Place, processors: &[usize]) -> Result<Self> {
        let meeting = Meeting::start(Hosts::Here(at.ranks))?;
        let errors = tempfile::Builder::new().prefix("corro-bench-ranks-").tempdir()?;
        let ports = if program.ports { free_ports(at.ranks)? } else { Vec::new() };
        let mut gang = Self { ranks: Vec::new(), errors, _meeting: meeting };
        for ((_, variables), share) in gang._meeting.ranks.iter().zip(at.shares(processors)) {
            let mut command = Command::new(&program.program);
            command.args(&program.arguments).args(&ports).envs(variables);
            command.envs(program.variables.iter().map(|(name, value)| (name, value)));
            command.stderr(File::create(gang.errors.path().join(gang.ranks.len().to_string()))?);
            gang.ranks.push(Rank::start(&mut command, &share)?);
        }
        Ok(gang)
    }

    /// Images per second of all ranks together. Each rank reports its own time; ranks that train together report equal times.
    pub fn take(&mut self, turn: &Turn, limit: Duration) -> Result<Answer> {
        let mut together = Answer::Rate(0.0);
        for answer in self.ask(&turn.line(), limit)? {
            together = match (together, turn.read(&answer)?) {
                (Answer::Rate(together), Answer::Rate(rate)) => Answer::Rate(together + rate),
                (Answer::Cannot(why), _) | (_, Answer::Cannot(why)) => Answer::Cannot(why),
            };
        }
        Ok(together)
    }

    /// The responses of all ranks to one line, in rank order. After an error the gang is unusable.
    pub fn ask(&mut self, line: &str, limit: Duration) -> Result<Vec<String>> {
        for (index, rank) in self.ranks.iter_mut().enumerate() {
            if rank.turns.write_all(line.as_bytes()).is_err() {
                return Err(self.gone(index));
            }
        }
        let deadline = Instant::now() + limit;
        let mut answers = Vec::new();
        for (index, rank) in self.ranks.iter().enumerate() {
            match rank.answers.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(answer) => answers.push(answer),
                Err(RecvTimeoutError::Timeout) => {
                    bail!("rank {index} has not answered '{}' within {} s", line.trim(), limit.as_secs())
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.gone(index)),
            }
        }
        Ok(answers)
    }

    fn gone(&self, index: usize) -> anyhow::Error {
        let said = fs::read_to_string(self.errors.path().join(index.to_string())).unwrap_or_default();
        anyhow!("rank {index} has ended: {}", last_words(&said))
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
        let turns = child.stdin.take().context("no way to a rank")?;
        let answers = listen(child.stdout.take().context("no way from a rank")?);
        Ok(Self { child, turns, answers })
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
fn listen(output: ChildStdout) -> Receiver<String> {
    let (say, heard) = channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        lines.filter(|line| is_answer(line)).try_for_each(|line| say.send(line))
    });
    heard
}

fn free_ports(count: usize) -> Result<Vec<String>> {
    let listeners: Vec<_> = (0..count).map(|_| std::net::TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port().to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trainer::turn::{Case, Precision, Way};

    fn shell(script: &str) -> Program {
        let arguments = vec!["-c".to_owned(), script.to_owned()];
        Program { program: "/bin/sh".into(), arguments, variables: Vec::new(), ports: false }
    }

    fn turn() -> Turn {
        Turn { way: Way::Alone, case: Case { precision: Precision::F32, batch: 32 }, steps: 10 }
    }

    #[test]
    fn ranks_answer_turn_after_turn_and_their_rates_add_up() {
        let script = "echo hello; while read way precision batch steps; do echo took $((RANK + 1)).0; done";
        let mut gang = Gang::start(&shell(script), Place { ranks: 2, cores: 2 }).expect("a shell starts");
        for _ in 0..2 {
            let rate = gang.take(&turn(), Duration::from_secs(30)).expect("both answer");
            assert_eq!(rate, Answer::Rate(320.0 + 160.0));
        }
    }

    #[test]
    fn a_rank_that_cannot_says_why_and_goes_on() {
        let script = "read turn; [ $RANK = 1 ] && echo cannot do it || echo took 1; read turn; echo took 1";
        let mut gang = Gang::start(&shell(script), Place { ranks: 2, cores: 2 }).expect("a shell starts");
        let mut take = || gang.take(&turn(), Duration::from_secs(30)).expect("both answer");
        assert_eq!([take(), take()], [Answer::Cannot("do it".to_owned()), Answer::Rate(640.0)]);
    }

    #[test]
    fn a_rank_that_dies_says_why() {
        let script = "read turn; echo no such network >&2";
        let mut gang = Gang::start(&shell(script), Place { ranks: 1, cores: 1 }).expect("a shell starts");
        let error = gang.take(&turn(), Duration::from_secs(30)).expect_err("it has ended");
        assert_eq!(error.to_string(), "rank 0 has ended: no such network");
    }
}
