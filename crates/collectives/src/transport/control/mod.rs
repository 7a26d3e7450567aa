//! What ranks tell each other beside their data: the messages of the negotiation and the end of a process. `connection` is one socket, `channel`
//! carries messages to and from rank 0, `failure_detector` is the thread that notices ends, `peer_table` what is known of every rank.

pub mod channel;
pub mod connection;
pub mod failure_detector;
pub mod peer_table;
