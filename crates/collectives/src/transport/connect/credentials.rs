//! Authentication of connections between the ranks of one world.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use crate::auth::{Role, Secret, authenticate};
use crate::transport::connect::error::ConnectError;

/// The secrets that prove that a process belongs to this world.
#[derive(Clone)]
pub struct WorldCredentials {
    pub secret: Option<Secret>,
    /// Random token of rank 0, which distinguishes jobs that have no secret.
    pub world: [u8; 16],
}

impl WorldCredentials {
    /// Authenticates both ends of a connection. `listener` is the rank that was dialled, so a connection that reaches another rank fails.
    pub fn authenticate(
        &self,
        stream: impl Read + Write,
        purpose: &str,
        listener: usize,
        role: Role,
    ) -> Result<(), ConnectError> {
        let context = [&self.world[..], purpose.as_bytes(), &(listener as u32).to_le_bytes()].concat();
        Ok(authenticate(stream, self.secret.as_ref(), &context, role)?)
    }
}

/// Time until the deadline, as a socket timeout: at least 1 ms, because 0 would mean no limit.
pub fn remaining_time(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}
