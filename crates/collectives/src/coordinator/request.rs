//! A rank's request for one operation on one tensor, and the ids that the coordinator and the workers share. Plain data.
//!
//! Users know a process set by its [`SetId`], which is reused after a removal. The wire carries the set's [`SetGeneration`], a number that
//! is never reused, so a message in flight while a set is removed cannot reach a later set with the same id.

use std::sync::Arc;

use crate::{Dtype, ReduceOp};

/// What the engine knows an unfinished operation by. Given by the member, never used again.
pub type RequestId = u64;
/// A process set, once in the life of the job.
pub type SetGeneration = u64;
/// A remembered agreement; given by the coordinator, never used again.
pub type CacheId = u64;

/// The set of all ranks.
pub const GLOBAL_GENERATION: SetGeneration = 0;

/// Name of barriers in timelines and stall reports, as in Horovod.
pub const BARRIER_NAME: &str = "barrier.noname";
/// Name of joins in stall reports, as in Horovod.
pub const JOIN_NAME: &str = "join.noname";

/// One rank's wish to take part in one operation on one tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub set: SetId,
    pub kind: Kind,
    pub name: Arc<str>,
    pub dtype: Dtype,
    pub shape: Vec<u64>,
    /// Broadcast: the global rank that has the values.
    pub root: u32,
    /// -1 is the CPU.
    pub device: i32,
    pub prescale: f64,
    pub postscale: f64,
    pub op: ReduceOp,
    /// Alltoall: rows for each member; empty means equal parts.
    pub splits: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SetId(pub u32);

impl SetId {
    pub const GLOBAL: SetId = SetId(0);
}

/// The numbers travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    Allreduce = 0,
    Allgather = 1,
    Broadcast = 2,
    Join = 3,
    Adasum = 4,
    Alltoall = 5,
    Barrier = 6,
    Reducescatter = 7,
}

impl Kind {
    pub const ALL: [Kind; 8] = [
        Kind::Allreduce,
        Kind::Allgather,
        Kind::Broadcast,
        Kind::Join,
        Kind::Adasum,
        Kind::Alltoall,
        Kind::Barrier,
        Kind::Reducescatter,
    ];

    /// As Horovod prints it in errors and timelines.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Allreduce => "ALLREDUCE",
            Kind::Allgather => "ALLGATHER",
            Kind::Broadcast => "BROADCAST",
            Kind::Join => "JOIN",
            Kind::Adasum => "ADASUM",
            Kind::Alltoall => "ALLTOALL",
            Kind::Barrier => "BARRIER",
            Kind::Reducescatter => "REDUCESCATTER",
        }
    }

    /// As Horovod names the call in errors about arguments. Adasum is an allreduce to its users.
    pub const fn call(self) -> &'static str {
        match self {
            Kind::Allreduce | Kind::Adasum => "Allreduce",
            Kind::Allgather => "Allgather",
            Kind::Broadcast => "Broadcast",
            Kind::Join => "Join",
            Kind::Alltoall => "Alltoall",
            Kind::Barrier => "Barrier",
            Kind::Reducescatter => "Reducescatter",
        }
    }

    pub fn from_number(number: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    pub const fn fuses(self) -> bool {
        matches!(self, Kind::Allreduce | Kind::Adasum | Kind::Reducescatter | Kind::Allgather)
    }

    /// Whether a rank that has joined can take part with zeros.
    pub const fn takes_zeros(self) -> bool {
        matches!(self, Kind::Allreduce | Kind::Adasum | Kind::Barrier)
    }

    pub const fn reduces(self) -> bool {
        matches!(self, Kind::Allreduce | Kind::Adasum | Kind::Reducescatter)
    }
}
