//! One node's part of an attempt of a job, and the addresses by which a gang finds its nodes.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Volume;
use crate::batchai::{ContainerSettings, EnvironmentVariable, InputDirectory, OutputDirectory, PythonEnvironment};
use crate::layout::{Layout, ProcessSlot};
use crate::{AttemptId, NodeId, Secret};

/// Rendezvous of a gang. Reported by its nodes, combined and distributed by the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangAddress {
    /// Address of the master.
    pub address: String,
    pub rendezvous_port: u16,
    pub master_port: u16,
    /// The master has an `mpirun`, which starts all ranks.
    #[serde(default)]
    pub mpirun: bool,
    /// Ports of every node in order, if the job needs them; a node reports its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<HostPorts>,
}

impl GangAddress {
    pub fn new(address: impl Into<String>, rendezvous_port: u16, master_port: u16) -> GangAddress {
        GangAddress { address: address.into(), rendezvous_port, master_port, mpirun: false, ports: Vec::new() }
    }
}

/// Ports that one node reserves for a gang.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPorts {
    /// Port by which the job's processes on other nodes start commands on this one.
    pub remote: Option<u16>,
    /// One port for each process that listens itself, parameter servers first.
    pub tasks: Vec<u16>,
}

/// One node's part of one attempt. Names everything outright, so that the node makes no decisions.
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
    /// Index of this node in `hosts`.
    pub host_idx: usize,
    /// Processes of the job on all its nodes.
    pub layout: Layout,
    pub preparation: Option<String>,
    pub volumes: Vec<Volume>,
    pub std_out_err_path_prefix: String,
    pub input_directories: Vec<InputDirectory>,
    pub output_directories: Vec<OutputDirectory>,
    pub environment: Vec<EnvironmentVariable>,
    pub secrets: Vec<TaskSecret>,
    /// Directory of the server that all nodes of the job share. Absent on a node that mounts it instead.
    pub shared_temp: Option<PathBuf>,
    pub container: Option<ContainerSettings>,
    /// The operator allows container jobs to run on the host.
    pub containers_on_host: bool,
    /// The task must run isolated or not at all, unless the node's operator chose otherwise, because the server has
    /// several users.
    #[serde(default)]
    pub strict_isolation: bool,
    /// The operator allows secret values in the output.
    #[serde(default)]
    pub shows_secrets: bool,
    /// Resource limits of the job on this machine.
    #[serde(default)]
    pub limits: Option<Limits>,
    /// Write performance counters beside the job's logs.
    #[serde(default)]
    pub counters: bool,
    pub gpus: u32,
    /// Secret with which ranks authenticate each other.
    pub gang_secret: Secret,
    /// Sentences about earlier attempts that lost a node; their last output may be missing from the logs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_attempts: Vec<String>,
    /// Directory in which the processes start, with variables of the job's directories. The job's own by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// Each line of output begins with the rank that wrote it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prefix_output_with_rank: bool,
    /// The attempt is elastic: `hosts` are its nodes at the time of the order, and each has the same number of processes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub elastic: bool,
    /// Python environment that the node makes for the job's processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python_environment: Option<PythonEnvironment>,
}

impl TaskOrder {
    pub fn is_master(&self) -> bool {
        self.host_idx == 0
    }

    /// Names of the nodes for launchers: their addresses. Launchers merge nodes of one address, so if a machine runs
    /// several nodes, all but the first get a loopback address that only the node's own remote start understands.
    pub fn launch_names(&self) -> Vec<String> {
        let mut seen = HashSet::new();
        let is_first = self.hosts.iter().map(|host| seen.insert(host.address.as_str()));
        let own = |idx: usize| format!("127.63.{}.{}", idx / 250, 1 + idx % 250);
        let name =
            |(idx, (host, first)): (usize, (&GangHost, bool))| if first { host.address.clone() } else { own(idx) };
        self.hosts.iter().zip(is_first).enumerate().map(name).collect()
    }

    /// Whether some nodes share an address and thus a machine.
    pub fn shares_machines(&self) -> bool {
        let addresses: HashSet<&str> = self.hosts.iter().map(|host| host.address.as_str()).collect();
        addresses.len() < self.hosts.len()
    }

    /// All processes of the job on all nodes.
    pub fn process_slots(&self, mpirun: bool) -> Vec<ProcessSlot<'_>> {
        let slots: Vec<usize> = self.hosts.iter().map(|host| host.slots).collect();
        self.layout.process_slots(&slots, mpirun)
    }
}

/// Resources of a node of the cluster's VM size. A smaller machine offers what it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Name of the VM size: `STANDARD_NC6`.
    pub vm_size: String,
    pub memory_bytes: u64,
    pub cores: u32,
    /// Limit of processes and threads of a job, if the operator set one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
}

/// List shared by the orders of a gang: each of a thousand nodes gets all thousand names.
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
    /// Ranks or workers that it runs.
    pub slots: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskSecret {
    pub name: String,
    pub value: Secret,
}
