//! What follows from the state of hosts and processes after each event: ends, starts, kills, the next generation, notifications.
//! Idempotent: a second call at the same time gives no action.

use std::time::Duration;

use crate::action::{Action, Change, Outcome, ProcessId};
use crate::settings::OnFailure;

use super::{Driver, Process, ProcessState};

/// How long a dismissed process may stay, and a member of a removed host may compute while the others wait.
pub(super) const LEAVE_GRACE: Duration = Duration::from_secs(30);

/// How long the announcement of a new process waits for others that are starting, so that they join together.
const ANNOUNCE_DELAY: Duration = Duration::from_millis(250);

impl Driver {
    pub(super) fn settle(&mut self) -> Vec<Action> {
        if self.is_finished {
            return self.take_actions();
        }
        for host in self.hosts.readmit(self.now) {
            self.report(format!("host {host} may be used again: its exclusion is over"));
        }
        self.kill_overdue();
        if self.is_complete {
            self.wind_down();
        } else if let Some(reason) = self.dead_end() {
            self.finish(Outcome::Failed { reason });
        } else {
            self.start_missing();
            match self.begin_if_ready() {
                Ok(()) => self.notify(),
                Err(reason) => self.finish(Outcome::Failed { reason }),
            }
        }
        self.take_actions()
    }

    /// The training is complete: nobody joins, and it ends with its last process.
    fn wind_down(&mut self) {
        let living = self.processes.iter().filter(|(_, process)| process.is_living());
        let living: Vec<(ProcessId, ProcessState)> = living.map(|(id, process)| (*id, process.state)).collect();
        for (id, state) in living {
            match state {
                ProcessState::Waiting => self.dismiss(id),
                // It would only learn that it came too late. Before the first generation it may be a script without Horovod.
                ProcessState::Starting if self.generation > 0 => self.kill(id, "the training is complete"),
                _ => {}
            }
        }
        if self.processes.is_empty() {
            self.finish(match self.late_failures.is_empty() {
                true => Outcome::Succeeded,
                false => Outcome::Failed {
                    reason: format!("{} failed after others had completed the training", self.late_failures.join(", ")),
                },
            });
        }
    }

    /// Why the training cannot go on, whatever happens next.
    fn dead_end(&mut self) -> Option<String> {
        let Driver { generation, n_resets, .. } = *self;
        if generation > 0 && self.has_failure && self.settings.reset_limit.is_some_and(|limit| n_resets >= limit) {
            return Some(self.reset_limit_text());
        }
        if self.hosts.all_excluded() {
            return Some("all hosts are excluded, because processes failed on each of them".to_owned());
        }
        if generation > 0 && !self.from_nothing && self.survivors().next().is_none() {
            if self.settings.reset_limit.is_none() {
                return Some(format!(
                    "no process of generation {generation} is left, and with them the state of the training is lost \
                     (with --reset-limit it would start again from nothing)"
                ));
            }
            self.from_nothing = true;
            self.has_failed_start = false;
            self.report(format!(
                "no process of generation {generation} is left: its state is lost, and the training starts again from nothing"
            ));
        }
        let restarts = self.settings.on_failure == OnFailure::RestartOnHost;
        let has_state = generation > 0 && !self.from_nothing;
        if restarts && !has_state && self.has_failed_start && self.processes.is_empty() {
            return Some("all processes failed before the training began".to_owned());
        }
        let is_idle = !self.survivors().any(|(_, process)| process.state == ProcessState::Running);
        let (usable, min) = (self.hosts.usable_slots(), self.settings.min);
        if restarts && is_idle && self.hosts.has_given_up_slot() && usable < min {
            return Some(format!(
                "processes failed repeatedly before they joined the training, and only {usable} of at least {min} slots are left"
            ));
        }
        None
    }

    /// Starts processes in free slots, up to the maximum and the spares.
    fn start_missing(&mut self) {
        let usable = self.processes.values().filter(|process| process.is_living() && self.is_usable(process));
        let missing = self.max().saturating_add(self.spares).saturating_sub(usable.count());
        let is_occupied = |host: &str, slot: usize| {
            self.processes.values().any(|process| process.slot == slot && process.host == host)
        };
        for free in self.hosts.free_slots(self.now, is_occupied).into_iter().take(missing) {
            self.last_process += 1;
            let (process, is_replacement) = (self.last_process, free.is_replacement);
            self.actions.push(Action::Start { process, host: free.host.clone(), slot: free.slot });
            let (host, slot, state) = (free.host, free.slot, ProcessState::Starting);
            self.processes.insert(process, Process { host, slot, state, is_replacement, has_asked: false });
        }
    }

    /// Kills dismissed processes that stay, and members that compute on although the others ended the generation.
    fn kill_overdue(&mut self) {
        self.kill_overdue_dismissed();
        let Some(since) = self.asking_since.filter(|_| !self.is_complete) else { return };
        let is_late = |limit: Duration| self.now >= since + limit;
        let (leave_late, all_late) = (is_late(LEAVE_GRACE), is_late(self.settings.elastic_timeout));
        let running = self.survivors().filter(|(_, process)| process.state == ProcessState::Running);
        let running: Vec<(ProcessId, bool)> =
            running.map(|(id, process)| (id, self.hosts.is_listed(&process.host, process.slot))).collect();
        for (id, is_listed) in running {
            if !is_listed && leave_late {
                self.kill(id, "its host is not listed any more");
            } else if all_late {
                let Some((host, slot)) = self.processes.get(&id).map(|process| (process.host.clone(), process.slot))
                else {
                    continue;
                };
                self.has_failure = true;
                self.kill(id, "it did not follow the others into the next generation within the elastic timeout");
                match self.settings.on_failure {
                    OnFailure::RestartOnHost => drop(self.hosts.record_failure(self.now, &host, slot, true)),
                    OnFailure::ExcludeHost => self.exclude_host(id, &host),
                }
            }
        }
    }

    fn kill_overdue_dismissed(&mut self) {
        let is_overdue =
            |process: &Process| matches!(process.state, ProcessState::Dismissed { kill_at } if kill_at <= self.now);
        let overdue = self.processes.iter().filter(|(_, process)| is_overdue(process));
        for id in overdue.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.kill(id, "it did not leave");
        }
    }

    /// Notifies the members of removed hosts and of processes that wait to join.
    fn notify(&mut self) {
        if !self.survivors().any(|(_, process)| process.state == ProcessState::Running) {
            return;
        }
        let is_removed = |process: &Process| !self.hosts.is_listed(&process.host, process.slot);
        let removed = self.survivors().any(|(_, process)| is_removed(process));
        let added = self.may_announce();
        let mut change = self.notified;
        for (applies, next) in [(removed, Change::Removed), (added, Change::Added)] {
            if applies {
                change = Some(Change::join(change, next));
            }
        }
        if let Some(change) = change.filter(|change| self.notified != Some(*change)) {
            self.notified = Some(change);
            self.actions.push(Action::Notify { generation: self.generation, change });
        }
    }

    /// Whether new processes wait for which there is room, and others that are starting had their time to join with them.
    fn may_announce(&mut self) -> bool {
        let usable = self.survivors().filter(|(_, process)| self.is_usable(process)).count();
        let newcomers = self.newcomers().filter(|(_, process)| self.is_usable(process));
        let (waiting, starting): (Vec<_>, Vec<_>) =
            newcomers.map(|(_, process)| process.state).partition(|state| *state == ProcessState::Waiting);
        if waiting.is_empty() || usable >= self.max() {
            self.announce_at = None;
            return false;
        }
        let announce_at = *self.announce_at.get_or_insert(self.now + ANNOUNCE_DELAY);
        starting.is_empty() || usable + waiting.len() >= self.max() || self.now >= announce_at
    }
}
