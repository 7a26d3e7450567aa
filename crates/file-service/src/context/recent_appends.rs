//! Last block that each writer appended, so that a retried append does not write twice. In memory only.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

/// Recent appends by writer, for a bounded number of writers.
#[derive(Default)]
pub(crate) struct RecentAppends(Mutex<Writers>);

#[derive(Default)]
struct Writers {
    /// Per writer: number of the last block, and its offset.
    last: HashMap<String, (u64, u64)>,
    order: VecDeque<String>,
}

const MAX_WRITERS: usize = 4096;

impl RecentAppends {
    pub fn find_offset(&self, writer: &str, number: u64) -> Option<u64> {
        let writers = self.0.lock().expect("no one panics while holding it");
        writers.last.get(writer).filter(|(last, _)| *last == number).map(|(_, start)| *start)
    }

    pub fn has_writer(&self, writer: &str) -> bool {
        self.0.lock().expect("no one panics while holding it").last.contains_key(writer)
    }

    pub fn record(&self, writer: String, number: u64, start: u64) {
        let mut writers = self.0.lock().expect("no one panics while holding it");
        if writers.last.insert(writer.clone(), (number, start)).is_none() {
            writers.order.push_back(writer);
            if writers.order.len() > MAX_WRITERS
                && let Some(oldest) = writers.order.pop_front()
            {
                writers.last.remove(&oldest);
            }
        }
    }
}
