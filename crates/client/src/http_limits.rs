//! Timeouts and the user agent of every HTTP connection of this crate.

use std::time::Duration;

pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest silence in the middle of a response.
pub const READ_TIMEOUT: Duration = Duration::from_secs(100);
/// Reuse limit of an idle connection. The server closes one after 30 s; a request sent at that moment would fail.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
pub const USER_AGENT: &str = concat!("corro/", env!("CARGO_PKG_VERSION"));
