//! Who lets the others wait: names that some ranks asked for long ago and others not, with the host of each that is missing. The
//! engine of rank 0 asks now and then, with the time; a report comes at most once per interval.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use super::Coordinator;
use crate::coordinator::message::ShutdownReason;
use crate::coordinator::request::JOIN_NAME;

/// Most names told of one rank.
const MAX_NAMES: usize = 6;

#[derive(Clone, Copy, Debug)]
pub struct StallLimits {
    /// Waiting for longer than this is reported, and looked for this often.
    pub warn_after: Duration,
    /// Waiting for longer than this ends the job.
    pub shut_down_after: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StallReport {
    /// Begins with Horovod's sentence.
    pub text: String,
    /// By missing rank.
    pub missing: BTreeMap<u32, MissingRank>,
    /// The job ends by this: an error rather than a warning.
    pub shuts_down: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingRank {
    pub names: Vec<String>,
    /// At least one waits for longer than the shutdown time.
    pub exceeds_shutdown_time: bool,
}

/// What somebody has asked for and others have not, longest ago.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncompleteOp {
    pub name: String,
    pub since: Duration,
    /// Global ranks that have not asked.
    pub missing: Vec<u32>,
}

#[derive(Debug, Default)]
pub struct StallInspector {
    last_check: Duration,
}

impl StallLimits {
    /// To be told once when the job starts.
    pub fn warning(&self) -> Option<String> {
        let shut_down_after = self.shut_down_after?;
        (shut_down_after <= self.warn_after).then(|| {
            format!(
                "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS ({}) is not greater than HOROVOD_STALL_CHECK_TIME_SECONDS ({}): check_stalls \
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
    /// `None` when nothing is stuck, nobody wants to know, or the last look is not an interval ago. A report that shuts down
    /// has told the ranks so (see [`Coordinator::drain`]).
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

    /// For whoever looks at the engine, at any time.
    pub fn oldest_incomplete(&self) -> Option<IncompleteOp> {
        let mut oldest: Option<IncompleteOp> = None;
        let mut note = |name: &str, since: Duration, missing: Vec<u32>| {
            if !missing.is_empty() && oldest.as_ref().is_none_or(|oldest| since < oldest.since) {
                oldest = Some(IncompleteOp { name: name.to_owned(), since, missing });
            }
        };
        for table in self.tables.iter().flatten() {
            let ranks = |set_ranks: &mut dyn Iterator<Item = u32>| {
                set_ranks.map(|set_rank| table.members[set_rank as usize]).collect()
            };
            for slot in table.waiting_slots() {
                note(&table.slots[slot].name, table.slots[slot].waiting_since, ranks(&mut table.missing(slot)));
            }
            if table.n_joined > 0 {
                note(JOIN_NAME, table.last_progress, ranks(&mut table.not_joined()));
            }
        }
        if let Some((since, name, ranks)) = self.set_requests.oldest_incomplete() {
            note(&name, since, ranks);
        }
        oldest
    }

    fn missing(&self, limits: StallLimits, now: Duration) -> BTreeMap<u32, MissingRank> {
        let mut missing = BTreeMap::<u32, MissingRank>::new();
        let mut note = |rank: u32, name: &str, waited: Duration| {
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
                        .for_each(|set_rank| note(table.members[set_rank as usize], &table.slots[slot].name, waited));
                }
            }
            // Joined ranks may wait for as long as the others get on.
            let waited = now.saturating_sub(table.last_progress);
            if table.n_joined > 0 && waited > limits.warn_after {
                table.not_joined().for_each(|set_rank| note(table.members[set_rank as usize], JOIN_NAME, waited));
            }
        }
        if let Some((since, name, ranks)) = self.set_requests.oldest_incomplete() {
            let waited = now.saturating_sub(since);
            if waited > limits.warn_after {
                ranks.into_iter().for_each(|rank| note(rank, &name, waited));
            }
        }
        missing
    }
}

fn warning_text(limits: StallLimits, missing: &BTreeMap<u32, MissingRank>, hosts: &[String]) -> String {
    let mut warning_text = format!(
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
        write!(warning_text, "\n{rank}{mark}: [{names}{more}] on {host}").expect("a string takes everything");
    }
    warning_text
}
