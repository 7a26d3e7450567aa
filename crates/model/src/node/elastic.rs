//! The elastic part of an attempt: which processes run on which nodes, who is a member of which generation, and what
//! nodes report about it. A *process* is one started program, numbered from 1 and never reused; a *generation* is one
//! world of connected ranks, numbered from 1.

use serde::{Deserialize, Serialize};

use crate::NodeId;

/// The server's decisions about an elastic attempt; complete in every message and the same for all nodes. A node keeps
/// the last one while the server is away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ElasticWorld {
    /// Processes that run or shall be started.
    pub processes: Vec<ElasticProcess>,
    /// Highest number of a process so far.
    pub last_process: u64,
    /// Generation that began last; 0 before the first.
    pub generation: u64,
    /// Its members in the order of their ranks, with those that have ended since.
    pub members: Vec<ElasticMember>,
    /// `ADDRESS:PORT` of the rendezvous server at which the members exchange their addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rendezvous: Option<String>,
    /// Members shall stop at their next commit: 1 if some leave, 2 if others join, 3 for both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<u8>,
    /// Processes that are not part of the job any more and exit by themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dismissed: Vec<u64>,
    /// Processes to end: SIGTERM, a grace period, SIGKILL.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub killed: Vec<u64>,
    /// Nodes whose part of the attempt ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<LeavingNode>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElasticProcess {
    pub process: u64,
    pub node: NodeId,
    /// Number among the processes of its node.
    pub slot: usize,
}

/// Place of a process in a generation, with Horovod's rank numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ElasticMember {
    pub process: u64,
    pub rank: usize,
    pub local_rank: usize,
    pub local_size: usize,
    pub cross_rank: usize,
    pub cross_size: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeavingNode {
    pub node: NodeId,
    /// Time between SIGTERM and SIGKILL for what still runs.
    pub grace_ms: u64,
}

/// What a node reports about the elastic part of its attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObservedElastic {
    /// `ADDRESS:PORT` of the node's rendezvous server; absent before the node is prepared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rendezvous: Option<String>,
    /// Processes that this agent has started for the attempt, ended ones included.
    pub processes: Vec<ObservedProcess>,
    /// The decisions that it received last, from which a restarted server goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world: Option<ElasticWorld>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObservedProcess {
    pub process: u64,
    pub slot: usize,
    /// It asks for its place in a generation later than this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_after: Option<u64>,
    /// It has ended, successfully or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub succeeded: Option<bool>,
}

impl ElasticWorld {
    /// Answer to a process that asks for its place in a generation later than `after`, as the engine reads it: `GENERATION
    /// RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE ADDRESS:PORT`, or `dismissed`. `None` while it has to wait.
    pub fn place(&self, process: u64, after: u64) -> Option<String> {
        if self.dismissed.contains(&process) {
            return Some("dismissed".to_owned());
        }
        let member = self.members.iter().find(|member| member.process == process)?;
        if self.generation <= after {
            return None;
        }
        let ElasticMember { rank, local_rank, local_size, cross_rank, cross_size, .. } = member;
        let (generation, size) = (self.generation, self.members.len());
        let mut text = format!("{generation} {rank} {size} {local_rank} {local_size} {cross_rank} {cross_size}");
        if let Some(rendezvous) = &self.rendezvous {
            text = format!("{text} {rendezvous}");
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_gets_its_place_once_a_later_generation_has_begun() {
        let member = |process, rank| ElasticMember {
            process,
            rank,
            local_rank: 0,
            local_size: 1,
            cross_rank: rank,
            cross_size: 2,
        };
        let world = ElasticWorld {
            last_process: 5,
            generation: 3,
            members: vec![member(2, 0), member(5, 1)],
            rendezvous: Some("10.0.0.4:4001".to_owned()),
            dismissed: vec![1],
            ..ElasticWorld::default()
        };
        for (process, after, expected) in [
            (5, 2, Some("3 1 2 0 1 1 2 10.0.0.4:4001")),
            (5, 0, Some("3 1 2 0 1 1 2 10.0.0.4:4001")),
            (5, 3, None),
            (4, 0, None),
            (1, 2, Some("dismissed")),
        ] {
            assert_eq!(world.place(process, after).as_deref(), expected, "{process} after {after}");
        }
        let text = serde_json::to_string(&world).expect("plain data");
        assert_eq!(serde_json::from_str::<ElasticWorld>(&text).expect("reads back"), world);
    }
}
