//! Exponential backoff: the pause doubles with each failure up to a limit and is reset by a success. Pure: time is an argument.

use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(100);

pub struct Backoff {
    max_pause: Duration,
    failures: u32,
    retry_at: Option<Instant>,
}

impl Backoff {
    pub fn with_max(max_pause: Duration) -> Self {
        Self { max_pause, failures: 0, retry_at: None }
    }

    /// Records a failure. `true` for the first one after a success, which is worth a log line.
    pub fn fail(&mut self, now: Instant) -> bool {
        let pause = FIRST_PAUSE.saturating_mul(2u32.saturating_pow(self.failures)).min(self.max_pause);
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(now + pause);
        self.failures == 1
    }

    /// Records a success. Returns the number of failures before it, if any.
    pub fn succeed(&mut self) -> Option<u32> {
        self.retry_at = None;
        let failures = std::mem::take(&mut self.failures);
        (failures > 0).then_some(failures)
    }

    /// Time until the next attempt.
    pub fn remaining(&self, now: Instant) -> Duration {
        self.retry_at.map_or(Duration::ZERO, |retry_at| retry_at.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit_and_are_logged_once() {
        let (now, mut backoff) = (Instant::now(), Backoff::with_max(Duration::from_millis(500)));
        assert!(backoff.remaining(now).is_zero());
        let fail = |backoff: &mut Backoff| (backoff.fail(now), backoff.remaining(now).as_millis());
        let pauses: Vec<_> = (0..4).map(|_| fail(&mut backoff)).collect();
        assert_eq!(pauses, [(true, 100), (false, 200), (false, 400), (false, 500)]);
        assert_eq!((backoff.succeed(), backoff.succeed()), (Some(4), None));
        assert!(backoff.remaining(now).is_zero() && backoff.fail(now));
    }
}
