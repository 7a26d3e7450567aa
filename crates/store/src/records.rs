//! Stored record types, one per kind. Their serde format must stay compatible with existing databases. Names are as the
//! user wrote them; keys are in the tables.

mod delivery;
mod elastic;

use std::sync::Arc;

use corro_model::arm::{AccountIdentity, AccountSettings};
use corro_model::batchai::{
    AllocationState, BatchAiError, ClusterSpec, FileServerSpec, JobAnnotations, JobSpec, Notifications, Provisioning,
    Tags,
};
use corro_model::host::Inventory;
use corro_model::rbac::Assignment;
use corro_model::state::{JobState, NodeState, Preemption};
use corro_model::{
    AttemptId, ClusterKey, ExperimentKey, FileServerKey, GroupKey, JobKey, NodeId, Secret, Timestamp, WorkspaceKey,
};
use imbl::OrdMap;
use serde::{Deserialize, Serialize};

pub use self::delivery::{DeliveryFailure, DeliveryRecord};
pub use self::elastic::{ElasticRecord, Release};
use crate::encryption::{Ciphertext, EncryptionError, Vault};

/// Records of one kind by key. Persistent map: clones share structure.
pub type Table<K, R> = OrdMap<K, Arc<R>>;

/// This installation; one record with key `self`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InstanceRecord {
    pub subscription: String,
    pub tenant: String,
    /// Signs access tokens.
    pub token_key: Ciphertext,
}

impl InstanceRecord {
    /// Encryption purpose of the token key.
    pub const TOKEN_KEY: &str = "token key";

    /// Decrypts the key that signs access tokens. Success proves that `vault` has this database's master key.
    pub fn open_token_key(&self, vault: &Vault) -> Result<Secret, EncryptionError> {
        vault.open_sealed(Self::TOKEN_KEY, &self.token_key)
    }
}

/// Principal that may call the API; keyed by client id. Only a digest of the secret is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PrincipalRecord {
    pub name: String,
    pub secret_digest: String,
    pub created: Timestamp,
    /// Role assignments with their scopes.
    #[serde(default)]
    pub assignments: Vec<Assignment>,
    /// Expiry of the secret; `None` if it does not expire.
    #[serde(default)]
    pub expires: Option<Timestamp>,
    /// Number of revocations: each ends all open sessions.
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
    /// Notifications of the jobs that name none themselves, without what could be a credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notifications: Option<Notifications>,
    /// URL and key of their webhook; see [`JobRecord::webhook`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Ciphertext>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClusterRecord {
    pub name: String,
    pub guid: String,
    /// Number that is part of the cluster's node ids.
    pub pool: u32,
    /// Index of the next node; never reused after a resize.
    pub next_index: u32,
    /// Requested spec with defaults filled in and secrets removed.
    pub spec: ClusterSpec,
    /// The removed secrets as JSON, encrypted.
    pub secrets: Option<Ciphertext>,
    /// Digest of the request, to recognize a repeated PUT.
    pub fingerprint: String,
    pub provisioning: Provisioning,
    pub allocation: AllocationState,
    pub allocation_since: Timestamp,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileServerRecord {
    pub name: String,
    /// Requested spec with defaults filled in and secrets dropped.
    pub spec: FileServerSpec,
    /// Digest of the request, to recognize a repeated PUT.
    pub fingerprint: String,
    /// Keyed digest of the password, empty if none was given; `None` in records of older versions.
    #[serde(default)]
    pub password_mark: Option<String>,
    pub provisioning: Provisioning,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeRecord {
    pub cluster: ClusterKey,
    pub index: u32,
    pub address: String,
    /// Sent with each order; incremented when the node is declared lost.
    pub epoch: u64,
    pub allocated: Timestamp,
    /// Digest of the node's credential, once it has joined.
    pub credential_digest: Option<String>,
    /// Key of the host that runs the node, or will run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Preemption in progress. Set only by [`Txn::preempt`](crate::Txn::preempt).
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

    /// Changed only by [`Txn::node_event`](crate::Txn::node_event).
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
    /// Submission number; jobs are served in this order.
    pub sequence: u64,
    pub cluster: ClusterKey,
    /// Requested spec with defaults filled in and secrets removed. Immutable, so responses and later records share it.
    pub spec: Arc<JobSpec>,
    /// The removed secrets as JSON, encrypted.
    pub secrets: Option<Ciphertext>,
    /// URL and key of the webhook as JSON, encrypted; the specification has the URL without what could be a credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Ciphertext>,
    pub fingerprint: String,
    pub segment: String,
    /// Client id of the principal that submitted it; `None` in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    pub provisioning: Provisioning,
    /// Number of placements.
    pub attempts: u32,
    /// Eviction of an attempt; irrevocable once sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evicted: Option<EvictionRecord>,
    #[serde(default, skip_serializing_if = "JobAnnotations::is_empty")]
    pub annotations: JobAnnotations,
    /// First node loss of an attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) loss: Option<Loss>,
    /// Attempts that did not end the job, oldest first.
    pub lost_attempts: Vec<LostAttempt>,
    /// Those of them that failed; at most `constraints.maxRetryCount`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) failed_attempts: u32,
    /// Jobs of `dependsOn` that have not succeeded. The planner does not see the job while there are any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unmet_dependencies: Vec<JobKey>,
    /// Size of an elastic job. Changed only by [`Txn`](crate::Txn).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) elastic: Option<Box<ElasticRecord>>,
    /// Nodes of the last attempt that has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) former_nodes: Vec<NodeId>,
    pub(crate) state: JobState,
    pub(crate) since: Timestamp,
}

/// Reason of an eviction, and the grace period of the processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvictionRecord {
    pub attempt: u32,
    pub at: Timestamp,
    pub grace_ms: u64,
    /// Error with which the attempt ends.
    pub reason: BatchAiError,
}

/// Lost node of an attempt. Stored here because the node's own record is removed before the attempt ends.
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
    /// Exit code of the program that failed; `None` if the attempt was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    pub reason: BatchAiError,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// Input for a new job record.
pub struct NewJob {
    pub name: String,
    pub guid: String,
    pub sequence: u64,
    pub cluster: ClusterKey,
    pub spec: JobSpec,
    pub secrets: Option<Ciphertext>,
    pub fingerprint: String,
    pub segment: String,
    pub provisioning: Provisioning,
}

impl JobRecord {
    pub fn queued(job: NewJob, now: Timestamp) -> Self {
        let NewJob { name, guid, sequence, cluster, spec, secrets, fingerprint, segment, provisioning } = job;
        let (attempts, evicted, loss, lost_attempts, state) = (0, None, None, Vec::new(), JobState::Queued);
        let (former_nodes, owner, failed_attempts, unmet_dependencies) = (Vec::new(), None, 0, Vec::new());
        let (annotations, webhook, elastic) = (JobAnnotations::default(), None, None);
        #[rustfmt::skip]
        let record = Self {
            name, guid, sequence, cluster, spec: Arc::new(spec), secrets, fingerprint, segment, owner, provisioning,
            attempts, evicted, annotations, loss, lost_attempts, webhook, failed_attempts, unmet_dependencies, elastic, former_nodes,
            state, since: now,
        };
        record
    }

    /// The record with the client id of the principal that submits the job.
    pub fn owned_by(self, principal: &str) -> Self {
        Self { owner: Some(principal.to_owned()), ..self }
    }

    /// The record of a new job that waits until these jobs have succeeded.
    pub fn depending_on(self, dependencies: Vec<JobKey>) -> Self {
        Self { unmet_dependencies: dependencies, ..self }
    }

    /// The record with the sealed URL and key of its webhook.
    pub fn reporting_to(self, webhook: Option<Ciphertext>) -> Self {
        Self { webhook, ..self }
    }

    /// Jobs that must succeed before this queued job may be placed. Crossed off by
    /// [`Txn::meet_dependency`](crate::Txn::meet_dependency).
    pub fn unmet_dependencies(&self) -> &[JobKey] {
        match self.state {
            JobState::Queued => &self.unmet_dependencies,
            _ => &[],
        }
    }

    /// Attempts that failed and were followed by another. Counted by [`Txn::retry`](crate::Txn::retry).
    pub fn failed_attempts(&self) -> u32 {
        self.failed_attempts
    }

    /// Size of an elastic job that was placed.
    pub fn elastic(&self) -> Option<&ElasticRecord> {
        self.elastic.as_deref()
    }

    /// Submission time; `since` is the start of the present state.
    pub fn submitted(&self) -> Timestamp {
        self.provisioning.creation_time
    }

    /// Last placed attempt.
    pub fn attempt(&self) -> AttemptId {
        AttemptId { job: self.guid.clone(), number: self.attempts }
    }

    /// Eviction of the running attempt, if there is one.
    pub fn eviction(&self) -> Option<&EvictionRecord> {
        self.evicted.as_ref().filter(|evicted| evicted.attempt == self.attempts)
    }

    /// Reason why the running attempt lost this node, if it did.
    pub fn cause_of_loss(&self, node: &NodeId) -> Option<&str> {
        let loss = self.loss.as_ref().filter(|loss| loss.attempt == self.attempts && loss.node == *node);
        loss.map(|loss| loss.cause.as_str())
    }

    pub fn is_evicted(&self) -> bool {
        self.eviction().is_some()
    }

    /// Nodes of the last placed attempt, the master first. Some may be gone or run other jobs.
    pub fn last_nodes(&self) -> &[NodeId] {
        match self.state.nodes() {
            [] => &self.former_nodes,
            nodes => nodes,
        }
    }

    /// Changed only by [`Txn::job_event`](crate::Txn::job_event).
    pub fn state(&self) -> &JobState {
        &self.state
    }

    pub fn since(&self) -> Timestamp {
        self.since
    }
}

/// Storage account; keyed by name, which is unique in the installation.
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
    /// key1 and key2; base64, then encrypted.
    pub keys: [Ciphertext; 2],
    pub deleting: bool,
}

/// Joined machine that runs nodes; keyed by its name in lower case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostRecord {
    pub name: String,
    /// Digest of the host's credential.
    pub credential_digest: String,
    pub joined: Timestamp,
    /// Id of the join token that was used.
    pub token: String,
    /// Last reported hardware.
    pub inventory: Inventory,
    /// Last heartbeat, to the minute, because every write costs.
    pub heard: Timestamp,
    /// Accepts no new nodes, and its nodes accept no jobs.
    #[serde(default)]
    pub cordoned: bool,
    /// Its nodes are leaving; only together with `cordoned`.
    #[serde(default)]
    pub draining: Option<Drain>,
    /// Removed once no node is left on it.
    #[serde(default)]
    pub removing: bool,
}

/// How nodes leave a drained host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Drain {
    /// Each node leaves when its job has ended.
    InTurn,
    /// Jobs are requeued.
    Now,
}

/// Token with which machines join as hosts; keyed by a short public id. Only a digest of the secret is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostTokenRecord {
    pub secret_digest: String,
    pub created: Timestamp,
    pub expires: Timestamp,
    /// Number of hosts that joined with it.
    #[serde(default)]
    pub hosts: u64,
}

/// Long-running operation that a client may poll.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OperationRecord {
    /// Names from the subscription down, joined with `$`.
    pub resource_id: String,
    pub goal: OperationGoal,
    pub started: Timestamp,
    pub ended: Option<Timestamp>,
    /// Ended without reaching its goal, because the resource was deleted first.
    #[serde(default)]
    pub undone: bool,
    /// Client id of the principal that started it. It may poll the operation even if its rights went with the deleted
    /// resource.
    #[serde(default)]
    pub by: String,
}

/// Condition under which the operation has succeeded.
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
