//! Moves bytes between ranks. Knows who lives, how to wait and how memory is shared; knows no collective.

pub mod connect;
pub mod connect_watch;
pub mod control;
pub mod introduction;
pub mod link;
pub mod peer;
pub mod reception;
pub mod shm;
pub mod tcp;
pub mod wait_policy;
