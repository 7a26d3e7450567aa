//! What Slurm knows of this server's allocations: reads what `squeue` prints, and says of each node whether something of it
//! lives, why not, and whether it is taken back. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use corro_model::NodeId;
use corro_model::state::PreemptionCause;

use super::submission::Mark;

/// For `squeue`: number, state, reason, time left, time limit and name of each job. Names can hold anything, so they come last.
pub const FORMAT: &str = "%A|%T|%r|%L|%l|%j";

/// This server's allocations, those that ended lately among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// By node; one that was asked for twice has several.
    nodes: BTreeMap<NodeId, Vec<Allocation>>,
}

#[derive(Clone, Debug)]
pub struct Allocation {
    pub job: u64,
    state: String,
    reason: String,
    /// Of its walltime, if it has one, and how long that is.
    left: Option<Duration>,
    limit: Option<Duration>,
}

/// That time goes by changes nothing.
impl PartialEq for Allocation {
    fn eq(&self, other: &Self) -> bool {
        (self.job, &self.state, &self.reason) == (other.job, &other.state, &other.reason)
    }
}

impl Eq for Allocation {}

impl Queue {
    /// From the lines of `squeue`. Jobs of others are passed over.
    pub fn read(text: &str, mark: &Mark) -> Self {
        let mut nodes: BTreeMap<NodeId, Vec<Allocation>> = BTreeMap::new();
        for line in text.lines() {
            let fields: Vec<&str> = line.splitn(6, '|').map(str::trim).collect();
            let &[job, state, reason, left, limit, name] = fields.as_slice() else { continue };
            if let (Ok(job), Some(node)) = (job.parse(), mark.node(name)) {
                let (state, reason) = (state.to_owned(), reason.to_owned());
                let allocation = Allocation { job, state, reason, left: duration(left), limit: duration(limit) };
                nodes.entry(node).or_default().push(allocation);
            }
        }
        nodes.values_mut().for_each(|allocations| allocations.sort_by_key(|allocation| allocation.job));
        Self { nodes }
    }

    pub fn lives(&self, node: &NodeId) -> bool {
        self.of(node).iter().any(Allocation::lives)
    }

    /// Does it wait for its turn?
    pub fn waits(&self, node: &NodeId) -> bool {
        let mut living = self.of(node).iter().filter(|allocation| allocation.lives()).peekable();
        living.peek().is_some() && living.all(Allocation::waits)
    }

    /// Of each node that something lives of: its allocations.
    pub fn living(&self) -> impl Iterator<Item = (&NodeId, Vec<u64>)> {
        self.nodes.iter().filter_map(|(node, allocations)| {
            let living = allocations.iter().filter(|allocation| allocation.lives());
            let jobs: Vec<u64> = living.map(|allocation| allocation.job).collect();
            (!jobs.is_empty()).then_some((node, jobs))
        })
    }

    /// Why the node waits or has ended, in Slurm's words.
    pub fn provisioning_issue(&self, node: &NodeId) -> Option<String> {
        let last = self.last(node)?;
        let reason = Some(last.reason.as_str()).filter(|reason| !matches!(*reason, "None" | "" | "(null)"));
        match (last.waits(), last.lives()) {
            (true, _) => Some(format!("Slurm has it wait ({})", reason.unwrap_or("for its turn"))),
            (false, true) => None,
            (false, false) => {
                let reason = reason.map_or_else(String::new, |reason| format!(", {reason}"));
                Some(format!("its Slurm job {} ended ({}{reason})", last.job, last.state))
            }
        }
    }

    /// Is the node taken back, now or within this time? One that was lent for a short while is left half of that.
    pub fn pending_reclaim(&self, node: &NodeId, within: Duration) -> Option<PreemptionCause> {
        let last = self.last(node)?;
        let ends = |left| last.limit.is_some_and(|limit| left <= within.min(limit / 2));
        match (last.state.as_str(), last.reason.as_str()) {
            ("PREEMPTED" | "SUSPENDED" | "STOPPED", _) | ("COMPLETING", "Preempted") => {
                Some(PreemptionCause::Reclaimed)
            }
            ("TIMEOUT" | "DEADLINE", _) | ("COMPLETING", "TimeLimit") => Some(PreemptionCause::Walltime),
            ("RUNNING", _) if last.left.is_some_and(ends) => Some(PreemptionCause::Walltime),
            _ => None,
        }
    }

    /// The allocation that counts of those that the node had.
    fn last(&self, node: &NodeId) -> Option<&Allocation> {
        self.of(node).iter().max_by_key(|allocation| (allocation.lives(), allocation.job))
    }

    fn of(&self, node: &NodeId) -> &[Allocation] {
        self.nodes.get(node).map_or(&[], Vec::as_slice)
    }
}

impl Allocation {
    /// States that are not known are those of a newer Slurm, and are taken for living: nothing is made twice.
    fn lives(&self) -> bool {
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

    fn waits(&self) -> bool {
        matches!(self.state.as_str(), "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "SPECIAL_EXIT")
    }
}

/// As Slurm writes it: `[days-][[hours:]minutes:]seconds`. What is over is written as `INVALID`; no limit in other words.
fn duration(text: &str) -> Option<Duration> {
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

/// The number that `sbatch --parsable` prints, before the cluster's name if there is one.
pub fn submitted(text: &str) -> Option<u64> {
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
    fn what_squeue_prints_is_understood() {
        let queue = Queue::read(TEXT, &Mark::of("abc"));
        let check = |index: u32, lives: bool, waits: bool, says: Option<&str>| {
            let node = node(index);
            assert_eq!((queue.lives(&node), queue.waits(&node)), (lives, waits), "{node}");
            assert_eq!(queue.says(&node).as_deref(), says, "{node}");
        };
        check(1, true, true, Some("Slurm has it wait (Resources)"));
        check(2, true, false, None);
        check(3, false, false, Some("its Slurm job 11 ended (TIMEOUT, TimeLimit)"));
        check(4, true, false, None);
        check(5, false, false, None);
        let living: Vec<_> = queue.living().map(|(_, jobs)| jobs).collect();
        assert_eq!(living, [vec![12], vec![13], vec![14], vec![18]]);
    }

    #[test]
    fn what_is_taken_back_is_no_failure() {
        let queue = Queue::read(TEXT, &Mark::of("abc"));
        let taken = |index: u32, within: u64| queue.takes_back(&node(index), Duration::from_secs(within));
        let (walltime, reclaimed) = (Some(PreemptionCause::Walltime), Some(PreemptionCause::Reclaimed));
        assert_eq!([1, 2, 4, 5].map(|index| taken(index, 30)), [None; 4]);
        assert_eq!([3, 6].map(|index| taken(index, 0)), [walltime, reclaimed]);
        assert_eq!((taken(7, 19), taken(7, 20)), (None, walltime));
        // However long in advance one wants to know: half of its time is its own.
        assert_eq!((taken(2, 86_430), taken(2, 86_431)), (None, None));
        assert_eq!(duration("1-00:00:31"), Some(Duration::from_secs(86_431)));
        assert_eq!(["UNLIMITED", "NOT_SET", "", "1:x"].map(duration), [None; 4]);
    }

    #[test]
    fn time_that_goes_by_is_no_change() {
        let later = TEXT.replace("0:20", "0:19");
        assert_eq!(Queue::read(TEXT, &Mark::of("abc")), Queue::read(&later, &Mark::of("abc")));
    }

    #[test]
    fn sbatch_tells_the_number() {
        assert_eq!(submitted("42\n"), Some(42));
        assert_eq!(submitted("42;cluster\n"), Some(42));
        assert_eq!(submitted("error\n"), None);
    }
}
