//! One node's share of one attempt at a job, and where the nodes of a gang find each other.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Volume;
use crate::batchai::{ContainerSettings, EnvironmentVariable, InputDirectory, OutputDirectory};
use crate::layout::{Layout, ProcessSlot};
use crate::{AttemptId, NodeId, Secret};

/// Where the processes of a gang meet. Found out by its nodes, put together and handed to all by the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangAddress {
    /// The master's.
    pub address: String,
    pub rendezvous_port: u16,
    pub master_port: u16,
    /// The master has an `mpirun`, which starts all ranks.
    #[serde(default)]
    pub mpirun: bool,
    /// Of every node in order, if the job needs them; a node reports its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<HostPorts>,
}

impl GangAddress {
    pub fn new(address: impl Into<String>, rendezvous_port: u16, master_port: u16) -> GangAddress {
        GangAddress { address: address.into(), rendezvous_port, master_port, mpirun: false, ports: Vec::new() }
    }
}

/// What one node keeps open, or free, for a gang.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPorts {
    /// Where the job's processes on other nodes have commands started on this one.
    pub remote: Option<u16>,
    /// One for each of its processes that listen by themselves, parameter servers first.
    pub tasks: Vec<u16>,
}

/// One node's share of one attempt at a job. Names everything outright; the node makes no choices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskOrder {
    pub attempt: AttemptId,
    pub workspace: String,
    pub experiment: String,
    pub job: String,
    /// `{subscription}/{group}/workspaces/{ws}/experiments/{exp}/jobs/{job}/{guid}`
    pub segment: String,
    /// All nodes of the gang, in rank order; the first is the master.
    #[serde(with = "shared")]
    pub hosts: Arc<[GangHost]>,
    /// This node's place among `hosts`.
    pub host_idx: usize,
    /// Which processes the job has on all its nodes.
    pub layout: Layout,
    pub preparation: Option<String>,
    pub volumes: Vec<Volume>,
    pub std_out_err_path_prefix: String,
    pub input_directories: Vec<InputDirectory>,
    pub output_directories: Vec<OutputDirectory>,
    pub environment: Vec<EnvironmentVariable>,
    pub secrets: Vec<TaskSecret>,
    /// A directory of the server's that all nodes of the job see. A node that does not see it mounts it, and has none here.
    pub shared_temp: Option<PathBuf>,
    pub container: Option<ContainerSettings>,
    /// The operator allowed container jobs to run on the host.
    pub containers_on_host: bool,
    /// It runs isolated from other jobs or not at all, unless the operator of the node chose otherwise: not everybody who uses the server
    /// is one and the same.
    #[serde(default)]
    pub strict_isolation: bool,
    /// Its output may show the values of its secrets: the operator chose so.
    #[serde(default)]
    pub shows_secrets: bool,
    /// What the job may use of the node's machine.
    #[serde(default)]
    pub limits: Option<Limits>,
    /// Performance counters are to be written beside the job's logs.
    #[serde(default)]
    pub counters: bool,
    pub gpus: u32,
    /// Proved by the ranks to each other.
    pub gang_secret: Secret,
    /// Earlier attempts that lost a node, in sentences: what their processes wrote last may be missing from the logs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_attempts: Vec<String>,
}

impl TaskOrder {
    pub fn is_master(&self) -> bool {
        self.host_idx == 0
    }

    /// By what launchers know the nodes: by their addresses. Launchers take two of one address for one, so where a machine carries
    /// several nodes, all but the first go by a loopback address that only the node's own way of starting things knows.
    pub fn launch_names(&self) -> Vec<String> {
        let mut seen = HashSet::new();
        let is_first = self.hosts.iter().map(|host| seen.insert(host.address.as_str()));
        let own = |idx: usize| format!("127.63.{}.{}", idx / 250, 1 + idx % 250);
        let name =
            |(idx, (host, first)): (usize, (&GangHost, bool))| if first { host.address.clone() } else { own(idx) };
        self.hosts.iter().zip(is_first).enumerate().map(name).collect()
    }

    /// Do some of the nodes share an address, and so a machine?
    pub fn shares_machines(&self) -> bool {
        let addresses: HashSet<&str> = self.hosts.iter().map(|host| host.address.as_str()).collect();
        addresses.len() < self.hosts.len()
    }

    /// All processes of the job, over all nodes.
    pub fn process_slots(&self, mpirun: bool) -> Vec<ProcessSlot<'_>> {
        let slots: Vec<usize> = self.hosts.iter().map(|host| host.slots).collect();
        self.layout.process_slots(&slots, mpirun)
    }
}

/// What a node of the cluster's VM size has. A machine that has less gives what it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// As people know it: `STANDARD_NC6`.
    pub vm_size: String,
    pub memory_bytes: u64,
    pub cores: u32,
    /// Processes and threads that a job may have there, if the operator chose a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
}

/// A list that the orders of a gang's nodes have in common: each of a thousand names all thousand.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<T: Serialize, S: Serializer>(list: &Arc<[T]>, serializer: S) -> Result<S::Ok, S::Error> {
        list.as_ref().serialize(serializer)
    }

    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<[T]>, D::Error> {
        Vec::deserialize(deserializer).map(Arc::from)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GangHost {
    pub node: NodeId,
    pub address: String,
    /// How many ranks or workers it runs.
    pub slots: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskSecret {
    pub name: String,
    pub value: Secret,
}
