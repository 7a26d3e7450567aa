//! Moves bytes between ranks, on one host (`shm`) and between hosts (`tcp`), and detects dead ranks (`control`). Implements no collective.

pub mod connect;
pub mod control;
pub mod link;
pub mod peer_info;
pub mod peer_table;
pub mod shm;
pub mod tcp;
pub mod wait_policy;
