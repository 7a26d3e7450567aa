//! Moves bytes between ranks, of one host (`shm`) and of several (`tcp`), and knows which ranks live (`control`). Knows no collective.

pub mod connect;
pub mod connect_watch;
pub mod control;
pub mod handshake_pool;
pub mod link;
pub mod peer;
pub mod peer_info;
pub mod shm;
pub mod tcp;
pub mod wait_policy;
