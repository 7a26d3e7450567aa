//! Timeouts and the user agent of every HTTP connection of this crate.

use std::time::Duration;

pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest silence in the middle of an answer.
pub const READ_TIMEOUT: Duration = Duration::from_secs(100);
/// The server gives up a connection without a request after 30 s; one taken up in that very moment would break.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
pub const USER_AGENT: &str = concat!("corro/", env!("CARGO_PKG_VERSION"));
