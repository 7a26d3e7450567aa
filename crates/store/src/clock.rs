//! The server's clock: wall-clock stamps for records, and ages of stamps that do not follow when the wall clock is set.
//!
//! A [`Timeline`] compares the wall clock with the monotonic one at every reading. Where they part by more than [`JUMP`], the wall
//! clock was set (or the machine was suspended), and stamps from before are aged by the monotonic clock alone. So no deadline is
//! reached, and nothing is old enough to be pruned, because somebody set the clock. Credentials (tokens, signed links,
//! certificates) are compared with the wall clock itself, elsewhere.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use corro_model::Timestamp;

/// The smallest step of the wall clock against the monotonic one that counts as a jump. Smaller steps are corrections of a
/// clock that runs a little fast or slow.
pub const JUMP: Duration = Duration::from_secs(10);

/// The longest time without any durable stamp that is believed at start. A longer one is taken for a wrong clock, and is not
/// counted into ages: a server that was off for months keeps its history that much longer.
pub const MAX_GAP: Duration = Duration::from_secs(7 * 24 * 3600);

/// Of a clock that is set again and again only the last spans are known.
const MAX_SPANS: usize = 64;

/// A step of the wall clock against the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockJump {
    /// What the wall clock should have shown.
    pub from: Timestamp,
    pub to: Timestamp,
}

impl ClockJump {
    /// Negative when the clock was set back.
    pub fn millis(self) -> i64 {
        self.to.millis().saturating_sub(self.from.millis())
    }
}

/// How the wall clock ran in this process. Pure: readings are handed in.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Monotonic time since the start, at the last reading.
    uptime: Duration,
    /// What the wall clock showed at the start; the earliest answer where a later jump gives another.
    origin: Timestamp,
    /// Stamps may be of another time than the present span's.
    has_jumped: bool,
    /// Spans in which both clocks ran alike, oldest first; the last is the present one. Never empty.
    spans: Vec<EvenSpan>,
}

#[derive(Clone, Copy, Debug)]
struct EvenSpan {
    first: Timestamp,
    last: Timestamp,
    /// The uptime at `last`.
    seen: Duration,
}

impl Timeline {
    /// A process that starts now. Stamps of earlier ones are believed.
    pub fn starting(now: Timestamp) -> Self {
        let spans = vec![EvenSpan { first: now, last: now, seen: Duration::ZERO }];
        Self { uptime: Duration::ZERO, origin: now, has_jumped: false, spans }
    }

    /// A process that starts now and has found `newest` as the last stamp of an earlier one. Gives the jump when there must
    /// have been one in between.
    pub fn resuming(newest: Option<Timestamp>, now: Timestamp) -> (Self, Option<ClockJump>) {
        let timeline = Self::starting(now);
        let Some(newest) = newest else { return (timeline, None) };
        let is_jump = now.since(newest) > MAX_GAP || newest.since(now) > JUMP;
        let origin = if is_jump { newest.min(now) } else { now };
        (Self { origin, has_jumped: is_jump, ..timeline }, is_jump.then_some(ClockJump { from: newest, to: now }))
    }

    /// Takes a reading of both clocks; gives the jump since the last one, if there was any.
    pub fn observe(&mut self, wall: Timestamp, uptime: Duration) -> Option<ClockJump> {
        let uptime = uptime.max(self.uptime);
        self.uptime = uptime;
        let present = self.spans.last_mut().expect("a timeline begins with a span");
        let expected = present.last.plus(uptime - present.seen);
        if wall.since(expected).max(expected.since(wall)) <= JUMP {
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

    /// The wall clock at the last reading.
    pub fn now(&self) -> Timestamp {
        self.present().last
    }

    /// Monotonic time since the start.
    pub fn uptime(&self) -> Duration {
        self.uptime
    }

    /// The wall clock at the start of this process, as far as it is believed.
    pub fn origin(&self) -> Timestamp {
        self.origin
    }

    /// How long ago something was stamped with this clock, by this process or an earlier one, whatever happened to the wall
    /// clock since. Where it cannot be known the least is said. A stamp of the future is from before this process.
    pub fn age(&self, stamp: Timestamp) -> Duration {
        let present = self.present();
        if self.present_begin() <= stamp && stamp <= present.last.plus(JUMP) {
            return present.last.since(stamp);
        }
        let former = self.spans.iter().rev().skip(1);
        match former.clone().find(|span| span.first <= stamp && stamp <= span.last) {
            Some(span) => self.uptime - span.seen + span.last.since(stamp),
            None => self.uptime + self.origin.since(stamp),
        }
    }

    /// The stamp as it would be, had the wall clock always been as it is now: `now` less its age. Itself where there was no jump.
    pub fn rebase(&self, stamp: Timestamp) -> Timestamp {
        let present = self.present();
        if !self.has_jumped || present.first <= stamp && stamp <= present.last {
            return stamp;
        }
        Timestamp::from_millis(present.last.millis().saturating_sub(self.age(stamp).as_millis() as i64))
    }

    /// The present span begins with the first stamp ever made, when there was no jump since.
    fn present_begin(&self) -> Timestamp {
        if self.has_jumped { self.present().first } else { Timestamp::from_millis(i64::MIN) }
    }

    fn present(&self) -> &EvenSpan {
        self.spans.last().expect("a timeline begins with a span")
    }
}

/// The clock of a running server. Jumps are logged once, and kept for the history until they are written there.
pub struct Clock {
    started: Instant,
    inner: Mutex<Inner>,
}

struct Inner {
    timeline: Timeline,
    unrecorded: Vec<ClockJump>,
}

impl Clock {
    /// `newest` is the last stamp that is durable.
    pub fn start(newest: Option<Timestamp>) -> Self {
        let (started, now) = (Instant::now(), Timestamp::from(SystemTime::now()));
        let (timeline, jump) = Timeline::resuming(newest, now);
        if let Some(ClockJump { from, to }) = jump {
            tracing::warn!(
                last = %from, now = %to,
                "the clock is far from the last entry of the history: if it is wrong, set it; this time is not counted \
                 into the age of what is kept, so nothing is pruned for it"
            );
        }
        Self { started, inner: Mutex::new(Inner { timeline, unrecorded: jump.into_iter().collect() }) }
    }

    pub fn now(&self) -> Timestamp {
        self.read().timeline.now()
    }

    /// All that is known of the clock, with a new reading.
    pub fn timeline(&self) -> Timeline {
        self.read().timeline.clone()
    }

    /// Jumps, oldest first, that are not in the history yet.
    pub(crate) fn unrecorded(&self) -> Vec<ClockJump> {
        self.lock().unrecorded.clone()
    }

    /// The first `n` of those are in the history now.
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
                "the wall clock was set, or this machine was suspended: run times, deadlines and ages go on by the \
                 monotonic clock; nothing is ended or pruned for it"
            );
        }
        inner
    }

    /// Both clocks at one moment: a process that is stopped between the two readings would see a jump that never was.
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

    /// So many seconds after the start, or before it.
    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(START.millis() + seconds * 1000)
    }

    #[test]
    fn without_jumps_an_age_is_the_difference() {
        let mut timeline = Timeline::starting(START);
        for second in 1..=600 {
            // A clock that runs 0.1 % slow is no clock that jumps.
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
        // The clock was four years ahead when the process started, and is set right.
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
