//! Stall inspection (Horovod's term): reports tensors that some ranks requested long ago and others have not, with the missing ranks and
//! their hosts. Reports at most once per check interval.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use super::Coordinator;
use crate::coordinator::message::ShutdownReason;
use crate::coordinator::request::JOIN_NAME;

/// Maximum number of tensor names printed per missing rank.
const MAX_NAMES: usize = 6;

/// Time limits of incomplete operations.
#[derive(Clone, Copy, Debug)]
pub struct StallLimits {
    /// Age from which an incomplete operation is reported, and interval between checks. `HOROVOD_STALL_CHECK_TIME_SECONDS`.
    pub warn_after: Duration,
    /// Age from which an incomplete operation shuts the job down. `HOROVOD_STALL_SHUTDOWN_TIME_SECONDS`.
    pub shut_down_after: Option<Duration>,
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StallReport {
    /// Horovod's warning with the list of missing ranks.
    pub text: String,
    /// By global rank.
    pub missing: BTreeMap<u32, MissingRank>,
    /// True if the stall shuts the job down; the report is then an error rather than a warning.
    pub shuts_down: bool,
}

/// Operations that wait for one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingRank {
    pub names: Vec<String>,
    /// True if at least one of them is older than the shutdown time.
    pub exceeds_shutdown_time: bool,
}

/// Operation that some ranks have requested and others have not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncompleteOp {
    pub name: String,
    pub since: Duration,
    /// Global ranks that have not requested it.
    pub missing: Vec<u32>,
}

/// State of the stall inspection.
#[derive(Debug, Default)]
pub struct StallInspector {
    last_check: Duration,
}

impl StallLimits {
    /// Warning about contradictory limits, to be logged once at startup.
    pub fn warning(&self) -> Option<String> {
        let shut_down_after = self.shut_down_after?;
        (shut_down_after <= self.warn_after).then(|| {
            format!(
                "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS ({}) is not greater than HOROVOD_STALL_CHECK_TIME_SECONDS ({}): stalled \
                 operations will not shut the job down",
                shut_down_after.as_secs(),
                self.warn_after.as_secs()
            )
        })
    }

    fn exceeds_shutdown_time(&self, waited: Duration) -> bool {
        self.shut_down_after.is_some_and(|after| after > self.warn_after && waited > after)
    }
}

impl Coordinator {
    /// Checks for stalls. `None` if nothing is stalled, the inspection is disabled, or the last check is less than an interval ago. A
    /// report that shuts the job down has queued the shutdown (see [`Coordinator::drain`]).
    pub fn check_stalls(&mut self, now: Duration) -> Option<StallReport> {
        let limits = self.config.stall?;
        if now.saturating_sub(self.stall.last_check) < limits.warn_after || self.has_ended() {
            return None;
        }
        self.stall.last_check = now;
        let missing = self.missing(limits, now);
        if missing.is_empty() {
            return None;
        }
        let shuts_down = missing.values().any(|rank| rank.exceeds_shutdown_time);
        if shuts_down {
            self.shut_down(ShutdownReason::Stalled);
        }
        Some(StallReport { text: warning_text(limits, &missing, &self.config.hosts), missing, shuts_down })
    }

    /// Operation that has been incomplete for longest, for the status of the engine. Independent of the stall limits.
    pub fn oldest_incomplete(&self) -> Option<IncompleteOp> {
        let mut oldest: Option<IncompleteOp> = None;
        let mut add = |name: &str, since: Duration, missing: Vec<u32>| {
            if !missing.is_empty() && oldest.as_ref().is_none_or(|oldest| since < oldest.since) {
                oldest = Some(IncompleteOp { name: name.to_owned(), since, missing });
            }
        };
        for table in self.tables.iter().flatten() {
            let ranks = |set_ranks: &mut dyn Iterator<Item = u32>| {
                set_ranks.map(|set_rank| table.members[set_rank as usize]).collect()
            };
            for slot in table.waiting_slots() {
                add(&table.slots[slot].name, table.slots[slot].waiting_since, ranks(&mut table.missing(slot)));
            }
            if table.n_joined > 0 {
                add(JOIN_NAME, table.last_progress, ranks(&mut table.not_joined()));
            }
        }
        if let Some((since, name, ranks)) = self.set_requests.oldest_incomplete() {
            add(&name, since, ranks);
        }
        oldest
    }

    fn missing(&self, limits: StallLimits, now: Duration) -> BTreeMap<u32, MissingRank> {
        let mut missing = BTreeMap::<u32, MissingRank>::new();
        let mut add = |rank: u32, name: &str, waited: Duration| {
            let rank = missing.entry(rank).or_default();
            rank.names.push(name.to_owned());
            rank.exceeds_shutdown_time |= limits.exceeds_shutdown_time(waited);
        };
        for table in self.tables.iter().flatten() {
            for slot in table.waiting_slots() {
                let waited = now.saturating_sub(table.slots[slot].waiting_since);
                if waited > limits.warn_after {
                    let set_ranks = table.missing(slot);
                    set_ranks
                        .for_each(|set_rank| add(table.members[set_rank as usize], &table.slots[slot].name, waited));
                }
            }
            // Joined ranks wait legitimately as long as the others make progress.
            let waited = now.saturating_sub(table.last_progress);
            if table.n_joined > 0 && waited > limits.warn_after {
                table.not_joined().for_each(|set_rank| add(table.members[set_rank as usize], JOIN_NAME, waited));
            }
        }
        if let Some((since, name, ranks)) = self.set_requests.oldest_incomplete() {
            let waited = now.saturating_sub(since);
            if waited > limits.warn_after {
                ranks.into_iter().for_each(|rank| add(rank, &name, waited));
            }
        }
        missing
    }
}

fn warning_text(limits: StallLimits, missing: &BTreeMap<u32, MissingRank>, hosts: &[String]) -> String {
    let mut text = format!(
        "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for \
         remainder of ranks for more than {} seconds. This may indicate that different ranks are trying to submit different \
         tensors or that only subset of ranks is submitting tensors, which will cause deadlock. \nMissing ranks:",
        limits.warn_after.as_secs_f64()
    );
    for (rank, MissingRank { names, exceeds_shutdown_time }) in missing {
        let mark = if *exceeds_shutdown_time { "!" } else { "" };
        let more = if names.len() > MAX_NAMES { " ..." } else { "" };
        let names = names[..names.len().min(MAX_NAMES)].join(", ");
        let host = &hosts[*rank as usize];
        write!(text, "\n{rank}{mark}: [{names}{more}] on {host}").expect("writing to a string cannot fail");
    }
    text
}
