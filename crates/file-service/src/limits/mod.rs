//! Bounds on what callers can take: request rate, memory and time of request bodies, read buffers.

pub(crate) mod buffer_pool;
pub(crate) mod request_body;
pub(crate) mod upload_permits;

use std::time::Duration;

/// Rate limit of requests. Implemented by the server, which counts these requests together with those of its other services.
pub trait RateLimiter: Send + Sync + 'static {
    /// Counts one authenticated request for a storage account. The error is the time to wait before a retry.
    fn admit_account(&self, account: &str) -> Result<(), Duration>;

    /// Counts one request without a valid signature from an IP address. The error is the time to wait before a retry.
    fn admit_unauthenticated(&self, address: &str) -> Result<(), Duration>;
}
