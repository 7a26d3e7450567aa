//! How a rank waits for another: it spins, then yields, then sleeps on a futex. Spinning is fastest while every rank has a core of its
//! own; with more ranks than cores it only keeps the awaited rank from running.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::transport::peer_table::PeerTable;

#[derive(Clone, Copy, Debug)]
pub struct WaitPolicy {
    /// Checks before the first yield. One takes 20 to 50 ns on recent processors.
    pub spins: u32,
    /// Checks after that, each with a `sched_yield` before it. A yield costs half a microsecond when no other thread wants the core; when the
    /// awaited rank does, it saves the rest of a time slice.
    pub yields: u32,
    /// The longest wait; `None`: unlimited, with a report.
    pub limit: Option<Duration>,
}

/// The longest sleep: a rank whose waker has died checks again by then. Survivors of an elastic job wait for it before they can go on.
const MAX_SLEEP: Duration = Duration::from_millis(10);
/// A longer wait is reported.
const REPORT_AFTER: Duration = Duration::from_millis(200);

impl WaitPolicy {
    pub fn new(n_local: usize, n_cores: usize) -> WaitPolicy {
        // A few microseconds, though every rank has a core: with as many ranks as cores two of them easily share one for a while.
        let spins = if n_local <= n_cores { 200 } else { 0 };
        WaitPolicy { spins, yields: 200, limit: None }
    }

    /// Checks `ready` without giving the core away; true once it holds.
    #[inline]
    pub fn spin(&self, mut ready: impl FnMut() -> bool) -> bool {
        for _ in 0..=self.spins {
            if ready() {
                return true;
            }
            spin_loop();
        }
        false
    }

    /// Yields and sleeps until `ready` holds, after [`WaitPolicy::spin`]. `sleep` must return when that may have changed, or after the given time.
    #[cold]
    pub fn wait(
        &self,
        peer_table: &PeerTable,
        rank: usize,
        mut ready: impl FnMut() -> bool,
        mut sleep: impl FnMut(Duration),
    ) -> Result<(), Error> {
        for _ in 0..self.yields {
            rustix::thread::sched_yield();
            if ready() {
                return Ok(());
            }
            // On a busy machine a yield takes milliseconds.
            if peer_table.first_failure().is_some() {
                break;
            }
        }
        let began = Instant::now();
        let mut is_reported = false;
        let outcome = loop {
            if peer_table.first_failure().is_none() {
                sleep(MAX_SLEEP);
            }
            if ready() {
                break Ok(());
            }
            if let Err(error) = peer_table.check(rank) {
                // Its last step may have completed before it ended, and counts.
                break if ready() { Ok(()) } else { Err(error) };
            }
            let waited = began.elapsed();
            if self.limit.is_some_and(|limit| waited > limit) {
                break Err(Error::Silent { peer: peer_table.peer(rank).clone(), waited });
            }
            if waited > REPORT_AFTER && !is_reported {
                is_reported = true;
                peer_table.begin_waiting(rank, began);
            }
        };
        if is_reported {
            peer_table.end_waiting();
        }
        outcome
    }
}
