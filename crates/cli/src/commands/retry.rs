//! Retries of a command that follows a job while the server is away: it says so once, tries again for a minute, then
//! gives up with what was wrong. A server that was never there is not waited for.

use std::time::{Duration, Instant};

use corro_client::{ClientError, PATIENCE};

use crate::commands::resource_ref::Target;
use crate::failure::Failure;
use crate::session::say_that_the_server_is_away;

const PAUSE: Duration = Duration::from_millis(100);

/// The state of the retries of one command.
#[derive(Default)]
pub struct Retry {
    /// When the trouble began.
    since: Option<Instant>,
    answered_before: bool,
    refusals: u32,
}

impl Retry {
    pub fn reset(&mut self) {
        self.since = None;
        self.answered_before = true;
        self.refusals = 0;
    }

    /// Pauses when trying again may help, fails when it cannot or has not for a minute. `target` is what the request was about.
    pub async fn pause_or_fail(&mut self, error: ClientError, target: &Target) -> Result<(), Failure> {
        // Somebody took the connection: a server that ended before it could answer.
        self.answered_before |= matches!(error, ClientError::Broken { .. });
        if !self.answered_before || !error.is_transient() {
            return Err(target.failure(error));
        }
        let since = *self.since.get_or_insert_with(|| {
            say_that_the_server_is_away();
            Instant::now()
        });
        if since.elapsed() >= PATIENCE {
            let failure = Failure::from(error);
            let message =
                format!("the server did not come back within {} seconds: {}", PATIENCE.as_secs(), failure.message);
            return Err(Failure { message, ..failure });
        }
        tokio::time::sleep(PAUSE * 3).await;
        Ok(())
    }

    /// A link that is refused although it is new will not become better.
    pub async fn pause_or_fail_refusal(&mut self, error: ClientError) -> Result<(), Failure> {
        self.refusals += 1;
        if self.refusals > 3 {
            return Err(error.into());
        }
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }
}
