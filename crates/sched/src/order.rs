//! In what order the jobs of a queue are looked at: highest level first, then first come, first served. A job's level
//! is its priority, one higher for every `rise_after` since it was submitted, up to the highest. So whoever waits long
//! enough is in the end overtaken by nobody who came later.
//!
//! The queue is kept as one list for each priority. Inside a list the older job has the higher level, so the whole order
//! is a merge of three lists, and looking at its front costs nothing however long it is.

use std::iter::Peekable;
use std::time::Duration;

use corro_model::Timestamp;
use corro_model::batchai::Priority;

use crate::Policy;
use crate::view::{Queue, Waiting, WaitingView};

pub struct InOrder<'q> {
    lists: [(Priority, Peekable<Waiting<'q>>); 3],
    now: Timestamp,
    rise_after: Duration,
}

pub fn in_order<'q>(queue: &'q (dyn Queue + 'q), now: Timestamp, policy: &Policy) -> InOrder<'q> {
    let list = |priority| (priority, queue.waiting(priority).peekable());
    InOrder { lists: [Priority::High, Priority::Normal, Priority::Low].map(list), now, rise_after: policy.rise_after }
}

impl<'q> Iterator for InOrder<'q> {
    type Item = WaitingView<'q>;

    fn next(&mut self) -> Option<WaitingView<'q>> {
        let (now, rise_after) = (self.now, self.rise_after);
        let heads = self.lists.iter_mut().enumerate().filter_map(|(i, (priority, list))| {
            let head = list.peek()?;
            let level = level(*priority, now.since(head.submitted), rise_after);
            Some((std::cmp::Reverse(level), head.sequence, i))
        });
        let (_, _, first) = heads.min()?;
        self.lists[first].1.next()
    }
}

/// The priority that a job has come to count as.
pub fn level(priority: Priority, waited: Duration, rise_after: Duration) -> Priority {
    let rises = match rise_after.as_millis() {
        0 => u128::MAX,
        step => waited.as_millis() / step,
    };
    match (priority, rises) {
        (Priority::High, _) | (Priority::Normal, 1..) | (Priority::Low, 2..) => Priority::High,
        (Priority::Normal, 0) | (Priority::Low, 1) => Priority::Normal,
        (Priority::Low, 0) => Priority::Low,
    }
}
