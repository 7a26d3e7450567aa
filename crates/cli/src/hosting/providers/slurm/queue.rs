//! What Slurm knows of this server's allocations: reads what `squeue` prints, and says of each node whether something of it
//! lives and why not. Pure.

use std::collections::BTreeMap;

use corro_model::NodeId;

use super::submission::Mark;

/// For `squeue`: number, state, reason and name of each job. Names can hold anything, so they come last.
pub const FORMAT: &str = "%A|%T|%r|%j";

/// This server's allocations, those that ended lately among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// By node; one that was asked for twice has several.
    nodes: BTreeMap<NodeId, Vec<Allocation>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    pub job: u64,
    state: String,
    reason: String,
}

impl Queue {
    /// From the lines of `squeue`. Jobs of others are passed over.
    pub fn read(text: &str, mark: &Mark) -> Self {
        let mut nodes: BTreeMap<NodeId, Vec<Allocation>> = BTreeMap::new();
        for line in text.lines() {
            let mut fields = line.splitn(4, '|');
            let mut next = || fields.next().map(str::trim);
            let (Some(job), Some(state), Some(reason), Some(name)) = (next(), next(), next(), next()) else { continue };
            if let (Ok(job), Some(node)) = (job.parse(), mark.node(name)) {
                let allocation = Allocation { job, state: state.to_owned(), reason: reason.to_owned() };
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
    pub fn says(&self, node: &NodeId) -> Option<String> {
        let last = self.of(node).iter().max_by_key(|allocation| (allocation.lives(), allocation.job))?;
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

/// The number that `sbatch --parsable` prints, before the cluster's name if there is one.
pub fn submitted(text: &str) -> Option<u64> {
    text.lines().last()?.split(';').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "12|PENDING|Resources|corro-abc-tvm-1_1-20261116t220000z-p\n\
        13|RUNNING|None|corro-abc-tvm-1_2-20261116t220000z-p\n\
        11|TIMEOUT|TimeLimit|corro-abc-tvm-1_3-20261116t220000z-p\n\
        9|FAILED|NonZeroExitCode|corro-abc-tvm-1_1-20261116t220000z-p\n\
        14|COMPLETING|None|corro-abc-tvm-1_4-20261116t220000z-p\n\
        15|RUNNING|None|corro-other-tvm-1_5-20261116t220000z-p\n\
        16|RUNNING|None|somebody|else\n\
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
        assert_eq!(living, [vec![12], vec![13], vec![14]]);
    }

    #[test]
    fn sbatch_tells_the_number() {
        assert_eq!(submitted("42\n"), Some(42));
        assert_eq!(submitted("42;cluster\n"), Some(42));
        assert_eq!(submitted("error\n"), None);
    }
}
