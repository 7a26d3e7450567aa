//! What server and node tell each other. The server sends the *whole* desired state of a node; the node reports what it
//! observes. Nothing here is a command to do once: every message can be lost and sent again.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::batchai::{
    BatchAiError, ContainerSettings, EnvironmentVariable, InputDirectory, OutputDirectory, RankFigures,
};
use crate::layout::{Layout, Place, Role};
use crate::password::PasswordVerifier;
use crate::{ApiError, AttemptId, NodeId, Secret, Timestamp};

/// How often a node speaks, even when it has nothing new to say.
pub const HEARTBEAT: Duration = Duration::from_secs(1);

/// What this program speaks with servers and agents. Raised when one side must understand something new of the other.
pub const PROTOCOL: u32 = 2;
/// The header in which agents and hosts say theirs; those from before it spoke 1.
pub const PROTOCOL_HEADER: &str = "x-corro-protocol";

/// Does a server of this program understand an agent that speaks `given`? Servers are upgraded first: one version back is
/// understood, so that nothing that runs is lost while the agents follow.
pub fn understands(given: Option<&str>) -> Result<(), ApiError> {
    let spoken = given.map_or(Some(1), |text| text.trim().parse::<u32>().ok());
    let (cause, fix) = match spoken {
        Some(spoken) if [Some(spoken), spoken.checked_add(1)].contains(&Some(PROTOCOL)) => return Ok(()),
        Some(spoken) if spoken > PROTOCOL => ("newer than the server", "upgrade the server first, then the agents"),
        _ => ("too old for the server", "upgrade the program on the agent's machine and start the agent again"),
    };
    let spoken = spoken.map_or_else(|| "?".to_owned(), |spoken| spoken.to_string());
    let message = format!("The agent is {cause} (protocol {spoken}, the server speaks {PROTOCOL}): {fix}");
    Err(ApiError::new(426, "AgentVersion", message))
}

/// `POST`: trade a one-time join token for a node's identity and credential.
pub const JOIN_PATH: &str = "/corro/v1/join";
/// `GET` with upgrade: the node's one WebSocket.
pub const CONNECT_PATH: &str = "/corro/v1/connect";

/// `GET`: the Python wheels that the server offers to jobs, as a list of [`Wheel`]; below it, one by its name.
pub const WHEELS_PATH: &str = "/corro/v1/wheels";

/// A Python wheel that `pip` finds on every node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wheel {
    pub name: String,
    pub bytes: u64,
    /// When it was last changed, in nanoseconds of Unix time: with the size, what tells it from an older one.
    pub modified: u64,
}

impl Wheel {
    pub const MOST: usize = 64;
    pub const MOST_BYTES: u64 = 512 << 20;

    /// A name that is one file's in one directory, whoever sent it: `horovod-0.29.0-cp39-abi3-manylinux_2_28_x86_64.whl`.
    pub fn is_name(name: &str) -> bool {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+!".contains(&byte);
        name.ends_with(".whl") && !name.starts_with('.') && name.len() <= 200 && name.bytes().all(plain)
    }
}

/// `POST` a [`PassRequest`]: leave to mount a volume that lies on the server, for a node on another machine.
pub const PASSES_PATH: &str = "/corro/v1/passes";

/// Which volume a node wants to mount over the file service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassRequest {
    /// The attempt whose volume it is; of the node's cluster without.
    pub attempt: Option<AttemptId>,
    /// Where it is mounted below the mount root; without it, the directory that the nodes of the attempt share.
    pub relative: Option<String>,
}

/// What it is mounted with. Ends by itself after a while, and with the job or the node at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pass {
    /// Of the file service: the account, and the share or whatever stands for one.
    pub account: String,
    pub share: String,
    /// Of it only this directory is mounted; all of it when empty.
    pub directory: String,
    /// The query of a signed link, good for this share alone.
    pub signature: Secret,
    pub lifetime_s: u64,
}

/// A file of the server's that nobody else has: a node that finds it with this content is on the server's machine, or sees its disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landmark {
    pub file: PathBuf,
    pub content: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JoinRequest {
    pub token: Secret,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeCredential {
    pub node: NodeId,
    /// Rises when the node is declared lost: older credentials are refused.
    pub epoch: u64,
    pub secret: Secret,
    /// Which installation gave it: only that one can declare the node lost.
    #[serde(default)]
    pub instance: String,
}

/// The header in which a server that refuses a node says which installation it is.
pub const INSTANCE_HEADER: &str = "x-corro-instance";

/// The `Authorization` header a node connects with: `Bearer node:{node}:{epoch}:{secret}`.
pub fn bearer(credential: &NodeCredential) -> String {
    format!("{BEARER}{}:{}:{}", credential.node, credential.epoch, credential.secret.expose())
}

/// Reads [`bearer`] back; `None` for the header of anyone who is not a node.
pub fn parse_bearer(header: &str) -> Option<NodeCredential> {
    let mut parts = header.strip_prefix(BEARER)?.splitn(3, ':');
    let node = NodeId::parse(parts.next()?)?;
    let epoch = parts.next()?.parse().ok()?;
    let secret = parts.next().filter(|secret| !secret.is_empty())?;
    Some(NodeCredential { node, epoch, secret: Secret::new(secret), instance: String::new() })
}

const BEARER: &str = "Bearer node:";

/// Server to node.
#[allow(clippy::large_enum_variant)] // One at a time; a box would buy nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum ToNode {
    Desired(DesiredNode),
    /// The node was declared lost or removed: stop everything, forget the credential.
    Fenced {
        reason: String,
    },
    /// Somebody looks at the node's task: say once what its processes use.
    Look,
    /// Somebody wants a timeline of the node's task: have its ranks record it, and send what they did.
    Record {
        number: u64,
        millis: u64,
        /// Of all its ranks together.
        most_bytes: u64,
    },
}

/// Node to server.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum FromNode {
    Observed(ObservedNode),
    Heartbeat,
    /// The answer to a look.
    Figures(TaskFigures),
    /// The answers to an order to record.
    Recording(FromRecording),
}

/// What one rank recorded, as a timeline of Horovod's; without a rank, that this was all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FromRecording {
    pub number: u64,
    pub rank: Option<(usize, String)>,
}

/// What the processes of a node's task use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskFigures {
    /// Absent when nothing of any attempt runs.
    pub attempt: Option<AttemptId>,
    pub processes: Vec<RankFigures>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DesiredNode {
    /// Stop everything, clean up and exit.
    pub retire: bool,
    /// Cluster-level volumes.
    pub volumes: Vec<Volume>,
    /// Shows the node whether it sees the server's directories.
    #[serde(default)]
    pub landmark: Option<Landmark>,
    /// Nobody but the node itself can end what it runs: it must have done so when it has not reached the server for this
    /// long, as its jobs may then be tried elsewhere.
    #[serde(default)]
    pub lease_ms: Option<u64>,
    /// What runs once the volumes are there, before the node is ready.
    #[serde(default)]
    pub setup: Option<SetupOrder>,
    /// Who may log in; nobody without.
    #[serde(default)]
    pub login: Option<Login>,
    pub task: Option<DesiredTask>,
}

impl DesiredNode {
    /// The same to a node that does not see the server's directories: whatever lies in them it mounts.
    pub fn from_elsewhere(mut self) -> DesiredNode {
        let mounted = |volumes: &mut [Volume], attempt: Option<&AttemptId>| {
            for volume in volumes {
                if let VolumeSource::LocalDirectory(_) = volume.source {
                    let (attempt, relative) = (attempt.cloned(), Some(volume.relative.clone()));
                    volume.source = VolumeSource::Remote(PassRequest { attempt, relative });
                }
            }
        };
        mounted(&mut self.volumes, None);
        if let Some(DesiredTask { order, .. }) = &mut self.task {
            mounted(&mut order.volumes, Some(&order.attempt));
            order.shared_temp = None;
        }
        self
    }
}

/// The administrator of a cluster, who may log in to its nodes. Never holds the password.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Login {
    pub user: String,
    /// In OpenSSH's form: `ssh-rsa AAAA…`.
    pub public_key: Option<String>,
    pub password: Option<PasswordVerifier>,
}

/// Where a node's SSH server listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginDoor {
    pub address: String,
    pub port: u16,
}

/// Login doors take the first free port from here upwards, as the service's nodes did.
pub const FIRST_LOGIN_PORT: u16 = 50_000;

/// Variables by which somebody who logs in asks to stand beside the processes of a job: `WORKSPACE/EXPERIMENT/JOB`, one of
/// its ranks, and whether its secrets are wanted (`1`).
pub const JOB_VARIABLE: &str = "CORRO_JOB";
pub const RANK_VARIABLE: &str = "CORRO_JOB_RANK";
pub const SECRETS_VARIABLE: &str = "CORRO_JOB_SECRETS";

/// The cluster's setup task, as one node runs it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetupOrder {
    pub command: String,
    pub std_out_err_path_prefix: String,
    /// `{subscription}/{group}/workspaces/{ws}/clusters/{cluster}/{guid}`
    pub segment: String,
    pub environment: Vec<EnvironmentVariable>,
    pub secrets: Vec<TaskSecret>,
}

/// Something that must appear at `relative` below a mount root.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    #[serde(default)]
    pub kind: VolumeKind,
    pub relative: String,
    /// What people call it: `//account.file.core.windows.net/share`, or `name container from account account`.
    pub label: String,
    pub source: VolumeSource,
    /// Nothing may be written through it.
    #[serde(default)]
    pub read_only: bool,
}

impl Volume {
    /// The directory of the server's machine that a link to this volume leads to. What is read-only has no link.
    pub fn linked_directory(&self) -> Option<&PathBuf> {
        match &self.source {
            _ if self.read_only => None,
            VolumeSource::LocalDirectory(path) => Some(path),
            VolumeSource::Remote(_) | VolumeSource::Command { .. } | VolumeSource::Unavailable { .. } => None,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum VolumeKind {
    #[default]
    FileShare,
    Container,
    FileServer,
    Unmanaged,
    /// What the nodes of a job share, to a node that does not see it.
    JobShared,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum VolumeSource {
    /// A directory on the server's own machine: a share, a container, a file server.
    LocalDirectory(PathBuf),
    /// The same to a node that does not see the server's directories. Only nodes say this, to themselves.
    Remote(PassRequest),
    /// The node runs this, with the mount point behind it.
    Command { command: String },
    /// The server already knows that it cannot be mounted, and why.
    Unavailable { why: String },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DesiredTask {
    pub goal: Goal,
    pub order: TaskOrder,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Goal {
    /// Mounts, directories, job preparation; then wait for the gang.
    Prepare,
    /// The node is the whole gang: prepare and start its ranks, without asking in between.
    PrepareAndRun,
    /// Every node is prepared: start this node's ranks.
    Run { gang: GangAddress },
    /// Stop the ranks: first politely, then after `grace_ms` for good.
    Stop { grace_ms: u64 },
}

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
    /// What the job may use of the node's machine.
    #[serde(default)]
    pub limits: Option<Limits>,
    /// Performance counters are to be written beside the job's logs.
    #[serde(default)]
    pub counters: bool,
    pub gpus: u32,
    /// Proved by the ranks to each other.
    pub gang_secret: Secret,
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
    pub fn places(&self, mpirun: bool) -> Vec<Place<'_>> {
        let slots: Vec<usize> = self.hosts.iter().map(|host| host.slots).collect();
        self.layout.places(&slots, mpirun)
    }
}

/// What a node of the cluster's VM size has. A machine that has less gives what it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// As people know it: `STANDARD_NC6`.
    pub vm_size: String,
    pub memory_bytes: u64,
    pub cores: u32,
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

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ObservedNode {
    /// Cluster-level volumes are mounted, the setup task has ended well, and the node can take a task.
    pub ready: bool,
    /// Why the node can never become ready.
    pub problem: Option<BatchAiError>,
    /// At which other nodes reach it. The server hands it to them; nobody else finds out an address.
    #[serde(default)]
    pub address: Option<String>,
    /// Open when someone may log in.
    #[serde(default)]
    pub login: Option<LoginDoor>,
    pub task: Option<ObservedTask>,
    /// The agent is about to exit, as asked.
    pub retired: bool,
    /// The agent was told to end: what it says stays true, but it takes nothing new.
    #[serde(default)]
    pub ending: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObservedTask {
    pub attempt: AttemptId,
    pub phase: TaskPhase,
    /// Ranks of this node that have ended so far.
    pub exits: Vec<RankExit>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TaskPhase {
    Preparing,
    /// Waiting for the gang. The master says where the ranks will meet, and each node its own ports.
    Prepared {
        gang: Option<GangAddress>,
    },
    Running,
    /// Nothing of the task runs any more, and every byte it wrote is in its log.
    Ended {
        failure: Option<TaskFailure>,
    },
}

/// The code of the failure of an attempt that ended with its agent: no fault of the job, which may be tried again.
pub const AGENT_RESTARTED: &str = "AgentRestarted";

/// Why a node's part failed before or beside its ranks (mount, preparation, spawn).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskFailure {
    pub exit_code: Option<i32>,
    pub error: BatchAiError,
    pub at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankExit {
    /// Its number among all processes of the job.
    pub rank: usize,
    #[serde(default)]
    pub role: Role,
    /// Among those of its role.
    #[serde(default)]
    pub index: usize,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// It was stopped because it had to, so it is not to blame.
    pub stopped: bool,
    pub at: Timestamp,
    /// The last lines it wrote to stderr.
    pub stderr_tail: String,
    /// Processes of its node's part were killed because they were beyond a limit of memory: which one, in words.
    #[serde(default)]
    pub out_of_memory: Option<String>,
}

impl RankExit {
    pub fn succeeded(&self) -> bool {
        self.exit_code == Some(0)
    }

    /// As a shell reports it: 128 + n for signal n.
    pub fn shell_code(&self) -> i32 {
        self.exit_code.unwrap_or_else(|| 128 + self.signal.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_version_back_is_understood() {
        for (given, good) in [
            (Some("2"), true),
            (Some("1"), true),
            (None, true),
            (Some("0"), false),
            (Some("x"), false),
            (Some("4294967295"), false),
        ] {
            assert_eq!(understands(given).is_ok(), good, "{given:?}");
        }
        let newer = understands(Some("3")).expect_err("the server is too old");
        assert!(newer.status == 426 && newer.message.contains("upgrade the server first"), "{newer:?}");
        assert_eq!(PROTOCOL, 2, "the cases above are for this one");
    }

    #[test]
    fn a_credential_survives_the_header() {
        let node = NodeId::parse("tvm-1_1-20180718t174802z-p").expect("a valid id");
        let credential = NodeCredential { node, epoch: 7, secret: Secret::new("a:b"), instance: String::new() };
        let header = bearer(&credential);
        assert_eq!(header, "Bearer node:tvm-1_1-20180718t174802z-p:7:a:b");
        assert_eq!(parse_bearer(&header), Some(credential));
        for other in ["", "Bearer eyJ0", "Bearer node:tvm-1:x:s", "Bearer node:tvm-1:1:", "Bearer node:../a:1:s"] {
            assert_eq!(parse_bearer(other), None, "{other}");
        }
    }
}
