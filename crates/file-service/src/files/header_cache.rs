//! What was found out about small files that are read again and again: what is kept with each, and the headers that describe it. Entered by
//! `download`. It is good as long as the file has the same [`Mark`]. Every thread remembers by itself, so nobody waits for anybody.

use std::{cell::RefCell, sync::Arc};

use corro_shares::Mark;
use http::HeaderMap;

use crate::context::Context;
use crate::context::running_copies::is_pending;
use crate::files::file_headers::{Described, set_file};
use crate::preconditions::{lease, lease_headers};
use crate::protocol::request::Call;

/// Files that one thread remembers, of a few kB each.
const REMEMBERED: usize = 512;

/// A file, and what every answer about it says.
pub(crate) struct Known {
    pub described: Described,
    headers: HeaderMap,
}

impl Known {
    pub fn of(context: &Context<'_>, mut described: Described) -> Self {
        context.service.copies.settle(&mut described.properties);
        let mut headers = HeaderMap::new();
        set_file(&mut headers, context.call, &described, (context.service.now)());
        Known { described, headers }
    }

    pub fn into_headers(self: Arc<Self>) -> HeaderMap {
        match Arc::try_unwrap(self) {
            Ok(own) => own.headers,
            Err(shared) => shared.headers.clone(),
        }
    }

    /// Leases and copies end by themselves, and the file stays as it is.
    fn lasts(&self) -> bool {
        !lease::is_kept_in(&self.described.properties) && !is_pending(&self.described.properties)
    }
}

/// What the headers depend on besides the file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Asked {
    of_blobs: bool,
    speaks_smb: bool,
    tells_leases: bool,
}

struct Memory {
    mark: Mark,
    asked: Asked,
    known: Arc<Known>,
}

thread_local! {
    static MEMORIES: RefCell<Vec<Option<Memory>>> = RefCell::new((0..REMEMBERED).map(|_| None).collect());
}

/// What is known of the file with this mark, or else what `find` finds out. One without a mark is not remembered.
pub(crate) fn recall(call: &Call, mark: Option<Mark>, find: impl FnOnce() -> Option<Known>) -> Option<Arc<Known>> {
    let Some(mark) = mark else { return find().map(Arc::new) };
    let (of_blobs, speaks_smb) = (call.of_blobs, call.speaks_smb());
    let asked = Asked { of_blobs, speaks_smb, tells_leases: lease_headers::are_told_of_files(call) };
    // Files that were made together have numbers next to each other.
    let slot = (mark.id() % REMEMBERED as u64) as usize;
    MEMORIES.with_borrow_mut(|memories| {
        if let Some(memory) = memories[slot].as_ref().filter(|memory| memory.mark == mark && memory.asked == asked) {
            return Some(memory.known.clone());
        }
        let known = Arc::new(find()?);
        memories[slot] = known.lasts().then(|| Memory { mark, asked, known: known.clone() });
        Some(known)
    })
}

/// How many files this thread remembers.
#[cfg(test)]
pub(crate) fn remembered() -> usize {
    MEMORIES.with_borrow(|memories| memories.iter().flatten().count())
}
