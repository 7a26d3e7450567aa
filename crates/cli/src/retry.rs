//! Retries of commands that follow a job while the server is unreachable. The user is notified once; after a minute the command fails with the last
//! error. A server that never answered is not waited for.

use std::time::{Duration, Instant};

use corro_client::{ClientError, RECONNECT_TIMEOUT};

use crate::error::CliError;
use crate::resource::resource_ref::ResourceRef;
use crate::session::note_server_unreachable;

const UNREACHABLE_PAUSE: Duration = Duration::from_millis(300);
const REFUSED_PAUSE: Duration = Duration::from_millis(100);
const MAX_REFUSALS: u32 = 3;

/// State of the retries of one command.
#[derive(Default)]
pub struct Retry {
    /// Start of the current outage.
    since: Option<Instant>,
    has_answered: bool,
    refusals: u32,
}

impl Retry {
    /// Retries of a command whose server has answered already.
    pub fn after_answer() -> Retry {
        Retry { has_answered: true, ..Retry::default() }
    }

    /// Notes a successful request.
    pub fn reset(&mut self) {
        self.since = None;
        self.has_answered = true;
        self.refusals = 0;
    }

    /// Pauses if a retry may help. Fails if it cannot, or has not for a minute. `target` is the resource of the request.
    pub async fn pause_or_fail(&mut self, error: ClientError, target: &ResourceRef) -> Result<(), CliError> {
        // The connection was accepted, so there was a server, which ended before it answered.
        self.has_answered |= matches!(error, ClientError::Broken { .. });
        if !self.has_answered || !error.is_transient() {
            return Err(target.request_error(error));
        }
        self.pause_or_give_up(CliError::from(error)).await
    }

    /// Repeats an idempotent step while the server is unreachable, for a minute at most.
    pub async fn run<T>(&mut self, step: impl AsyncFn() -> Result<T, CliError>) -> Result<T, CliError> {
        loop {
            match step().await {
                Ok(value) => {
                    self.reset();
                    return Ok(value);
                }
                Err(error) if self.has_answered && error.is_transient => self.pause_or_give_up(error).await?,
                Err(error) => return Err(error),
            }
        }
    }

    async fn pause_or_give_up(&mut self, error: CliError) -> Result<(), CliError> {
        let since = *self.since.get_or_insert_with(|| {
            note_server_unreachable();
            Instant::now()
        });
        if since.elapsed() >= RECONNECT_TIMEOUT {
            let message = format!(
                "the server did not come back within {} seconds: {}",
                RECONNECT_TIMEOUT.as_secs(),
                error.message
            );
            return Err(CliError { message, ..error });
        }
        tokio::time::sleep(UNREACHABLE_PAUSE).await;
        Ok(())
    }

    /// Pauses after the server refused a new SAS URL; fails after a few refusals in a row.
    pub async fn pause_or_fail_refusal(&mut self, error: ClientError) -> Result<(), CliError> {
        self.refusals += 1;
        if self.refusals > MAX_REFUSALS {
            return Err(error.into());
        }
        tokio::time::sleep(REFUSED_PAUSE).await;
        Ok(())
    }
}
