//! Tracks clients that follow the logs of running jobs. The Azure CLI reads a log, then queries the job, and stops at
//! the first terminal state: output written between the two would be lost. Such a client therefore sees a job that has
//! just ended as running until every follower has read its log once more. Our own client reads again by itself; it and
//! all others see the end at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use corro_model::Timestamp;

/// Maximum time for which the end of a job is hidden.
const MAX_DELAY: Duration = Duration::from_secs(3);
/// A client without a read for this long before the end no longer counts as a follower.
const FOLLOWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The end is stamped with the start time of its reconcile pass; a read shortly after that may have missed the last
/// bytes.
const END_TIME_MARGIN: Duration = Duration::from_millis(250);
const MAX_FOLLOWERS: usize = 1000;

/// Whether the end of a job is still hidden, given the last read of each follower.
fn is_end_delayed(ended: Timestamp, reads: impl IntoIterator<Item = Timestamp>, now: Timestamp) -> bool {
    let is_fresh = now >= ended && now.since(ended) < MAX_DELAY;
    let missed_it =
        |read_at: Timestamp| read_at.plus(FOLLOWER_TIMEOUT) >= ended && read_at <= ended.plus(END_TIME_MARGIN);
    is_fresh && reads.into_iter().any(missed_it)
}

/// Last read of each follower. Cheap to clone; clones share the table.
#[derive(Clone, Default)]
pub struct LogFollowers(Arc<Mutex<HashMap<Follower, Timestamp>>>);

#[derive(Clone, PartialEq, Eq, Hash)]
struct Follower {
    /// SAS signature and address, or only the address for a client that still looks for the file.
    reader: String,
    path: String,
}

impl LogFollowers {
    /// Records a read of a job's output file.
    pub fn record_read(&self, reader: &str, address: &str, path: &str, now: Timestamp) {
        let mut followers = self.lock();
        // The client that listed the directory has found the file.
        followers.retain(|follower, _| follower.reader != address || !is_inside(path, &follower.path));
        let reader = format!("{reader} {address}");
        record(&mut followers, Follower { reader, path: path.to_owned() }, now);
    }

    /// Records a listing of the output directory `segment` of a job.
    pub fn record_listing(&self, address: &str, segment: &str, now: Timestamp) {
        let follower = Follower { reader: address.to_owned(), path: segment.to_owned() };
        record(&mut self.lock(), follower, now);
    }

    /// Whether the end of the job that writes to `segment` is hidden from clients that stop at it.
    pub fn delay_terminal_state(&self, segment: &str, ended: Timestamp, now: Timestamp) -> bool {
        let followers = self.lock();
        let mine = followers.iter().filter(|(follower, _)| is_inside(&follower.path, segment));
        is_end_delayed(ended, mine.map(|(_, read_at)| *read_at), now)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Follower, Timestamp>> {
        self.0.lock().expect("no one panics while holding the lock")
    }
}

fn record(followers: &mut HashMap<Follower, Timestamp>, follower: Follower, now: Timestamp) {
    if followers.len() >= MAX_FOLLOWERS {
        followers.retain(|_, read_at| read_at.plus(FOLLOWER_TIMEOUT + MAX_DELAY) >= now);
    }
    // Followers beyond the limit are not tracked.
    if followers.len() < MAX_FOLLOWERS || followers.contains_key(&follower) {
        followers.insert(follower, now);
    }
}

/// Whether a path belongs to a job. A job's segment ends with a unique id, so it occurs only in the paths of the job's
/// files.
fn is_inside(path: &str, segment: &str) -> bool {
    format!("/{path}/").contains(&format!("/{segment}/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: i64 = 1_000_000;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(END + millis)
    }

    #[test]
    fn an_end_is_delayed_until_every_follower_has_read_again() {
        let check = |reads: &[i64], now: i64, expected: bool| {
            let found = is_end_delayed(at(0), reads.iter().map(|read_at| at(*read_at)), at(now));
            assert_eq!(found, expected, "reads {reads:?}, asked at {now}");
        };
        check(&[], 10, false);
        check(&[-10], 10, true);
        check(&[-10], 2_999, true);
        check(&[-10], 3_000, false);
        check(&[-5_000], 10, true);
        check(&[-5_001], 10, false);
        // The pass that ended the job had already begun.
        check(&[200], 300, true);
        check(&[251], 300, false);
        check(&[-10, 900], 1_000, true);
        check(&[800, 900], 1_000, false);
        // The clock was set back.
        check(&[-10], -20, false);
    }

    #[test]
    fn followers_belong_to_the_job_that_wrote_the_file() {
        let followers = LogFollowers::default();
        let log = "logs/sub/group/jobs/one/guid/stdouterr/stdout.txt";
        followers.record_read("link:1", "10.0.0.1", log, at(-10));
        assert!(followers.delay_terminal_state("sub/group/jobs/one/guid", at(0), at(10)));
        assert!(!followers.delay_terminal_state("sub/group/jobs/one/gui", at(0), at(10)));
        assert!(!followers.delay_terminal_state("sub/group/jobs/two/guid", at(0), at(10)));
        followers.record_read("link:1", "10.0.0.1", log, at(900));
        assert!(!followers.delay_terminal_state("sub/group/jobs/one/guid", at(0), at(1_000)));
    }

    #[test]
    fn a_client_that_lists_the_directory_follows_until_it_reads_the_file() {
        let (followers, segment) = (LogFollowers::default(), "sub/jobs/one/guid");
        followers.record_listing("10.0.0.1", segment, at(-10));
        assert!(followers.delay_terminal_state(segment, at(0), at(10)));
        followers.record_read("link:1", "10.0.0.1", "sub/jobs/one/guid/stdouterr/stdout.txt", at(900));
        assert!(!followers.delay_terminal_state(segment, at(0), at(1_000)));
    }

    #[test]
    fn followers_are_bounded_and_expired_ones_are_dropped() {
        let followers = LogFollowers::default();
        for number in 0..2 * MAX_FOLLOWERS {
            followers.record_listing("10.0.0.1", &format!("job{number}"), at(0));
        }
        assert_eq!(followers.lock().len(), MAX_FOLLOWERS);
        followers.record_listing("10.0.0.1", "another", at(60_000));
        assert_eq!(followers.lock().len(), 1);
    }
}
