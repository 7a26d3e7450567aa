//! A rank's request for one operation on one tensor, and the ids that the coordinator and the workers share. Plain data.
//!
//! Users know a process set by its [`SetId`], which is reused after a removal. The wire carries the set's [`SetGeneration`], a number that
//! is never reused, so a message in flight while a set is removed cannot reach a later set with the same id.

use std::sync::Arc;

use crate::{Dtype, ReduceOp};

/// Id of a pending operation of this rank. Assigned by the worker, never reused.
pub type RequestId = u64;
/// Id of one process set that is never reused during a job.
pub type SetGeneration = u64;
/// Id of a cached response. Assigned by the coordinator, never reused.
pub type CacheId = u64;

/// Generation of the global process set.
pub const GLOBAL_GENERATION: SetGeneration = 0;

/// Name of barriers in timelines and stall reports, as in Horovod.
pub const BARRIER_NAME: &str = "barrier.noname";
/// Name of joins in stall reports, as in Horovod.
pub const JOIN_NAME: &str = "join.noname";

/// Request of one rank to take part in one operation on one tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub set: SetId,
    pub kind: Kind,
    pub name: Arc<str>,
    pub dtype: Dtype,
    pub shape: Vec<u64>,
    /// Broadcast: global rank of the root.
    pub root: u32,
    /// Device number; -1 is the CPU.
    pub device: i32,
    pub prescale: f64,
    pub postscale: f64,
    pub op: ReduceOp,
    /// Alltoall: rows for each member of the set; empty means equal parts.
    pub splits: Vec<u64>,
}

/// Id of a process set as users know it. Reused after the set is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SetId(pub u32);

impl SetId {
    /// The set of all ranks.
    pub const GLOBAL: SetId = SetId(0);
}

/// Kind of operation. The discriminants are part of the wire format and are Horovod's request types.
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

    /// Horovod's name of the operation in errors and timelines.
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

    /// Horovod's name of the API call in errors about arguments. Adasum is called as an allreduce.
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

    /// The kind with this wire number.
    pub fn from_number(number: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// True if several tensors of this kind can be executed as one operation.
    pub const fn fuses(self) -> bool {
        matches!(self, Kind::Allreduce | Kind::Adasum | Kind::Reducescatter | Kind::Allgather)
    }

    /// True if a rank that has joined can take part with zeros.
    pub const fn takes_zeros(self) -> bool {
        matches!(self, Kind::Allreduce | Kind::Adasum | Kind::Barrier)
    }

    /// True if the operation combines values, so that reduce op and scale factors matter.
    pub const fn reduces(self) -> bool {
        matches!(self, Kind::Allreduce | Kind::Adasum | Kind::Reducescatter)
    }
}
