//! What the driver asks of its launcher.

/// Number of a process: from 1, never reused.
pub type ProcessId = u64;

/// Number of a generation: from 1; 0 is "none yet".
pub type Generation = u64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start the program in this slot.
    Start { process: ProcessId, host: String, slot: usize },
    /// Answer the members, which all wait, with their places. In the order of their ranks.
    Begin { generation: Generation, members: Vec<Member> },
    /// Answer the process, now or when it asks, that it is not part of the training any more. It exits by itself.
    Dismiss { process: ProcessId },
    /// End the process: SIGTERM, a grace period, SIGKILL.
    Kill { process: ProcessId },
    /// The members of the generation shall stop at their next commit.
    Notify { generation: Generation, change: Change },
    /// A line for people: what changed, and why.
    Report { text: String },
    /// The training is over. Follows only once; the launcher ends what still runs.
    Finish(Outcome),
}

/// Place of a process in a generation, with Horovod's rank numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub process: ProcessId,
    pub host: String,
    pub rank: usize,
    pub local_rank: usize,
    pub local_size: usize,
    pub cross_rank: usize,
    pub cross_size: usize,
}

/// How the hosts changed, with upstream's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Removed = 1,
    Added = 2,
    Both = 3,
}

impl Change {
    /// The change that consists of both; `None` stands for no change.
    pub(crate) fn join(before: Option<Change>, next: Change) -> Change {
        match before {
            None => next,
            Some(before) if before == next => next,
            Some(_) => Change::Both,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Succeeded,
    Failed { reason: String },
}
