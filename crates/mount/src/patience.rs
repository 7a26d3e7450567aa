//! How long a program waits for a server that does not answer: until the deadline, and then it gets an error that says so. What is
//! between a cut and its end goes to the log, once: which share, which server, since when.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use corro_model::Timestamp;

use crate::remote::{Answer, Problem};

/// The first pause; each is twice as long as the one before, up to a second.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A request without an answer is asked again on another connection.
const ONE_TRY: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub struct Patience {
    /// How long a request may take with all its tries.
    deadline: Duration,
    /// `share S of the account A at http://…`
    whom: String,
    outage: Mutex<Option<Outage>>,
}

#[derive(Debug)]
struct Outage {
    since: Instant,
    at: Timestamp,
    given_up: bool,
}

/// Told to what is tried: whether an earlier try may have been carried out.
pub type Again = bool;

impl Patience {
    pub fn new(deadline: Duration, whom: String) -> Patience {
        Patience { deadline, whom, outage: Mutex::new(None) }
    }

    /// Tries until there is an answer or the deadline is over. The error is the number that the program gets.
    pub async fn insist<T, A>(&self, what: impl Into<String>, mut attempt: impl FnMut(Again) -> A) -> Result<T, i32>
    where
        A: Future<Output = Answer<T>>,
    {
        let what = what.into();
        let (began, mut pause, mut again) = (Instant::now(), PAUSE, false);
        loop {
            let left = self.deadline.saturating_sub(began.elapsed());
            let answer = tokio::time::timeout(ONE_TRY.min(left.max(PAUSE)), attempt(again)).await;
            let answer = answer.unwrap_or_else(|_| Err(Problem::Passing { why: "no answer came in time".to_owned() }));
            match answer {
                Ok(value) => {
                    self.on_answer();
                    return Ok(value);
                }
                Err(Problem::Refused { errno, why }) => {
                    self.on_answer();
                    if !matches!(errno, libc::ENOENT | libc::EEXIST | libc::ENOTEMPTY) {
                        tracing::warn!("{}: {what}: {why}", self.whom);
                    }
                    return Err(errno);
                }
                Err(Problem::Passing { why }) => {
                    self.on_silence(&why);
                    if began.elapsed() + pause >= self.deadline {
                        self.on_deadline(&what, &why);
                        return Err(libc::ETIMEDOUT);
                    }
                }
            }
            again = true;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn on_answer(&self) {
        let ended = self.outage.lock().expect("no one panics while holding it").take();
        if let Some(outage) = ended {
            tracing::warn!("{} answers again, after {} s", self.whom, outage.since.elapsed().as_secs());
        }
    }

    fn on_silence(&self, why: &str) {
        let mut outage = self.outage.lock().expect("no one panics while holding it");
        if outage.is_none() {
            let at = Timestamp::from(std::time::SystemTime::now());
            *outage = Some(Outage { since: Instant::now(), at, given_up: false });
            tracing::warn!("{} does not answer, programs wait up to {} s: {why}", self.whom, self.deadline.as_secs());
        }
    }

    fn on_deadline(&self, what: &str, why: &str) {
        let mut outage = self.outage.lock().expect("no one panics while holding it");
        if let Some(outage) = outage.as_mut().filter(|outage| !outage.given_up) {
            outage.given_up = true;
            let since = outage.at.whole_seconds();
            tracing::error!("{} has not answered since {since}: {what} and all that waits fails: {why}", self.whom);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn patience(milliseconds: u64) -> Patience {
        Patience::new(Duration::from_millis(milliseconds), "the share s".to_owned())
    }

    #[tokio::test]
    async fn what_passes_is_waited_out() {
        let tries = Cell::new(0);
        let result = patience(60_000)
            .insist("read f", |again| {
                tries.set(tries.get() + 1);
                let (number, again) = (tries.get(), again);
                async move {
                    assert_eq!(again, number > 1);
                    if number < 4 { Err(Problem::Passing { why: "refused".into() }) } else { Ok(number) }
                }
            })
            .await;
        assert_eq!(result, Ok(4));
    }

    #[tokio::test]
    async fn what_does_not_pass_ends_at_the_deadline_and_refusals_at_once() {
        let patience = patience(100);
        let silent = patience.insist("read f", |_| async { Err::<(), _>(Problem::Passing { why: "no".into() }) });
        assert_eq!(silent.await, Err(libc::ETIMEDOUT));
        assert!(patience.outage.lock().expect("free").as_ref().is_some_and(|outage| outage.given_up));
        let stuck = patience.insist("read f", |_| std::future::pending::<Answer<()>>());
        assert_eq!(stuck.await, Err(libc::ETIMEDOUT));
        let refused = Problem::Refused { errno: libc::ENOSPC, why: "full".into() };
        let refused = patience.insist("write f", |_| std::future::ready(Err::<(), _>(refused.clone())));
        assert_eq!(refused.await, Err(libc::ENOSPC));
        assert!(patience.outage.lock().expect("free").is_none(), "an answer is an answer");
    }
}
