//! A launcher with its ranks, which report events. Dropping it ends them.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::events::{Event, EventLog, Kind, now_ns};
use crate::site::wait_for;

const POLL_INTERVAL: Duration = Duration::from_millis(5);

pub struct Gang {
    launcher: Child,
    pub log: EventLog,
    n_ranks: usize,
}

/// Times of one death, in milliseconds.
#[derive(Debug)]
pub struct Recovery {
    /// From the death to the first step of the last of those that go on.
    pub first_step: f64,
    /// From a new process that has imported everything to its first step. `None` where all processes are new.
    pub join: Option<f64>,
}

impl Gang {
    /// `command`: a launcher that starts `n_ranks` ranks, which report to `log`.
    pub fn start(mut command: Command, log: EventLog, n_ranks: usize) -> Result<Gang> {
        let errors = std::fs::File::create(log.0.with_extension("stderr"))?;
        let launcher = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).spawn();
        let launcher = launcher.with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))?;
        Ok(Gang { launcher, log, n_ranks })
    }

    /// Waits until all ranks have made a step in the same generation after `after`; returns their steps by rank.
    pub fn wait_for_all(&mut self, after: Option<u64>) -> Result<Vec<Event>> {
        let n_ranks = self.n_ranks;
        self.wait(&format!("{n_ranks} ranks to make a step"), |events| {
            let newest = events.iter().map(|event| event.generation).max().unwrap_or_default();
            let is_step = |event: &&Event| event.kind == Kind::Step && event.generation == newest;
            let mut steps: Vec<Event> = events.iter().filter(is_step).cloned().collect();
            steps.sort_by_key(|event| event.rank);
            let is_later = after.is_none_or(|after| newest > after);
            let is_whole = steps.len() == n_ranks && steps.iter().all(|event| event.size == n_ranks);
            (is_later && is_whole).then_some(steps)
        })
    }

    /// Kills a rank and measures how the training goes on. Returns when all ranks are back.
    pub fn kill_rank(&mut self, rank: usize, members: &[Event]) -> Result<(Recovery, Vec<Event>)> {
        let victim = members[rank].pid;
        let pid = Pid::from_raw(victim as i32).context("a process id")?;
        let died = now_ns();
        kill_process(pid, Signal::KILL)?;
        let whole = self.wait_for_all(Some(members[0].generation))?;
        let events = self.log.read()?;
        let first_step_of = |pid: u32| {
            let is_first = |event: &&Event| event.kind == Kind::Step && event.pid == pid && event.ns > died;
            events.iter().filter(is_first).map(|event| event.ns).min()
        };
        let survivors: Vec<u32> = members.iter().map(|event| event.pid).filter(|pid| *pid != victim).collect();
        let has_survivors = whole.iter().any(|event| survivors.contains(&event.pid));
        let goers: Vec<u32> = if has_survivors { survivors } else { whole.iter().map(|event| event.pid).collect() };
        let steps: Option<Vec<u64>> = goers.iter().map(|pid| first_step_of(*pid)).collect();
        let last = steps.context("a survivor without a step")?.into_iter().max().context("no survivor")?;
        let new = whole.iter().find(|event| !goers.contains(&event.pid));
        let join = new.and_then(|new| {
            let is_ready = |event: &&Event| event.kind == Kind::Ready && event.pid == new.pid;
            let ready = events.iter().find(is_ready)?.ns;
            Some(milliseconds(ready, first_step_of(new.pid)?))
        });
        Ok((Recovery { first_step: milliseconds(died, last), join }, whole))
    }

    /// Waits for `count` paces and returns the median time of a step in µs.
    pub fn pace(&mut self, count: usize) -> Result<f64> {
        let mut paces = self.wait(&format!("{count} measured paces"), |events| {
            let paces = events.iter().filter(|event| event.kind == Kind::Pace).map(|event| event.ns);
            // The first one includes the start.
            let paces: Vec<u64> = paces.skip(1).collect();
            (paces.len() >= count).then_some(paces)
        })?;
        paces.truncate(count);
        paces.sort_unstable();
        Ok(paces[count / 2] as f64 / 1e3)
    }

    fn wait<T>(&mut self, what: &str, find: impl Fn(&[Event]) -> Option<T>) -> Result<T> {
        wait_for(what, POLL_INTERVAL, || {
            if let Some(found) = find(&self.log.read()?) {
                return Ok(Some(found));
            }
            if let Some(status) = self.launcher.try_wait()? {
                let errors = std::fs::read_to_string(self.log.0.with_extension("stderr")).unwrap_or_default();
                let lines: Vec<&str> = errors.lines().collect();
                bail!("the launcher ended with {status}: {}", lines[lines.len().saturating_sub(5)..].join(" / "));
            }
            Ok(None)
        })
    }

    /// Lets our ranks end by themselves.
    pub fn finish(mut self) -> Result<()> {
        std::fs::write(self.log.stop_file(), "")?;
        let status = wait_for("the ranks to end", POLL_INTERVAL, || Ok(self.launcher.try_wait()?))?;
        if !status.success() {
            bail!("the launcher ended with {status}");
        }
        Ok(())
    }
}

impl Drop for Gang {
    fn drop(&mut self) {
        if let (Ok(None), Some(pid)) = (self.launcher.try_wait(), Pid::from_raw(self.launcher.id() as i32)) {
            // Launchers end their ranks on SIGTERM.
            let _ = kill_process(pid, Signal::TERM);
            let _ = self.launcher.wait();
        }
    }
}

/// An event log in a directory.
pub fn event_log(directory: &Path, name: &str) -> EventLog {
    EventLog(directory.join(format!("{name}.events")))
}

fn milliseconds(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1e6
}
