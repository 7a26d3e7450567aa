//! How a rank waits for another: looks for a moment, lets others run, then sleeps in the kernel. Looking is fastest while every
//! rank has a core of its own; with more ranks than cores it only keeps the awaited one from running.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::transport::roster::Roster;

#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Looks before the first yield. One takes 20 to 50 ns on recent processors.
    pub spins: u32,
    /// Looks after that, each with a yield before it, until the kernel is asked to wake us. A yield costs half a microsecond when nobody
    /// else wants the core; when a rank does that we wait for, it saves the rest of a time slice.
    pub yields: u32,
    /// How long a silent peer is waited for; `None`: for ever, with a report.
    pub limit: Option<Duration>,
}

/// The longest sleep. Whoever is not woken, because the waker has died, looks again by then.
const NAP: Duration = Duration::from_millis(50);
/// From here on a wait is worth a word.
const LONG: Duration = Duration::from_millis(200);

impl Patience {
    pub fn of(n_local: usize, n_cores: usize) -> Patience {
        // A few microseconds, though every rank has a core: with as many ranks as cores two of them easily share one for a while.
        let spins = if n_local <= n_cores { 200 } else { 0 };
        Patience { spins, yields: 200, limit: None }
    }

    /// Looks for a moment.
    #[inline]
    pub fn look(&self, mut ready: impl FnMut() -> bool) -> bool {
        for _ in 0..=self.spins {
            if ready() {
                return true;
            }
            spin_loop();
        }
        false
    }

    /// After that, until `ready`; `sleep` is to return when that may have changed, or after the time given to it.
    #[cold]
    pub fn wait(
        &self,
        roster: &Roster,
        rank: usize,
        mut ready: impl FnMut() -> bool,
        mut sleep: impl FnMut(Duration),
    ) -> Result<(), Error> {
        for _ in 0..self.yields {
            rustix::thread::sched_yield();
            if ready() {
                return Ok(());
            }
        }
        let began = Instant::now();
        let mut told = false;
        let outcome = loop {
            sleep(NAP);
            if ready() {
                break Ok(());
            }
            if let Err(error) = roster.check(rank) {
                // What it did before its end counts, and was done before its end was known.
                break if ready() { Ok(()) } else { Err(error) };
            }
            let waited = began.elapsed();
            if self.limit.is_some_and(|limit| waited > limit) {
                break Err(Error::Silent { peer: roster.peer(rank).clone(), waited });
            }
            if waited > LONG && !told {
                told = true;
                roster.begin_waiting(rank, began);
            }
        };
        if told {
            roster.end_waiting();
        }
        outcome
    }
}
