//! Reports the exits of this node's processes to the server, root cause first.

use std::time::Duration;

use tokio::time::Instant;

use corro_model::node::RankExit;
use corro_model::root_cause::{Cause, cause_in};

use crate::events::Reporter;

/// How long an exit caused by another rank is delayed for that rank to end by itself.
const ROOT_CAUSE_WAIT: Duration = Duration::from_millis(500);

/// Exits to be reported. An exit caused by another rank is delayed for a moment: the server stops the whole gang at the
/// first failure, and the rank that caused it, on any node, should end by itself before.
#[derive(Default)]
pub struct ExitReports {
    ended: Vec<usize>,
    delayed: Vec<RankExit>,
    release_at: Option<Instant>,
}

impl ExitReports {
    pub fn release_time(&self) -> Option<Instant> {
        self.release_at.filter(|_| !self.delayed.is_empty())
    }

    /// Records and reports an exit. True if the siblings must be stopped now.
    pub async fn record_exit(&mut self, reporter: &Reporter, exit: RankExit) -> bool {
        self.ended.push(exit.rank);
        let has_failed = !exit.succeeded() && !exit.stopped;
        if has_failed && self.waits_for_root_cause(&exit.stderr_tail) {
            self.release_at.get_or_insert_with(|| Instant::now() + ROOT_CAUSE_WAIT);
            self.delayed.push(exit);
            return false;
        }
        reporter.exited(exit).await;
        if has_failed {
            self.release(reporter).await;
        }
        has_failed
    }

    /// Whether the stderr of a failed rank blames another rank that has not ended yet, or whose own exit is delayed.
    fn waits_for_root_cause(&self, stderr: &str) -> bool {
        let is_held = |rank| self.delayed.iter().any(|delayed| delayed.rank == rank);
        match cause_in(stderr).map(Cause::rank) {
            Some(Some(rank)) => !self.ended.contains(&rank) || is_held(rank),
            Some(None) => true,
            None => false,
        }
    }

    pub async fn release(&mut self, reporter: &Reporter) {
        for exit in self.delayed.drain(..) {
            reporter.exited(exit).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use corro_model::layout::Role;

    use super::*;

    #[test]
    fn exits_caused_by_delayed_exits_wait_too() {
        let delayed = RankExit {
            rank: 2,
            role: Role::Rank,
            index: 2,
            exit_code: Some(1),
            signal: None,
            stopped: false,
            at: corro_model::Timestamp::from_millis(0),
            stderr_tail: String::new(),
            out_of_memory: None,
            out_of_processes: None,
            gpu_errors: Vec::new(),
        };
        let reports = ExitReports { ended: vec![1, 2], delayed: vec![delayed], release_at: None };
        for (stderr, expected) in [
            ("HorovodInternalError: rank 0 on host n has died", true),
            ("HorovodInternalError: rank 2 on host n has died", true),
            ("HorovodInternalError: Horovod has been shut down.", true),
            ("HorovodInternalError: rank 1 on host n has died", false),
            ("ZeroDivisionError: division by zero", false),
        ] {
            assert_eq!(reports.waits_for_root_cause(stderr), expected, "{stderr}");
        }
    }
}
