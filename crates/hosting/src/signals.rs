//! Signals that end a long-running process: SIGINT, SIGTERM and SIGHUP.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::HostingError;

/// The signals that ask the process to end. From its creation on they no longer end the process by themselves.
pub struct ShutdownSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl ShutdownSignals {
    pub fn listen() -> Result<ShutdownSignals, HostingError> {
        let listen = |kind| signal(kind).map_err(HostingError::Signals);
        Ok(ShutdownSignals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Returns at the first signal that arrived since the creation or the last call.
    pub async fn receive(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

/// Returns at the first signal that asks the process to end. Signals that arrive before this future is first polled are not seen.
pub async fn wait_for_shutdown_signal() -> Result<(), HostingError> {
    ShutdownSignals::listen()?.receive().await;
    Ok(())
}
