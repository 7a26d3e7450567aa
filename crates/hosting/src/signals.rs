//! Signals that end a long-running process: SIGINT, SIGTERM and SIGHUP.

use tokio::signal::unix::{SignalKind, signal};

use crate::HostingError;

/// Returns at the first signal that asks the process to end. Signals that arrive before this future is first polled are not seen.
pub async fn wait_for_shutdown_signal() -> Result<(), HostingError> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(HostingError::Signals)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(HostingError::Signals)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(HostingError::Signals)?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(())
}
