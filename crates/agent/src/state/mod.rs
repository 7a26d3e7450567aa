//! State of the node beyond its running task: the attempt recorded on disk, the lease, and the observation reported to the server.

pub mod attempt_journal;
pub mod lease;
pub mod observation;
