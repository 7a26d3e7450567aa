//! The next generation: when it begins, who is in it, and whether it counts as a reset.

use crate::action::{Action, Change, ProcessId};
use crate::ranks;

use super::{Driver, Process, ProcessState};

impl Driver {
    /// Begins the next generation once all living members have asked and there are enough processes. The error says why the
    /// training cannot go on.
    pub(super) fn begin_if_ready(&mut self) -> Result<(), String> {
        let is_running = |state: ProcessState| state == ProcessState::Running;
        if self.survivors().any(|(_, process)| is_running(process.state)) {
            if self.survivors().any(|(_, process)| !is_running(process.state)) {
                self.asking_since.get_or_insert(self.now);
            }
            return Ok(());
        }
        self.asking_since = None;
        let deadline = *self.idle_since.get_or_insert(self.now) + self.settings.elastic_timeout;
        let is_late = self.now >= deadline;
        let is_first = self.generation == 0 || self.from_nothing;
        let is_starting = |process: &Process| process.state == ProcessState::Starting && self.is_usable(process);
        if is_first && !is_late && self.newcomers().any(|(_, process)| is_starting(process)) {
            return Ok(());
        }
        let candidates = self.candidates();
        if candidates.len() < self.settings.min {
            return if is_late { Err(self.too_few_text(candidates.len())) } else { Ok(()) };
        }
        if !is_first && !candidates.iter().any(|id| self.members.contains(id)) {
            if self.settings.reset_limit.is_none() {
                let text = "No hosts from previous set remaining, unable to broadcast state.";
                return Err(format!("{text} The new hosts have no process with the state of the training"));
            }
            self.report("no process with the state of the training is left: it starts again from nothing".to_owned());
        }
        if self.generation > 0 && self.counts_as_reset(&candidates) {
            if self.settings.reset_limit.is_some_and(|limit| self.n_resets >= limit) {
                return Err(self.reset_limit_text());
            }
            self.n_resets += 1;
        }
        self.begin(&candidates);
        Ok(())
    }

    /// Processes that wait and may be members: survivors in the order of their ranks, then new ones, up to the maximum.
    fn candidates(&self) -> Vec<ProcessId> {
        let waiting = self.survivors().chain(self.newcomers());
        let waiting = waiting.filter(|(_, process)| process.state == ProcessState::Waiting && self.is_usable(process));
        waiting.map(|(id, _)| id).take(self.max()).collect()
    }

    /// Every generation after the first counts, except one that only takes in processes which replace failed ones: their failure was counted.
    fn counts_as_reset(&self, candidates: &[ProcessId]) -> bool {
        let joins_as_replacement = |id: &ProcessId| self.processes[id].is_replacement;
        let mut joined = candidates.iter().filter(|id| !self.members.contains(id));
        let nobody_left = self.members.iter().all(|id| candidates.contains(id));
        let only_replaces = self.notified == Some(Change::Added) && nobody_left && joined.all(joins_as_replacement);
        !only_replaces
    }

    fn begin(&mut self, candidates: &[ProcessId]) {
        let leaving: Vec<ProcessId> =
            self.survivors().map(|(id, _)| id).filter(|id| !candidates.contains(id)).collect();
        for id in leaving {
            self.departures.insert(id, "its host is not listed any more");
            self.dismiss(id);
        }
        // A new process of a host that was removed meanwhile.
        let is_unlisted = |id: &ProcessId| {
            let process = &self.processes[id];
            process.state == ProcessState::Waiting && !self.hosts.is_listed(&process.host, process.slot)
        };
        let unlisted: Vec<ProcessId> = self.newcomers().map(|(id, _)| id).filter(is_unlisted).collect();
        unlisted.into_iter().for_each(|id| self.dismiss(id));

        let text = self.size_text(candidates);
        self.report(text);
        self.generation += 1;
        self.members = candidates.to_vec();
        for id in candidates {
            let process = self.processes.get_mut(id).expect("a candidate is a process");
            process.state = ProcessState::Running;
            process.is_replacement = false;
            self.hosts.forget_failure(&process.host, process.slot);
        }
        let places: Vec<(ProcessId, &str)> =
            candidates.iter().map(|id| (*id, self.processes[id].host.as_str())).collect();
        let members = ranks::assign(&places);
        self.actions.push(Action::Begin { generation: self.generation, members });
        self.notified = None;
        self.departures.clear();
        (self.has_failure, self.has_failed_start, self.from_nothing) = (false, false, false);
        (self.idle_since, self.asking_since, self.announce_at) = (None, None, None);
    }

    /// The size of the next generation, and why it is not the size of this one.
    fn size_text(&self, candidates: &[ProcessId]) -> String {
        let n_processes = |n: usize| if n == 1 { "1 process".to_owned() } else { format!("{n} processes") };
        let mut text = format!("generation {}: {}", self.generation + 1, n_processes(candidates.len()));
        if self.generation == 0 {
            return text;
        }
        match candidates.len() == self.members.len() {
            true => text += " as before",
            false => text += &format!(" instead of {}", self.members.len()),
        }
        let mut causes: Vec<String> = Vec::new();
        for (rank, id) in self.members.iter().enumerate().filter(|(_, id)| !candidates.contains(id)) {
            let reason = self.departures.get(id).unwrap_or(&"it ended");
            causes.push(format!("process {id} (rank {rank}) left: {reason}"));
        }
        for (rank, id) in candidates.iter().enumerate().filter(|(_, id)| !self.members.contains(id)) {
            let process = &self.processes[id];
            let kind = if process.is_replacement { "restarted" } else { "new" };
            causes.push(format!("{kind} process {id} joined on {} as rank {rank}", process.host));
        }
        if causes.is_empty() {
            let reason = match self.notified {
                Some(_) => "hosts changed and changed back",
                None => "processes lost their connection to each other",
            };
            causes.push(reason.to_owned());
        }
        format!("{text}; {}", causes.join("; "))
    }

    fn too_few_text(&self, n_ready: usize) -> String {
        let seconds = self.settings.elastic_timeout.as_secs_f64();
        let min = self.settings.min;
        let n_slots = self.hosts.usable_slots();
        format!(
            "{n_ready} of at least {min} processes were ready within {seconds} s, and the hosts have {n_slots} usable slots \
             (--min-np, --elastic-timeout)"
        )
    }

    pub(super) fn reset_limit_text(&self) -> String {
        let limit = self.settings.reset_limit.unwrap_or_default();
        format!("Horovod was shutdown because number of resets during elastic job exceeded limit: {limit}")
    }
}
