//! The driver: takes events in and gives actions out. Each event updates the processes and hosts, then `settle` decides what follows from the
//! whole state, so that the order of events matters little.

mod begin;
mod resume;
mod settle;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;

use crate::action::{Action, Change, Generation, Outcome, ProcessId};
use crate::hosts::HostTable;
use crate::settings::{Host, OnFailure, Settings};

pub use resume::Resumed;

/// Decides the size of one training. Pure; `now` is the time since the driver was made and never runs backwards.
#[derive(Clone, Debug)]
pub struct Driver {
    settings: Settings,
    /// Processes beyond `max` that are started and wait, so that they can replace a member at once.
    spares: usize,
    hosts: HostTable,
    processes: BTreeMap<ProcessId, Process>,
    last_process: ProcessId,
    /// The generation that began last, and its members in the order of their ranks, dead ones included.
    generation: Generation,
    members: Vec<ProcessId>,
    n_resets: u32,
    /// The change that the members of this generation were notified of.
    notified: Option<Change>,
    /// Why processes have left since the generation began.
    departures: BTreeMap<ProcessId, &'static str>,
    /// Whether a member has failed since the generation began.
    has_failure: bool,
    /// Whether a process that was no member has failed since then.
    has_failed_start: bool,
    /// No member is left: the next generation starts without state.
    from_nothing: bool,
    /// Since when no member computes, or nothing has begun.
    idle_since: Option<Duration>,
    /// Since when a member asks while others still compute.
    asking_since: Option<Duration>,
    /// When new processes are announced although others are still starting.
    announce_at: Option<Duration>,
    /// A member succeeded: the training is complete.
    is_complete: bool,
    /// Members that failed by themselves afterwards, as texts.
    late_failures: Vec<String>,
    is_finished: bool,
    now: Duration,
    actions: Vec<Action>,
}

#[derive(Clone, Debug)]
struct Process {
    host: String,
    slot: usize,
    state: ProcessState,
    /// Whether it was started in place of a failed process.
    is_replacement: bool,
    /// Whether it has ever asked for a place.
    has_asked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessState {
    /// Started, and has not asked yet.
    Starting,
    /// Asks for its place in the next generation.
    Waiting,
    /// Computes in the current generation.
    Running,
    /// Was dismissed; is killed at this time.
    Dismissed { kill_at: Duration },
    /// Is being killed.
    Killed,
}

impl Process {
    /// Whether it may be a member of this or a later generation.
    fn is_living(&self) -> bool {
        matches!(self.state, ProcessState::Starting | ProcessState::Waiting | ProcessState::Running)
    }
}

impl Driver {
    pub fn new(settings: Settings, seed: u64) -> Driver {
        Driver {
            settings,
            spares: 0,
            hosts: HostTable::new(seed),
            processes: BTreeMap::new(),
            last_process: 0,
            generation: 0,
            members: Vec::new(),
            n_resets: 0,
            notified: None,
            departures: BTreeMap::new(),
            has_failure: false,
            has_failed_start: false,
            from_nothing: false,
            idle_since: Some(Duration::ZERO),
            asking_since: None,
            announce_at: None,
            is_complete: false,
            late_failures: Vec::new(),
            is_finished: false,
            now: Duration::ZERO,
            actions: Vec::new(),
        }
    }

    /// Keeps `spares` processes beyond the maximum started and waiting.
    pub fn with_spares(mut self, spares: usize) -> Driver {
        self.spares = spares;
        self
    }

    /// The generation that began last; 0 before the first.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The hosts that discovery lists now.
    pub fn on_hosts(&mut self, now: Duration, hosts: &[Host]) -> Vec<Action> {
        self.enter(now);
        self.hosts.update(hosts);
        self.settle()
    }

    /// A process asks for its place in a generation later than `after`.
    pub fn on_waiting(&mut self, now: Duration, process: ProcessId, after: Generation) -> Vec<Action> {
        self.enter(now);
        let generation = self.generation;
        if let Some(process) = self.processes.get_mut(&process) {
            process.has_asked = true;
            // Who asks again for a generation that has begun was answered, but the answer was lost.
            if process.state == ProcessState::Starting
                || (process.state == ProcessState::Running && after >= generation)
            {
                process.state = ProcessState::Waiting;
            }
        }
        self.settle()
    }

    /// A process has ended.
    pub fn on_exit(&mut self, now: Duration, process: ProcessId, success: bool) -> Vec<Action> {
        self.enter(now);
        if let Some(ended) = self.processes.remove(&process).filter(Process::is_living) {
            let is_member = self.generation == 0 || self.members.contains(&process);
            match success {
                true if is_member => self.is_complete = true,
                _ if self.is_complete && is_member && !self.is_finished => {
                    let rank = self.rank_of(process).map_or(String::new(), |rank| format!("rank {rank}, "));
                    self.late_failures.push(format!("process {process} ({rank}host {})", ended.host));
                }
                _ if self.is_complete || self.is_finished => {}
                _ => self.on_failure(process, &ended),
            }
        }
        self.settle()
    }

    /// Time has passed, for example the time of `next_timer`.
    pub fn on_time(&mut self, now: Duration) -> Vec<Action> {
        self.enter(now);
        self.settle()
    }

    /// When `on_time` must be called at the latest. `None`: only events matter.
    pub fn next_timer(&self) -> Option<Duration> {
        if self.is_finished {
            return None;
        }
        let kills = self.processes.values().filter_map(|process| match process.state {
            ProcessState::Dismissed { kill_at } => Some(kill_at),
            _ => None,
        });
        let waits = [
            self.idle_since.map(|since| since + self.settings.elastic_timeout),
            self.asking_since.map(|since| since + self.settings.elastic_timeout),
            self.asking_since.map(|since| since + settle::LEAVE_GRACE),
            self.announce_at,
        ];
        let waits = waits.into_iter().flatten().chain(self.hosts.timers()).filter(|_| !self.is_complete);
        kills.chain(waits).filter(|timer| *timer > self.now).min()
    }

    /// A process that should live has failed. Decides what becomes of its slot and its host.
    fn on_failure(&mut self, id: ProcessId, process: &Process) {
        let Process { host, slot, .. } = process;
        let is_member = self.members.contains(&id);
        if is_member {
            self.has_failure = true;
            self.departures.insert(id, "it failed");
        } else {
            self.has_failed_start = true;
        }
        // It ended with its host.
        if !self.hosts.is_listed(host, *slot) {
            return;
        }
        match self.settings.on_failure {
            OnFailure::RestartOnHost => {
                let is_given_up = self.hosts.record_failure(self.now, host, *slot, process.has_asked);
                if is_given_up {
                    self.report(format!(
                        "slot {slot} of host {host} is given up: its processes failed repeatedly before they joined the training"
                    ));
                }
            }
            OnFailure::ExcludeHost => self.exclude_host(id, host),
        }
    }

    fn exclude_host(&mut self, failed: ProcessId, host: &str) {
        let length = self.hosts.exclude(self.now, host, self.settings.cooldown);
        let length = length.map_or("for good".to_owned(), |length| format!("for {:.1} s", length.as_secs_f64()));
        self.report(format!("host {host} is excluded {length}: process {failed} failed there"));
        let on_host = |(_, process): &(&ProcessId, &Process)| process.host == host && process.is_living();
        let others: BTreeSet<ProcessId> = self.processes.iter().filter(on_host).map(|(id, _)| *id).collect();
        for other in others {
            self.kill(other, "its host was excluded");
        }
    }

    fn kill(&mut self, id: ProcessId, reason: &'static str) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.state = ProcessState::Killed;
            self.departures.insert(id, reason);
            self.actions.push(Action::Kill { process: id });
        }
    }

    fn dismiss(&mut self, id: ProcessId) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.state = ProcessState::Dismissed { kill_at: self.now + settle::LEAVE_GRACE };
            self.actions.push(Action::Dismiss { process: id });
        }
    }

    fn report(&mut self, text: String) {
        self.actions.push(Action::Report { text });
    }

    fn finish(&mut self, outcome: Outcome) {
        self.is_finished = true;
        self.actions.push(Action::Finish(outcome));
    }

    fn enter(&mut self, now: Duration) {
        self.now = now.max(self.now);
    }

    fn take_actions(&mut self) -> Vec<Action> {
        mem::take(&mut self.actions)
    }

    fn rank_of(&self, process: ProcessId) -> Option<usize> {
        self.members.iter().position(|member| *member == process)
    }

    /// Members that may be part of the next generation.
    fn survivors(&self) -> impl Iterator<Item = (ProcessId, &Process)> {
        let living = |id: &ProcessId| self.processes.get(id).filter(|process| process.is_living()).map(|p| (*id, p));
        self.members.iter().filter_map(living)
    }

    /// Processes that have not been members, in the order of their starts.
    fn newcomers(&self) -> impl Iterator<Item = (ProcessId, &Process)> {
        let is_new = |(id, process): &(&ProcessId, &Process)| process.is_living() && !self.members.contains(id);
        self.processes.iter().filter(is_new).map(|(id, process)| (*id, process))
    }

    fn is_usable(&self, process: &Process) -> bool {
        self.hosts.is_usable(&process.host, process.slot)
    }

    fn max(&self) -> usize {
        self.settings.max.unwrap_or(usize::MAX)
    }
}
