//! What is kept, one type per kind of record. A serde derive here is a promise to databases already written.
//! Names are as the user wrote them; keys are in the tables.

use std::sync::Arc;

use corro_model::arm::{AccountIdentity, AccountSettings};
use corro_model::batchai::{AllocationState, BatchAiError, ClusterSpec, FileServerSpec, JobSpec, Provisioning, Tags};
use corro_model::host::Inventory;
use corro_model::rbac::Assignment;
use corro_model::state::{JobState, NodeState, Preemption};
use corro_model::{
    AttemptId, ClusterKey, ExperimentKey, FileServerKey, GroupKey, JobKey, NodeId, Secret, Timestamp, WorkspaceKey,
};
use imbl::OrdMap;
use serde::{Deserialize, Serialize};

use crate::encryption::{EncryptionError, Sealed, Vault};

/// Records of one kind by key. Persistent map: clones share structure.
pub type Table<K, R> = OrdMap<K, Arc<R>>;

/// What this installation is; one record, key `self`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InstanceRecord {
    pub subscription: String,
    pub tenant: String,
    /// Signs access tokens.
    pub token_key: Sealed,
}

impl InstanceRecord {
    /// What the key is sealed for.
    pub const TOKEN_KEY: &str = "token key";

    /// The key that signs access tokens. Whoever can open it has the database's master key.
    pub fn open_token_key(&self, vault: &Vault) -> Result<Secret, EncryptionError> {
        vault.open_sealed(Self::TOKEN_KEY, &self.token_key)
    }
}

/// Someone who may call the API; keyed by client id. Only a digest of the secret is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PrincipalRecord {
    pub name: String,
    pub secret_digest: String,
    pub created: Timestamp,
    /// What it may do, and where.
    #[serde(default)]
    pub assignments: Vec<Assignment>,
    /// From then on its secret opens nothing; `None` for one that does not end.
    #[serde(default)]
    pub expires: Option<Timestamp>,
    /// How often everything that was open in its name was ended.
    #[serde(default)]
    pub revocations: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupRecord {
    pub name: String,
    pub location: String,
    pub tags: Option<Tags>,
    pub created: Timestamp,
    pub deleting: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkspaceRecord {
    pub name: String,
    pub location: String,
    pub tags: Tags,
    pub provisioning: Provisioning,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExperimentRecord {
    pub name: String,
    pub provisioning: Provisioning,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClusterRecord {
    pub name: String,
    pub guid: String,
    /// The number in its node ids.
    pub pool: u32,
    /// Index of the next node; grows over resizes.
    pub next_index: u32,
    /// As asked for, defaults filled in, secrets taken out.
    pub spec: ClusterSpec,
    /// The values that were taken out, as JSON, sealed.
    pub secrets: Option<Sealed>,
    /// A digest of the request, to tell a repeated UPSERT_RECORD from a different one.
    pub fingerprint: String,
    pub provisioning: Provisioning,
    pub allocation: AllocationState,
    pub allocation_since: Timestamp,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileServerRecord {
    pub name: String,
    /// As asked for, defaults filled in, secrets dropped.
    pub spec: FileServerSpec,
    /// A digest of the request, to tell a repeated UPSERT_RECORD from a different one.
    pub fingerprint: String,
    /// A keyed digest of the password, empty when none was given; `None` in records from before it was kept.
    #[serde(default)]
    pub password_mark: Option<String>,
    pub provisioning: Provisioning,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeRecord {
    pub cluster: ClusterKey,
    pub index: u32,
    pub address: String,
    /// Orders carry this; raised when the node is declared lost.
    pub epoch: u64,
    pub allocated: Timestamp,
    /// Digest of the node's credential, once it has joined.
    pub credential_digest: Option<String>,
    /// The key of the host that carries it, or is to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// It is taken back. Set only by [`Txn::preempt`](crate::Txn::preempt).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) preempted: Option<Preemption>,
    pub(crate) state: NodeState,
    pub(crate) since: Timestamp,
}

impl NodeRecord {
    pub fn allocating(cluster: ClusterKey, index: u32, address: String, now: Timestamp) -> Self {
        let (epoch, credential_digest, host, preempted, state) = (1, None, None, None, NodeState::Allocating);
        Self { cluster, index, address, epoch, allocated: now, credential_digest, host, preempted, state, since: now }
    }

    /// Moved only by [`Txn::node_event`](crate::Txn::node_event).
    pub fn state(&self) -> &NodeState {
        &self.state
    }

    pub fn since(&self) -> Timestamp {
        self.since
    }

    pub fn preempted(&self) -> Option<&Preemption> {
        self.preempted.as_ref()
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobRecord {
    pub name: String,
    pub guid: String,
    /// Order of submission: first come, first served.
    pub sequence: u64,
    pub cluster: ClusterKey,
    /// As asked for, defaults filled in, secrets taken out. It never changes, so answers and later records share it.
    pub spec: Arc<JobSpec>,
    /// The values that were taken out, as JSON, sealed.
    pub secrets: Option<Sealed>,
    pub fingerprint: String,
    pub segment: String,
    pub provisioning: Provisioning,
    /// How often it was placed.
    pub attempts: u32,
    /// That an attempt was told to give up its nodes; once told, it is not taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evicted: Option<Evicted>,
    /// How an attempt lost a node; the first, if there were several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) loss: Option<Loss>,
    /// Attempts that did not end the job, oldest first.
    pub lost_attempts: Vec<LostAttempt>,
    /// The nodes of the last attempt that is over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) former_nodes: Vec<NodeId>,
    pub(crate) state: JobState,
    pub(crate) since: Timestamp,
}

/// Why an attempt must give up its nodes, and how much time its processes have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evicted {
    pub attempt: u32,
    pub at: Timestamp,
    pub grace_ms: u64,
    /// What the attempt ends with.
    pub reason: BatchAiError,
}

/// Kept here because the node's own record goes before the attempt ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    pub attempt: u32,
    pub node: NodeId,
    pub cause: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LostAttempt {
    pub number: u32,
    pub ended: Timestamp,
    pub reason: BatchAiError,
}

/// What a new job's record is made from.
pub struct NewJob {
    pub name: String,
    pub guid: String,
    pub sequence: u64,
    pub cluster: ClusterKey,
    pub spec: JobSpec,
    pub secrets: Option<Sealed>,
    pub fingerprint: String,
    pub segment: String,
    pub provisioning: Provisioning,
}

impl JobRecord {
    pub fn queued(job: NewJob, now: Timestamp) -> Self {
        let NewJob { name, guid, sequence, cluster, spec, secrets, fingerprint, segment, provisioning } = job;
        let (attempts, evicted, loss, lost_attempts, state) = (0, None, None, Vec::new(), JobState::Queued);
        let former_nodes = Vec::new();
        #[rustfmt::skip]
        let record = Self {
            name, guid, sequence, cluster, spec: Arc::new(spec), secrets, fingerprint, segment, provisioning,
            attempts, evicted, loss, lost_attempts, former_nodes, state, since: now,
        };
        record
    }

    /// When it was submitted; `since` is when it came to its present state.
    pub fn submitted(&self) -> Timestamp {
        self.provisioning.creation_time
    }

    /// The attempt that was placed last.
    pub fn attempt(&self) -> AttemptId {
        AttemptId { job: self.guid.clone(), number: self.attempts }
    }

    /// Is the running attempt to give up its nodes, and why?
    pub fn eviction(&self) -> Option<&Evicted> {
        self.evicted.as_ref().filter(|evicted| evicted.attempt == self.attempts)
    }

    /// Why the running attempt lost this node, if it did.
    pub fn cause_of_loss(&self, node: &NodeId) -> Option<&str> {
        let loss = self.loss.as_ref().filter(|loss| loss.attempt == self.attempts && loss.node == *node);
        loss.map(|loss| loss.cause.as_str())
    }

    pub fn is_evicted(&self) -> bool {
        self.eviction().is_some()
    }

    /// The nodes of the attempt that was placed last, the master first. Some may be gone, or busy with other jobs.
    pub fn last_nodes(&self) -> &[NodeId] {
        match self.state.nodes() {
            [] => &self.former_nodes,
            nodes => nodes,
        }
    }

    /// Moved only by [`Txn::job_event`](crate::Txn::job_event).
    pub fn state(&self) -> &JobState {
        &self.state
    }

    pub fn since(&self) -> Timestamp {
        self.since
    }
}

/// A storage account; keyed by name, which is unique in the installation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccountRecord {
    pub group: GroupKey,
    pub location: String,
    pub sku: String,
    pub kind: String,
    pub tags: Tags,
    pub https_only: bool,
    #[serde(default)]
    pub settings: AccountSettings,
    #[serde(default)]
    pub identity: Option<AccountIdentity>,
    pub created: Timestamp,
    /// key1 and key2, base64 inside the seal.
    pub keys: [Sealed; 2],
    pub deleting: bool,
}

/// A machine that has joined, and carries nodes; keyed by its name in lower case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostRecord {
    pub name: String,
    /// Digest of the host's credential.
    pub credential_digest: String,
    pub joined: Timestamp,
    /// With which token.
    pub token: String,
    /// As it told last.
    pub inventory: Inventory,
    /// About when it was last heard; to the minute, as every write costs.
    pub heard: Timestamp,
    /// It takes no nodes, and its nodes take no jobs.
    #[serde(default)]
    pub cordoned: bool,
    /// Its nodes leave it; only ever together with `cordoned`.
    #[serde(default)]
    pub draining: Option<Drain>,
    /// It goes once no node is left on it.
    #[serde(default)]
    pub removing: bool,
}

/// How the nodes leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Drain {
    /// Each when its job has ended.
    InTurn,
    /// Their jobs go back to the queue.
    Now,
}

/// What lets machines join as hosts; keyed by a short public id. Only a digest of the secret is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostTokenRecord {
    pub secret_digest: String,
    pub created: Timestamp,
    pub expires: Timestamp,
    /// How many hosts joined with it.
    #[serde(default)]
    pub hosts: u64,
}

/// A long-running operation that a client may ask about.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OperationRecord {
    /// Names from the subscription down, joined with `$`.
    pub resource_id: String,
    pub goal: OperationGoal,
    pub started: Timestamp,
    pub ended: Option<Timestamp>,
    /// It ended without its goal: what was to be made was deleted first.
    #[serde(default)]
    pub undone: bool,
    /// Who began it. They may ask after it even when their rights went with what it deleted.
    #[serde(default)]
    pub by: String,
}

/// What must be true for the operation to have succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OperationGoal {
    ClusterCreated(ClusterKey),
    ClusterGone(ClusterKey),
    FileServerCreated(FileServerKey),
    FileServerGone(FileServerKey),
    JobCreated(JobKey),
    JobEnded(JobKey),
    JobGone(JobKey),
    ExperimentGone(ExperimentKey),
    WorkspaceGone(WorkspaceKey),
    AccountGone(String),
    GroupGone(GroupKey),
}
