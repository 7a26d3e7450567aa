//! Queue order: highest effective priority first, then first come, first served. The effective priority rises by one
//! for every `rise_after` since submission, up to the highest. A job that has waited long enough is therefore not
//! overtaken by any later submission.
//!
//! The queue is stored as one list per priority. Within a list the older job has the higher effective priority, so the
//! whole order is a merge of three lists, and its head costs the same at any queue length.

use std::cmp::Reverse;
use std::time::Duration;

use corro_model::Timestamp;
use corro_model::batchai::Priority;

use crate::Policy;
use crate::view::{Jobs, WaitingIter, WaitingView};

pub struct QueueIter<'q> {
    lists: [PriorityList<'q>; 3],
    now: Timestamp,
    rise_after: Duration,
}

/// Jobs of one priority, with the head and its rank already read.
struct PriorityList<'q> {
    priority: Priority,
    head: Option<(QueueRank, WaitingView<'q>)>,
    rest: WaitingIter<'q>,
}

/// Effective priority and submission number; smaller ranks start first.
type QueueRank = (Reverse<Priority>, u64);

pub fn in_order<'q>(jobs: &'q (dyn Jobs + 'q), now: Timestamp, policy: &Policy) -> QueueIter<'q> {
    let list = |priority| {
        let mut list = PriorityList { priority, head: None, rest: jobs.waiting(priority) };
        list.advance(now, policy.rise_after);
        list
    };
    QueueIter { lists: [Priority::High, Priority::Normal, Priority::Low].map(list), now, rise_after: policy.rise_after }
}

impl<'q> Iterator for QueueIter<'q> {
    type Item = WaitingView<'q>;

    fn next(&mut self) -> Option<WaitingView<'q>> {
        let waiting = self.lists.iter_mut().filter(|list| list.head.is_some());
        let first = waiting.min_by_key(|list| list.head.map(|(rank, _)| rank))?;
        let job = first.head.map(|(_, job)| job);
        first.advance(self.now, self.rise_after);
        job
    }
}

impl PriorityList<'_> {
    fn advance(&mut self, now: Timestamp, rise_after: Duration) {
        self.head = self.rest.next().map(|job| {
            let level = level(self.priority, now.since(job.submitted), rise_after);
            ((Reverse(level), job.sequence), job)
        });
    }
}

/// Effective priority of a job that has waited for `waited`.
pub fn level(priority: Priority, waited: Duration, rise_after: Duration) -> Priority {
    let rises = |times: u32| waited >= rise_after.saturating_mul(times);
    match priority {
        Priority::High => Priority::High,
        Priority::Normal if rises(1) => Priority::High,
        Priority::Normal => Priority::Normal,
        Priority::Low if rises(2) => Priority::High,
        Priority::Low if rises(1) => Priority::Normal,
        Priority::Low => Priority::Low,
    }
}
