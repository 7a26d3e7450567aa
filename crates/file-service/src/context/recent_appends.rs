//! Last block that each writer appended, so that a retried append writes nothing twice. In memory only.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

/// The last block that each writer appended, so that asking again after a broken connection appends nothing twice.
#[derive(Default)]
pub(crate) struct Appended(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    /// By writer: the number of the block, and where it begins.
    last: HashMap<String, (u64, u64)>,
    order: VecDeque<String>,
}

const MAX_WRITERS: usize = 4096;

impl Appended {
    pub fn find(&self, writer: &str, number: u64) -> Option<u64> {
        let remembered = self.0.lock().expect("no one panics while holding it");
        remembered.last.get(writer).filter(|(last, _)| *last == number).map(|(_, start)| *start)
    }

    pub fn knows(&self, writer: &str) -> bool {
        self.0.lock().expect("no one panics while holding it").last.contains_key(writer)
    }

    pub fn note(&self, writer: String, number: u64, start: u64) {
        let mut remembered = self.0.lock().expect("no one panics while holding it");
        if remembered.last.insert(writer.clone(), (number, start)).is_none() {
            remembered.order.push_back(writer);
            if remembered.order.len() > MAX_WRITERS
                && let Some(oldest) = remembered.order.pop_front()
            {
                remembered.last.remove(&oldest);
            }
        }
    }
}
