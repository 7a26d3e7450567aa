//! Control traffic between ranks: messages of the negotiation, and notices that a process has ended. `connection` is one socket, `channel`
//! carries messages to and from rank 0, `failure_detector` is the thread that notices ended processes.

pub mod channel;
pub mod connection;
pub mod failure_detector;
