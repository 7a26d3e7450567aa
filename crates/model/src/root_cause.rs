//! Finds the rank whose failure made a gang fail. When one rank exits, the engine of every other rank raises an error
//! that names it, and those processes exit within milliseconds of each other, in any order. Pure.

/// Exit of a rank's process, or another failure on its node.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// `None` for a failure without a rank, such as a process that could not be started.
    pub rank: Option<usize>,
    /// Time of the exit, for comparison with the others, in any unit. Clocks of different machines may differ.
    pub at: i64,
    pub succeeded: bool,
    /// The process was asked to stop before it exited.
    pub stopped: bool,
    /// Last lines of its standard error.
    pub stderr: &'a str,
}

/// Statement of an engine's error about another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// That rank exited first.
    Ended(usize),
    /// That rank was unreachable or did not answer; it may be a victim as well.
    Unreachable(usize),
    /// An unnamed rank exited first.
    Unnamed,
}

impl Cause {
    pub fn rank(self) -> Option<usize> {
        match self {
            Cause::Ended(rank) | Cause::Unreachable(rank) => Some(rank),
            Cause::Unnamed => None,
        }
    }
}

/// Index of the root cause in `ends`; `None` when no process failed by itself. Candidates, in this order: a rank that
/// failed by itself and that others name as the first to exit; the earliest whose last lines name no other rank; one
/// that others name and that was stopped while it was exiting; one that others could not reach; the earliest.
pub fn find_root_cause(ends: &[End<'_>]) -> Option<usize> {
    let mut failed: Vec<usize> = (0..ends.len()).filter(|index| failed_by_itself(&ends[*index])).collect();
    failed.sort_by_key(|index| ends[*index].at);
    let first = *failed.first()?;
    let causes: Vec<Option<Cause>> = ends.iter().map(cause_of).collect();
    let named = |is_certain: bool, accept: fn(&End) -> bool| {
        failed.iter().find_map(|start| follow(ends, &causes, *start, is_certain).filter(|end| accept(&ends[*end])))
    };
    named(true, failed_by_itself)
        .or_else(|| failed.iter().copied().find(|index| causes[*index].is_none()))
        .or_else(|| named(true, |_| true))
        .or_else(|| named(false, failed_by_itself))
        .or(Some(first))
}

/// Cause that the last lines of a process name; the last line that names one counts.
pub fn cause_in(stderr: &str) -> Option<Cause> {
    stderr.lines().rev().find_map(cause_in_line)
}

fn failed_by_itself(end: &End) -> bool {
    !end.succeeded && !end.stopped
}

/// Cause that an exit names, unless it names its own rank.
fn cause_of(end: &End) -> Option<Cause> {
    end.rank?;
    cause_in(end.stderr).filter(|cause| cause.rank() != end.rank)
}

/// Follows the named causes from a failed rank to the last one. `None` when the start names no rank, or on a cycle.
fn follow(ends: &[End], causes: &[Option<Cause>], start: usize, is_certain: bool) -> Option<usize> {
    let mut current = start;
    let mut visited = vec![start];
    loop {
        let named = match causes[current] {
            Some(Cause::Ended(rank)) => rank,
            Some(Cause::Unreachable(rank)) if !is_certain => rank,
            _ => break,
        };
        let next = ends.iter().position(|end| end.rank == Some(named) && !end.succeeded);
        match next {
            Some(next) if visited.contains(&next) => return None,
            Some(next) => current = next,
            None => break,
        }
        visited.push(current);
    }
    (current != start).then_some(current)
}

/// A phrase that follows a rank number in the engine's errors, and its meaning for that rank.
type Phrase = (&'static str, fn(usize) -> Cause);

const PHRASES: [Phrase; 14] = [
    (" was the first to shut down or to exit", Cause::Ended),
    (" has died", Cause::Ended),
    (" has left while others still needed it", Cause::Ended),
    (" before all ranks had joined", Cause::Ended),
    (" ended, or gave up, before ", Cause::Ended),
    (" closed the connection during the rendezvous", Cause::Ended),
    // Phrases of the previous version.
    (" hung up during the meeting", Cause::Ended),
    (" could not begin; its own message says why", Cause::Ended),
    (" was lost", Cause::Unreachable),
    (" broke", Cause::Unreachable),
    (" has not answered for ", Cause::Unreachable),
    (" did not join the rendezvous", Cause::Unreachable),
    // Phrases of the previous version.
    (" did not come to the meeting", Cause::Unreachable),
    (" was not found at ", Cause::Unreachable),
];

fn cause_in_line(line: &str) -> Option<Cause> {
    let phrase = PHRASES.iter().find_map(|(phrase, cause)| {
        let before = &line[..line.find(phrase)?];
        Some(cause(last_rank(before)?))
    });
    phrase.or_else(|| line.contains("Horovod has been shut down.").then_some(Cause::Unnamed))
}

/// Number after the last `rank` or `ranks` of a text.
fn last_rank(text: &str) -> Option<usize> {
    let words = text.rmatch_indices("ank").filter_map(|(at, _)| {
        let rest = &text[at + 3..];
        let rest = rest.strip_prefix('s').unwrap_or(rest).strip_prefix(' ')?;
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        rest[..digits].parse().ok()
    });
    words.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_errors_name_their_cause() {
        for (text, expected) in [
            ("", None),
            ("ValueError: rank 3 is wrong", None),
            ("horovod.common.exceptions.HorovodInternalError: rank 2 on host n1 has died", Some(Cause::Ended(2))),
            ("rank 12 on host has died has left while others still needed it", Some(Cause::Ended(12))),
            ("error: rank 0 could not begin; its own message says why", Some(Cause::Ended(0))),
            ("the connection to rank 1 on host h was lost", Some(Cause::Unreachable(1))),
            ("the connection to rank 1 on host h broke", Some(Cause::Unreachable(1))),
            ("rank 4 on host h has not answered for 30 s", Some(Cause::Unreachable(4))),
            (
                "HorovodInternalError: Horovod has been shut down. This was caused by an exception on one of the ranks or an \
                 attempt to allreduce. Rank 0 was the first to shut down or to exit.",
                Some(Cause::Ended(0)),
            ),
            ("Horovod has been shut down. This was caused by an exception on one of the ranks", Some(Cause::Unnamed)),
            (
                "ValueError: Horovod initialization failed: the ranks did not come together: the ranks could not be told of each \
                 other: the ranks cannot meet: rank 2 on host n1 ended with exit code 1 before all ranks had joined",
                Some(Cause::Ended(2)),
            ),
            (
                "rank 0 called the meeting off: rank 2 ended, or gave up, before ranks 3, 4 had joined",
                Some(Cause::Ended(2)),
            ),
            ("rank 0 closed the connection during the rendezvous: it has most likely died", Some(Cause::Ended(0))),
            ("rank 0 hung up during the meeting: it died, most likely", Some(Cause::Ended(0))),
            ("ranks 2, 3 did not join the rendezvous within 30.0s", Some(Cause::Unreachable(2))),
            ("ranks 2, 3 did not come to the meeting within 30.0s", Some(Cause::Unreachable(2))),
            ("rank 1 on host h has died\nrank 2 on host h has died\nbye\n", Some(Cause::Ended(2))),
        ] {
            assert_eq!(cause_in(text), expected, "{text}");
        }
    }

    const RAISED: &str = "Traceback\nZeroDivisionError: division by zero";

    fn end(rank: usize, at: i64, stderr: &str) -> End<'_> {
        End { rank: Some(rank), at, succeeded: false, stopped: false, stderr }
    }

    fn stopped(rank: usize, at: i64, stderr: &str) -> End<'_> {
        End { stopped: true, ..end(rank, at, stderr) }
    }

    fn check(ends: &[End], expected: Option<usize>) {
        // In every order, since reports come from several nodes.
        let mut ends = ends.to_vec();
        for _ in 0..ends.len().max(1) {
            let found = find_root_cause(&ends).map(|index| ends[index].rank);
            assert_eq!(found, expected.map(Some), "{ends:?}");
            let n_steps = usize::from(!ends.is_empty());
            ends.rotate_left(n_steps);
        }
    }

    #[test]
    fn the_rank_that_failed_first_is_found() {
        let two_died = "HorovodInternalError: rank 2 on host h has died";
        let two_left = "Horovod has been shut down. Rank 2 was the first to shut down or to exit.";
        let unnamed = "Horovod has been shut down. This was caused by";
        let (lost_1, lost_2) =
            ("the connection to rank 1 on host h was lost", "the connection to rank 2 on host h broke");
        check(&[], None);
        check(&[End { succeeded: true, ..end(0, 1, "") }, stopped(1, 2, "")], None);
        check(&[end(0, 5, RAISED), end(1, 4, RAISED)], Some(1));
        // The order of their exits does not matter.
        check(&[end(0, 1, two_died), end(1, 2, two_died), end(2, 3, RAISED)], Some(2));
        check(&[end(0, 1, two_left), end(1, 2, two_died), end(2, 3, "")], Some(2));
        check(&[end(0, 1, unnamed), end(2, 3, RAISED)], Some(2));
        // Rank 2 was still exiting when it was asked to stop.
        check(&[end(0, 1, two_left), stopped(1, 2, two_left), stopped(2, 3, RAISED)], Some(2));
        // Rank 3 failed by itself, and rank 2 was stopped because of that.
        check(&[end(0, 2, two_died), end(3, 1, RAISED), stopped(2, 1, "")], Some(3));
        // Causes are followed over several ranks.
        check(&[end(0, 1, lost_1), end(1, 2, two_died), end(2, 3, RAISED)], Some(2));
        check(&[end(0, 1, lost_1), end(1, 2, lost_2), end(2, 3, lost_1)], Some(0));
        check(&[end(0, 1, lost_1), stopped(1, 2, "")], Some(0));
        // Rank 2 exited successfully while the others needed it: the error says so.
        check(&[end(0, 1, two_left), End { succeeded: true, ..end(2, 0, "") }], Some(0));
        check(&[end(2, 1, two_left), end(0, 2, two_left)], Some(2));
    }

    #[test]
    fn a_failure_beside_the_ranks_counts_as_one_of_its_own() {
        let task = End { rank: None, ..end(0, 9, "") };
        let ends = [end(0, 1, "rank 2 on host h has died"), task];
        assert_eq!(find_root_cause(&ends), Some(1));
    }
}
