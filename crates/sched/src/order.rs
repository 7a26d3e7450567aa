//! In what order the jobs of a queue are looked at: highest level first, then first come, first served. A job's level
//! is its priority, one higher for every `rise_after` since it was submitted, up to the highest. So whoever waits long
//! enough is in the end overtaken by nobody who came later.
//!
//! The queue is kept as one list for each priority. Inside a list the older job has the higher level, so the whole order
//! is a merge of three lists, and looking at its front costs nothing however long it is.

use std::cmp::Reverse;
use std::time::Duration;

use corro_model::Timestamp;
use corro_model::batchai::Priority;

use crate::Policy;
use crate::view::{Jobs, Waiting, WaitingView};

pub struct InOrder<'q> {
    lists: [PriorityList<'q>; 3],
    now: Timestamp,
    rise_after: Duration,
}

/// The jobs of one priority; the first of them is known with its turn.
struct PriorityList<'q> {
    priority: Priority,
    head: Option<(QueueRank, WaitingView<'q>)>,
    rest: Waiting<'q>,
}

/// Smaller comes first.
type QueueRank = (Reverse<Priority>, u64);

pub fn in_order<'q>(jobs: &'q (dyn Jobs + 'q), now: Timestamp, policy: &Policy) -> InOrder<'q> {
    let list = |priority| {
        let mut list = PriorityList { priority, head: None, rest: jobs.waiting(priority) };
        list.advance(now, policy.rise_after);
        list
    };
    InOrder { lists: [Priority::High, Priority::Normal, Priority::Low].map(list), now, rise_after: policy.rise_after }
}

impl<'q> Iterator for InOrder<'q> {
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

/// The priority that a job has come to count as.
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
