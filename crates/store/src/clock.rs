//! The server's clock: wall-clock timestamps for records, and ages of timestamps that stay correct when the wall clock
//! is set.
//!
//! A [`Timeline`] compares the wall clock with the monotonic clock at every reading. When they diverge by more than
//! [`CLOCK_JUMP_THRESHOLD`], the wall clock was set (or the machine was suspended), and older timestamps are aged by the monotonic
//! clock alone. So setting the clock neither triggers deadlines nor prunes anything. Expiry of credentials (tokens,
//! SAS, certificates) uses the wall clock and is checked elsewhere.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use corro_model::Timestamp;

/// Smallest step of the wall clock against the monotonic clock that counts as a jump. Smaller steps are corrections of
/// drift.
pub const CLOCK_JUMP_THRESHOLD: Duration = Duration::from_secs(10);

/// Longest plausible time between the last durable timestamp and a start. A longer gap is taken for a wrong clock and
/// does not count into ages: a server that was off for months keeps its history that much longer.
pub const MAX_GAP: Duration = Duration::from_secs(7 * 24 * 3600);

/// Maximum number of stored spans; older ones are dropped if the clock is set again and again.
const MAX_SPANS: usize = 64;

/// A step of the wall clock against the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockJump {
    /// Expected wall-clock time.
    pub from: Timestamp,
    pub to: Timestamp,
}

impl ClockJump {
    /// Size of the step in milliseconds; negative when the clock was set back.
    pub fn millis(self) -> i64 {
        self.to.millis().saturating_sub(self.from.millis())
    }
}

/// History of the wall clock in this process. Pure: readings are arguments.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Monotonic time since the start, at the last reading.
    uptime: Duration,
    /// Wall-clock time of the start; the earliest estimate if later jumps give several.
    origin: Timestamp,
    /// Whether timestamps may predate a jump of the wall clock.
    has_jumped: bool,
    /// Spans in which both clocks ran alike, oldest first; the last is the current one. Never empty.
    spans: Vec<EvenSpan>,
}

#[derive(Clone, Copy, Debug)]
struct EvenSpan {
    first: Timestamp,
    last: Timestamp,
    /// Uptime at `last`.
    seen: Duration,
}

impl Timeline {
    /// Timeline of a process that starts now. Timestamps of earlier processes are taken as correct.
    pub fn starting(now: Timestamp) -> Self {
        let spans = vec![EvenSpan { first: now, last: now, seen: Duration::ZERO }];
        Self { uptime: Duration::ZERO, origin: now, has_jumped: false, spans }
    }

    /// Timeline of a process that starts now, with `newest` as the last timestamp of an earlier process. Also returns
    /// the jump between the two, if any.
    pub fn resuming(newest: Option<Timestamp>, now: Timestamp) -> (Self, Option<ClockJump>) {
        let timeline = Self::starting(now);
        let Some(newest) = newest else { return (timeline, None) };
        let is_jump = now.since(newest) > MAX_GAP || newest.since(now) > CLOCK_JUMP_THRESHOLD;
        let origin = if is_jump { newest.min(now) } else { now };
        (Self { origin, has_jumped: is_jump, ..timeline }, is_jump.then_some(ClockJump { from: newest, to: now }))
    }

    /// Records a reading of both clocks; returns the jump since the last reading, if any.
    pub fn observe(&mut self, wall: Timestamp, uptime: Duration) -> Option<ClockJump> {
        let uptime = uptime.max(self.uptime);
        self.uptime = uptime;
        let present = self.spans.last_mut().expect("a timeline begins with a span");
        let expected = present.last.plus(uptime - present.seen);
        if wall.since(expected).max(expected.since(wall)) <= CLOCK_JUMP_THRESHOLD {
            *present = EvenSpan { first: present.first.min(wall), last: wall, seen: uptime };
            return None;
        }
        let began = Timestamp::from_millis(wall.millis().saturating_sub(uptime.as_millis() as i64));
        self.origin = self.origin.min(began);
        self.has_jumped = true;
        if self.spans.len() == MAX_SPANS {
            self.spans.remove(0);
        }
        self.spans.push(EvenSpan { first: wall, last: wall, seen: uptime });
        Some(ClockJump { from: expected, to: wall })
    }

    /// Wall-clock time of the last reading.
    pub fn now(&self) -> Timestamp {
        self.present().last
    }

    /// Monotonic time since the start.
    pub fn uptime(&self) -> Duration {
        self.uptime
    }

    /// Wall-clock time of the start of this process; the earliest estimate.
    pub fn origin(&self) -> Timestamp {
        self.origin
    }

    /// Age of a timestamp of this clock, from this process or an earlier one, independent of jumps since. The smallest
    /// possible age if it is ambiguous. A timestamp in the future is from before this process.
    pub fn age(&self, stamp: Timestamp) -> Duration {
        let present = self.present();
        if self.present_begin() <= stamp && stamp <= present.last.plus(CLOCK_JUMP_THRESHOLD) {
            return present.last.since(stamp);
        }
        let former = self.spans.iter().rev().skip(1);
        match former.clone().find(|span| span.first <= stamp && stamp <= span.last) {
            Some(span) => self.uptime - span.seen + span.last.since(stamp),
            None => self.uptime + self.origin.since(stamp),
        }
    }

    /// Converts a timestamp to the current setting of the wall clock: `now` minus its age. Unchanged if there was no
    /// jump.
    pub fn rebase(&self, stamp: Timestamp) -> Timestamp {
        let present = self.present();
        if !self.has_jumped || present.first <= stamp && stamp <= present.last {
            return stamp;
        }
        Timestamp::from_millis(present.last.millis().saturating_sub(self.age(stamp).as_millis() as i64))
    }

    /// First timestamp of the current span. Without a jump, the span includes all earlier processes.
    fn present_begin(&self) -> Timestamp {
        if self.has_jumped { self.present().first } else { Timestamp::from_millis(i64::MIN) }
    }

    fn present(&self) -> &EvenSpan {
        self.spans.last().expect("a timeline begins with a span")
    }
}

/// Clock of a running server. Jumps are logged once, and kept until they are written to the history.
pub struct Clock {
    started: Instant,
    inner: Mutex<Inner>,
}

struct Inner {
    timeline: Timeline,
    unrecorded: Vec<ClockJump>,
}

impl Clock {
    /// Starts the clock. `newest` is the last durable timestamp.
    pub fn start(newest: Option<Timestamp>) -> Self {
        let (started, now) = (Instant::now(), Timestamp::from(SystemTime::now()));
        let (timeline, jump) = Timeline::resuming(newest, now);
        if let Some(ClockJump { from, to }) = jump {
            tracing::warn!(
                last = %from, now = %to,
                "the wall clock is far from the last entry of the history: correct it if it is wrong; this gap does \
                 not count into ages, so nothing is pruned because of it"
            );
        }
        Self { started, inner: Mutex::new(Inner { timeline, unrecorded: jump.into_iter().collect() }) }
    }

    pub fn now(&self) -> Timestamp {
        self.read().timeline.now()
    }

    /// Takes a reading and returns the timeline.
    pub fn timeline(&self) -> Timeline {
        self.read().timeline.clone()
    }

    /// Jumps that are not in the history yet, oldest first.
    pub(crate) fn unrecorded(&self) -> Vec<ClockJump> {
        self.lock().unrecorded.clone()
    }

    /// Removes the first `n` unrecorded jumps, after they were written to the history.
    pub(crate) fn recorded(&self, n: usize) {
        self.lock().unrecorded.drain(..n);
    }

    fn read(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.lock();
        let (wall, uptime) = self.read_both();
        if let Some(jump @ ClockJump { from, to }) = inner.timeline.observe(wall, uptime) {
            inner.unrecorded.push(jump);
            tracing::warn!(
                %from, %to,
                "the wall clock was set, or this machine was suspended: run times, deadlines and ages continue by \
                 the monotonic clock; nothing is ended or pruned because of it"
            );
        }
        inner
    }

    /// Reads both clocks together. Retries if the process was paused between the two readings, which would look like a
    /// jump.
    fn read_both(&self) -> (Timestamp, Duration) {
        let mut reading = (Timestamp::default(), Duration::ZERO);
        for _ in 0..3 {
            let before = Instant::now();
            reading = (Timestamp::from(SystemTime::now()), self.started.elapsed());
            if before.elapsed() < Duration::from_millis(100) {
                break;
            }
        }
        reading
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no one panics while holding the clock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_542_000_000_000);
    const HOUR: u64 = 3600;
    const DAY: u64 = 24 * HOUR;

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Time that many seconds after the start; negative for before it.
    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(START.millis() + seconds * 1000)
    }

    #[test]
    fn without_jumps_an_age_is_the_difference() {
        let mut timeline = Timeline::starting(START);
        for second in 1..=600 {
            // A clock that runs 0.1 % slow does not jump.
            assert_eq!(
                timeline.observe(Timestamp::from_millis(START.millis() + second * 999), secs(second as u64)),
                None
            );
        }
        let now = timeline.now();
        for stamp in [at(-5_000_000), at(-1), START, at(300), now] {
            assert_eq!((timeline.age(stamp), timeline.rebase(stamp)), (now.since(stamp), stamp), "{stamp}");
        }
    }

    #[test]
    fn a_jump_forward_makes_nothing_older() {
        let mut timeline = Timeline::starting(START);
        timeline.observe(at(60), secs(60));
        let jumped = 400 * DAY as i64;
        let jump = timeline.observe(at(61 + jumped), secs(61)).expect("a jump");
        assert_eq!((jump.from, jump.millis()), (at(61), jumped * 1000));
        assert_eq!(timeline.observe(at(90 + jumped), secs(90)), None, "told once");
        for (stamp, age) in [(-(HOUR as i64), 90 + HOUR), (0, 90), (30, 60), (61 + jumped, 29), (90 + jumped, 0)] {
            assert_eq!(timeline.age(at(stamp)), secs(age), "{stamp}");
        }
        assert_eq!(timeline.rebase(at(30)), at(30 + jumped));
    }

    #[test]
    fn a_jump_back_lets_no_deadline_wait_for_the_old_time() {
        let mut timeline = Timeline::starting(START);
        timeline.observe(at(60), secs(60));
        let jump = timeline.observe(at(61 - 3 * DAY as i64), secs(61)).expect("a jump");
        assert_eq!(jump.millis(), -3 * DAY as i64 * 1000);
        timeline.observe(at(90 - 3 * DAY as i64), secs(90));
        assert_eq!(timeline.age(at(30)), secs(60), "stamped before the jump");
        assert_eq!(timeline.age(at(70 - 3 * DAY as i64)), secs(20), "stamped after it");
        assert!(
            timeline.age(at(DAY as i64)) <= secs(90) && timeline.age(at(DAY as i64)) > secs(60),
            "from a clock ahead"
        );
        assert!(timeline.age(at(-10)) <= secs(100), "the least that is possible");
    }

    #[test]
    fn a_correction_after_a_start_with_a_wrong_clock_makes_nothing_older() {
        // The clock was four years ahead when the process started, and is then corrected.
        let ahead = 4 * 365 * DAY as i64;
        let mut timeline = Timeline::starting(at(ahead));
        timeline.observe(at(60), secs(60)).expect("a jump");
        assert_eq!(timeline.age(at(-(DAY as i64))), secs(60 + DAY));
        assert_eq!(timeline.age(at(ahead)), secs(60));
    }

    #[test]
    fn a_start_long_after_the_last_stamp_is_not_believed() {
        let check = |newest: Option<i64>, jumps: bool, age: u64| {
            let (timeline, jump) = Timeline::resuming(newest.map(at), START);
            let stamp = newest.unwrap_or(0) - HOUR as i64;
            assert_eq!((jump.is_some(), timeline.age(at(stamp))), (jumps, secs(age)), "{newest:?}");
        };
        check(None, false, HOUR);
        check(Some(-60), false, HOUR + 60);
        check(Some(-(6 * DAY as i64)), false, 6 * DAY + HOUR);
        check(Some(-(400 * DAY as i64)), true, HOUR);
        check(Some(HOUR as i64 + 30), true, 0);
    }

    #[test]
    fn what_is_remembered_of_a_restless_clock_is_bounded() {
        let mut timeline = Timeline::starting(START);
        for n in 1..1_000 {
            let wall = at(if n % 2 == 0 { n } else { n + DAY as i64 });
            assert!(timeline.observe(wall, secs(n as u64)).is_some());
        }
        assert_eq!(timeline.spans.len(), MAX_SPANS);
    }
}
