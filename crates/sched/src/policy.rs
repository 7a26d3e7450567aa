//! Tunable time spans and limits of the planner. Passed in with each snapshot; nothing is read from the environment.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// A job's effective priority rises by one after this wait, and by two after twice this wait.
    pub rise_after: Duration,
    /// Idle time after which an autoScale cluster releases a node that it does not need.
    pub idle_timeout: Duration,
    /// Expected time until a requested node is ready. A node that takes longer is no longer part of forecasts.
    pub node_start_timeout: Duration,
    /// Wait of a dedicated node for a machine, after which the machine of a low-priority node is preempted for it.
    pub reclaim_after: Duration,
    /// Time after which a node that an elastic job was asked to give back is free at the latest.
    pub release_timeout: Duration,
    /// Shortest time between a change of an elastic job's size and its growth.
    pub settle_time: Duration,
    /// Jobs behind the blocked head of the queue that are examined for backfill.
    pub backfill_depth: usize,
}

impl Policy {
    pub const STANDARD: Self = Self {
        rise_after: Duration::from_secs(6 * 3600),
        idle_timeout: Duration::from_secs(60),
        node_start_timeout: Duration::from_secs(5 * 60),
        reclaim_after: Duration::from_secs(20),
        release_timeout: Duration::from_secs(60),
        settle_time: Duration::from_secs(5),
        backfill_depth: 1_000,
    };
}
