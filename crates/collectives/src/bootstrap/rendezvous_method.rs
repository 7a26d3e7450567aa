//! The rendezvous that a launcher's variables lead to: a key-value server, or rank 0 itself. Plain values.

/// How the ranks of a job find each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RendezvousMethod {
    /// The job has one rank.
    SingleProcess,
    /// The launcher runs a key-value server (Horovod's contract).
    KeyValue { addr: String, port: u16 },
    /// The launcher runs no server, so rank 0 listens.
    Rank0(Rank0Rendezvous),
}

/// A rendezvous at rank 0. Its sockets are derived from `job_id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank0Rendezvous {
    /// Equal in all ranks of the job; unequal to that of any other job if `has_unique_id`.
    pub job_id: String,
    pub host: Rank0Host,
    /// An inherited socket to the launcher's process on this host. The pid of that process becomes part of the job id, for launchers that do
    /// not name their jobs. Only useful on one host.
    pub launcher_socket: Option<i32>,
    /// Whether the launcher gave this run an id. If not, another run with the same settings has the same `job_id`.
    pub has_unique_id: bool,
}

/// The host of rank 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rank0Host {
    /// All ranks are on one host.
    SameHost,
    /// A host name or address from the user or the launcher.
    Address(String),
    /// Addresses of the launcher, which may or may not run on the host of rank 0.
    Candidates(Vec<String>),
}
