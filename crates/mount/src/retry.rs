//! Retries of requests to a server that does not answer, until a deadline; then programs get ETIMEDOUT. An outage is
//! logged once at its beginning, at the deadline and at its end.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use corro_model::Timestamp;

use crate::remote::{RemoteError, RemoteResult};

/// First delay between attempts; doubled each time up to [`MAX_DELAY`].
const MIN_DELAY: Duration = Duration::from_millis(20);
const MAX_DELAY: Duration = Duration::from_secs(1);
/// An attempt without an answer is repeated on another connection.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(15);

/// Deadline of requests, and the current outage.
#[derive(Debug)]
pub struct RetryPolicy {
    /// Limit of all attempts of a request together.
    deadline: Duration,
    /// Description of the share for log lines.
    description: String,
    outage: Mutex<Option<Outage>>,
}

#[derive(Debug)]
struct Outage {
    since: Instant,
    at: Timestamp,
    is_reported: bool,
}

/// Whether an earlier attempt may have been carried out.
pub type IsRetry = bool;

impl RetryPolicy {
    pub fn new(deadline: Duration, description: String) -> RetryPolicy {
        RetryPolicy { deadline, description, outage: Mutex::new(None) }
    }

    /// Runs attempts until there is an answer or the deadline is over. The error is an errno for the program.
    pub async fn run<T, A>(&self, operation: impl Into<String>, mut attempt: impl FnMut(IsRetry) -> A) -> Result<T, i32>
    where
        A: Future<Output = RemoteResult<T>>,
    {
        let operation = operation.into();
        let (began, mut delay, mut is_retry) = (Instant::now(), MIN_DELAY, false);
        loop {
            let left = self.deadline.saturating_sub(began.elapsed());
            let answer = tokio::time::timeout(ATTEMPT_TIMEOUT.min(left.max(MIN_DELAY)), attempt(is_retry)).await;
            let answer = answer.unwrap_or_else(|_| Err(RemoteError::Transient { why: "no answer in time".to_owned() }));
            match answer {
                Ok(value) => {
                    self.on_answer();
                    return Ok(value);
                }
                Err(RemoteError::Permanent { errno, why }) => {
                    self.on_answer();
                    if !matches!(errno, libc::ENOENT | libc::EEXIST | libc::ENOTEMPTY) {
                        tracing::warn!("{}: {operation}: {why}", self.description);
                    }
                    return Err(errno);
                }
                Err(RemoteError::Transient { why }) => {
                    self.on_no_answer(&why);
                    if began.elapsed() + delay >= self.deadline {
                        self.on_deadline(&operation, &why);
                        return Err(libc::ETIMEDOUT);
                    }
                }
            }
            is_retry = true;
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(MAX_DELAY);
        }
    }

    fn on_answer(&self) {
        let ended = self.outage.lock().expect("no one panics while holding it").take();
        if let Some(outage) = ended {
            tracing::warn!("{} answers again, after {} s", self.description, outage.since.elapsed().as_secs());
        }
    }

    fn on_no_answer(&self, why: &str) {
        let mut outage = self.outage.lock().expect("no one panics while holding it");
        if outage.is_none() {
            let at = Timestamp::from(std::time::SystemTime::now());
            *outage = Some(Outage { since: Instant::now(), at, is_reported: false });
            tracing::warn!(
                "{} does not answer, programs wait up to {} s: {why}",
                self.description,
                self.deadline.as_secs()
            );
        }
    }

    fn on_deadline(&self, operation: &str, why: &str) {
        let mut outage = self.outage.lock().expect("no one panics while holding it");
        if let Some(outage) = outage.as_mut().filter(|outage| !outage.is_reported) {
            outage.is_reported = true;
            let since = outage.at.whole_seconds();
            tracing::error!(
                "{} has not answered since {since}: {operation} and all waiting operations fail: {why}",
                self.description
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn policy(milliseconds: u64) -> RetryPolicy {
        RetryPolicy::new(Duration::from_millis(milliseconds), "the share s".to_owned())
    }

    #[tokio::test]
    async fn transient_errors_are_retried() {
        let tries = Cell::new(0);
        let result = policy(60_000)
            .run("read f", |is_retry| {
                tries.set(tries.get() + 1);
                let (number, is_retry) = (tries.get(), is_retry);
                async move {
                    assert_eq!(is_retry, number > 1);
                    if number < 4 { Err(RemoteError::Transient { why: "refused".into() }) } else { Ok(number) }
                }
            })
            .await;
        assert_eq!(result, Ok(4));
    }

    #[tokio::test]
    async fn transient_errors_end_at_the_deadline_and_permanent_ones_at_once() {
        let policy = policy(100);
        let silent = policy.run("read f", |_| async { Err::<(), _>(RemoteError::Transient { why: "no".into() }) });
        assert_eq!(silent.await, Err(libc::ETIMEDOUT));
        assert!(policy.outage.lock().expect("free").as_ref().is_some_and(|outage| outage.is_reported));
        let stuck = policy.run("read f", |_| std::future::pending::<RemoteResult<()>>());
        assert_eq!(stuck.await, Err(libc::ETIMEDOUT));
        let refused = RemoteError::Permanent { errno: libc::ENOSPC, why: "full".into() };
        let refused = policy.run("write f", |_| std::future::ready(Err::<(), _>(refused.clone())));
        assert_eq!(refused.await, Err(libc::ENOSPC));
        assert!(policy.outage.lock().expect("free").is_none(), "an answer is an answer");
    }
}
