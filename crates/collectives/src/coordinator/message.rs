//! What ranks and the coordinator tell each other. Everyone in this folder enters; the engine builds [`Request`]s and passes
//! the rest on. Plain data: nothing here decides.
//!
//! A process set is known to users by its [`SetId`], which is used again after a removal. On the wire it is known by its area, a
//! number that never comes back, so that a message on its way while a set ends can never reach the next one of that id.

use std::sync::Arc;

use crate::{Dtype, ReduceOp};

use super::text::Refusal;

/// What the engine knows an unfinished operation by. Given by the member, never used again.
pub type Token = u64;
/// A process set, once in the life of the job.
pub type Area = u64;
/// A remembered agreement; given by the coordinator, never used again.
pub type CacheId = u64;

/// The set of all ranks.
pub const GLOBAL_AREA: Area = 0;

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

/// From a rank to the coordinator.
#[derive(Clone, Debug, PartialEq)]
pub enum ToCoordinator {
    /// One tensor on known terms: nearly everything that is ever sent.
    Hit(CacheId),
    /// Several at once, or at least one in full.
    Submit {
        grouped: bool,
        items: Vec<Submitted>,
    },
    /// In full what was turned down with [`ToMember::Resend`]; until it comes, the rank's later messages wait for it.
    Again {
        grouped: bool,
        items: Vec<Submitted>,
    },
    Barrier(Area),
    Join(Area),
    /// The process sets given at init: once, before anything else about sets.
    Register(Vec<Vec<u32>>),
    AddSet(Vec<u32>),
    RemoveSet(Area),
    Shutdown,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Submitted {
    Hit(CacheId),
    /// The request's set id does not travel; the area does.
    Full(Area, Box<Request>),
}

/// From the coordinator to a rank, in the order in which it is to be carried out.
#[derive(Clone, Debug, PartialEq)]
pub enum ToMember {
    Perform {
        items: Arc<[Item]>,
        /// Which of the items this rank did not submit (it has joined): it supplies zeros.
        zeros: Vec<u32>,
    },
    /// The named operations cannot be: what they were asked for differs.
    Error {
        area: Area,
        names: Vec<Arc<str>>,
        text: Arc<str>,
    },
    /// All members have asked for it, or have joined; told to those who asked.
    Barrier(Area),
    /// All members have joined, this one last (a global rank).
    Joined {
        area: Area,
        last: u32,
    },
    /// Terms that no longer have an id.
    Evicted(Arc<[CacheId]>),
    /// The submission with this number (counted from 0 per rank) named an unknown id and was not looked at: once more, in full. Until
    /// then nothing later of this rank is looked at either: a join must not overtake what was submitted before it.
    Resend(u64),
    SetsAdded(Arc<[SetMade]>),
    SetRemoved(Area),
    SetRefused(Refusal),
    Tune(Tuning),
    Shutdown(ShutdownReason),
}

/// One tensor to be performed. Those of one message are performed as one, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    Cached(CacheId),
    /// In full, and what it is to be remembered by.
    New(Arc<Agreed>, Option<CacheId>),
}

/// What all ranks agreed on for one tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Agreed {
    pub terms: Terms,
    pub name: Arc<str>,
    /// Of every rank's tensor; allgather and alltoall: of the result on this rank.
    pub shape: Vec<u64>,
    /// Allgather: rows of each member's tensor. Alltoall: rows received from each member. Otherwise empty.
    pub rows: Vec<u64>,
}

/// What tensors must have in common to be performed as one. Fields that a kind has no use for are always the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    pub area: Area,
    pub kind: Kind,
    pub dtype: Dtype,
    pub op: ReduceOp,
    pub root: u32,
    /// On the CPU of all ranks, otherwise on a GPU of all ranks.
    pub on_cpu: bool,
    pub prescale: f64,
    pub postscale: f64,
}

impl Terms {
    pub fn of(area: Area, request: &Request) -> Terms {
        let reduces = request.kind.reduces();
        Terms {
            area,
            kind: request.kind,
            dtype: request.dtype,
            op: if reduces { request.op } else { ReduceOp::Sum },
            root: if request.kind == Kind::Broadcast { request.root } else { 0 },
            on_cpu: request.device < 0,
            prescale: if reduces { request.prescale } else { 1.0 },
            postscale: if reduces { request.postscale } else { 1.0 },
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetMade {
    pub id: SetId,
    pub area: Area,
    /// Ascending.
    pub ranks: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    pub fusion_threshold: u64,
    pub cycle_time_ms: f64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShutdownReason {
    /// A rank asked for it.
    Asked { rank: u32 },
    /// A rank is gone; the text says which one and where.
    Lost { rank: u32, text: Arc<str> },
    /// Some tensors waited for longer than the shutdown time.
    Stalled,
}
