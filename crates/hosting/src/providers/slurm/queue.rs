//! State of this server's allocations, parsed from the output of `squeue`: whether a node's allocation is alive, why it waits or ended,
//! and whether Slurm takes it back. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use corro_model::NodeId;
use corro_model::state::PreemptionCause;

use super::batch_script::ServerTag;

/// `squeue --format`: job id, state, reason, time left, time limit and name. Names can contain the separator, so they come last.
pub const SQUEUE_FORMAT: &str = "%A|%T|%r|%L|%l|%j";

/// This server's allocations, including those that ended recently.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocationTable {
    /// A node that was submitted twice has several allocations. Sorted by job id.
    allocations: BTreeMap<NodeId, Vec<Allocation>>,
}

#[derive(Clone, Debug)]
pub struct Allocation {
    pub job_id: u64,
    state: String,
    reason: String,
    /// Remaining and total walltime; `None` without a limit.
    time_left: Option<Duration>,
    time_limit: Option<Duration>,
}

/// The remaining time is ignored: it changes with every poll.
impl PartialEq for Allocation {
    fn eq(&self, other: &Self) -> bool {
        (self.job_id, &self.state, &self.reason) == (other.job_id, &other.state, &other.reason)
    }
}

impl Eq for Allocation {}

impl AllocationTable {
    /// Parses the output of `squeue`. Jobs without the server's tag are ignored.
    pub fn parse(text: &str, tag: &ServerTag) -> Self {
        let mut by_node: BTreeMap<NodeId, Vec<Allocation>> = BTreeMap::new();
        for line in text.lines() {
            let fields: Vec<&str> = line.splitn(6, '|').map(str::trim).collect();
            let &[job_id, state, reason, left, limit, name] = fields.as_slice() else { continue };
            if let (Ok(job_id), Some(node)) = (job_id.parse(), tag.parse_node(name)) {
                let (state, reason) = (state.to_owned(), reason.to_owned());
                let (time_left, time_limit) = (parse_duration(left), parse_duration(limit));
                let allocation = Allocation { job_id, state, reason, time_left, time_limit };
                by_node.entry(node).or_default().push(allocation);
            }
        }
        by_node.values_mut().for_each(|allocations| allocations.sort_by_key(|allocation| allocation.job_id));
        Self { allocations: by_node }
    }

    /// Whether the node has an allocation that is pending or running.
    pub fn is_alive(&self, node: &NodeId) -> bool {
        self.of_node(node).iter().any(Allocation::is_alive)
    }

    /// Whether all live allocations of the node are pending.
    pub fn is_pending(&self, node: &NodeId) -> bool {
        let mut alive = self.of_node(node).iter().filter(|allocation| allocation.is_alive()).peekable();
        alive.peek().is_some() && alive.all(Allocation::is_pending)
    }

    /// Nodes that have live allocations, with their job ids.
    pub fn live_jobs(&self) -> impl Iterator<Item = (&NodeId, Vec<u64>)> {
        self.allocations.iter().filter_map(|(node, allocations)| {
            let alive = allocations.iter().filter(|allocation| allocation.is_alive());
            let jobs: Vec<u64> = alive.map(|allocation| allocation.job_id).collect();
            (!jobs.is_empty()).then_some((node, jobs))
        })
    }

    /// Why the node waits or has ended, with Slurm's reason.
    pub fn explain(&self, node: &NodeId) -> Option<String> {
        let last = self.latest(node)?;
        let reason = Some(last.reason.as_str()).filter(|reason| !matches!(*reason, "None" | "" | "(null)"));
        match (last.is_pending(), last.is_alive()) {
            (true, _) => {
                Some(format!("its Slurm job {} is pending ({})", last.job_id, reason.unwrap_or("no reason given")))
            }
            (false, true) => None,
            (false, false) => {
                let reason = reason.map_or_else(String::new, |reason| format!(", {reason}"));
                Some(format!("its Slurm job {} ended ({}{reason})", last.job_id, last.state))
            }
        }
    }

    /// Whether Slurm preempts the node now or its walltime ends within `within`. An allocation with a short walltime keeps at least half of it.
    pub fn reclaim_cause(&self, node: &NodeId, within: Duration) -> Option<PreemptionCause> {
        let last = self.latest(node)?;
        let ends_soon = |left| last.time_limit.is_some_and(|limit| left <= within.min(limit / 2));
        match (last.state.as_str(), last.reason.as_str()) {
            ("PREEMPTED" | "SUSPENDED" | "STOPPED", _) | ("COMPLETING", "Preempted") => {
                Some(PreemptionCause::Reclaimed)
            }
            ("TIMEOUT" | "DEADLINE", _) | ("COMPLETING", "TimeLimit") => Some(PreemptionCause::Walltime),
            ("RUNNING", _) if last.time_left.is_some_and(ends_soon) => Some(PreemptionCause::Walltime),
            _ => None,
        }
    }

    /// The allocation that determines the node's state: a live one, else the newest.
    fn latest(&self, node: &NodeId) -> Option<&Allocation> {
        self.of_node(node).iter().max_by_key(|allocation| (allocation.is_alive(), allocation.job_id))
    }

    fn of_node(&self, node: &NodeId) -> &[Allocation] {
        self.allocations.get(node).map_or(&[], Vec::as_slice)
    }
}

impl Allocation {
    /// Unknown states, of a newer Slurm, count as alive, so that no node is started twice.
    fn is_alive(&self) -> bool {
        !matches!(
            self.state.as_str(),
            "COMPLETED"
                | "CANCELLED"
                | "FAILED"
                | "TIMEOUT"
                | "NODE_FAIL"
                | "PREEMPTED"
                | "BOOT_FAIL"
                | "DEADLINE"
                | "OUT_OF_MEMORY"
                | "REVOKED"
        )
    }

    fn is_pending(&self) -> bool {
        matches!(self.state.as_str(), "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "SPECIAL_EXIT")
    }
}

/// Parses Slurm's `[days-][[hours:]minutes:]seconds`. `INVALID` stands for a time that is over; other words mean no limit.
fn parse_duration(text: &str) -> Option<Duration> {
    if text == "INVALID" {
        return Some(Duration::ZERO);
    }
    let (days, clock) = text.split_once('-').unwrap_or(("0", text));
    let mut parts = clock.rsplit(':').map(|part| part.parse::<u32>().ok());
    let mut next = || parts.next().unwrap_or(Some(0)).map(u64::from);
    let (seconds, minutes, hours) = (next()?, next()?, next()?);
    let days = u64::from(days.parse::<u32>().ok()?);
    Some(Duration::from_secs(((days * 24 + hours) * 60 + minutes) * 60 + seconds))
}

/// The job id in the output of `sbatch --parsable`, which may append `;CLUSTER`.
pub fn parse_job_id(text: &str) -> Option<u64> {
    text.lines().last()?.split(';').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "12|PENDING|Resources|4:00:00|4:00:00|corro-abc-tvm-1_1-20261116t220000z-p\n\
        13|RUNNING|None|1-00:00:31|2-00:00:00|corro-abc-tvm-1_2-20261116t220000z-p\n\
        11|TIMEOUT|TimeLimit|INVALID|1:00|corro-abc-tvm-1_3-20261116t220000z-p\n\
        9|FAILED|NonZeroExitCode|3:00|4:00|corro-abc-tvm-1_1-20261116t220000z-p\n\
        14|COMPLETING|None|UNLIMITED|UNLIMITED|corro-abc-tvm-1_4-20261116t220000z-p\n\
        15|RUNNING|None|0:01|1:00|corro-other-tvm-1_5-20261116t220000z-p\n\
        17|PREEMPTED|None|9:57|10:00|corro-abc-tvm-1_6-20261116t220000z-p\n\
        18|RUNNING|None|0:20|1:00|corro-abc-tvm-1_7-20261116t220000z-p\n\
        16|RUNNING|None|0:01|1:00|somebody|else\n\
        slurm_load_jobs error\n";

    fn node(index: u32) -> NodeId {
        NodeId::parse(&format!("tvm-1_{index}-20261116t220000z-p")).expect("an id")
    }

    #[test]
    fn squeue_output_is_parsed() {
        let table = AllocationTable::parse(TEXT, &ServerTag::from_instance("abc"));
        let check = |index: u32, is_alive: bool, is_pending: bool, explanation: Option<&str>| {
            let node = node(index);
            assert_eq!((table.is_alive(&node), table.is_pending(&node)), (is_alive, is_pending), "{node}");
            assert_eq!(table.explain(&node).as_deref(), explanation, "{node}");
        };
        check(1, true, true, Some("its Slurm job 12 is pending (Resources)"));
        check(2, true, false, None);
        check(3, false, false, Some("its Slurm job 11 ended (TIMEOUT, TimeLimit)"));
        check(4, true, false, None);
        check(5, false, false, None);
        let alive: Vec<_> = table.live_jobs().map(|(_, jobs)| jobs).collect();
        assert_eq!(alive, [vec![12], vec![13], vec![14], vec![18]]);
    }

    #[test]
    fn preemption_and_walltime_are_recognised() {
        let table = AllocationTable::parse(TEXT, &ServerTag::from_instance("abc"));
        let taken = |index: u32, within: u64| table.reclaim_cause(&node(index), Duration::from_secs(within));
        let (walltime, reclaimed) = (Some(PreemptionCause::Walltime), Some(PreemptionCause::Reclaimed));
        assert_eq!([1, 2, 4, 5].map(|index| taken(index, 30)), [None; 4]);
        assert_eq!([3, 6].map(|index| taken(index, 0)), [walltime, reclaimed]);
        assert_eq!((taken(7, 19), taken(7, 20)), (None, walltime));
        // Half of the walltime is the allocation's own, however large `within` is.
        assert_eq!((taken(2, 86_430), taken(2, 86_431)), (None, None));
        assert_eq!(parse_duration("1-00:00:31"), Some(Duration::from_secs(86_431)));
        assert_eq!(["UNLIMITED", "NOT_SET", "", "1:x"].map(parse_duration), [None; 4]);
    }

    #[test]
    fn remaining_time_is_ignored_in_comparisons() {
        let later = TEXT.replace("0:20", "0:19");
        assert_eq!(
            AllocationTable::parse(TEXT, &ServerTag::from_instance("abc")),
            AllocationTable::parse(&later, &ServerTag::from_instance("abc"))
        );
    }

    #[test]
    fn the_job_id_is_parsed() {
        assert_eq!(parse_job_id("42\n"), Some(42));
        assert_eq!(parse_job_id("42;cluster\n"), Some(42));
        assert_eq!(parse_job_id("error\n"), None);
    }
}
