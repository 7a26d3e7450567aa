//! Parts of connection setup that TCP and shared memory have in common: errors, authentication of world members, concurrent
//! handshakes, and detection of ranks that end before all are connected.

pub mod credentials;
pub mod error;
pub mod handshake_pool;
pub mod startup_watch;
