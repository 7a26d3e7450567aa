//! Volumes of a node, tokens to mount them, and Python wheels.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{AttemptId, Secret};

/// `GET`: list of the Python wheels ([`Wheel`]) that the server offers to jobs; below it, one wheel by name.
pub const WHEELS_PATH: &str = "/corro/v1/wheels";

/// Python wheel that `pip` finds on every node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wheel {
    pub name: String,
    pub bytes: u64,
    /// Modification time in Unix nanoseconds. Size and time together identify a version.
    pub modified: u64,
}

impl Wheel {
    /// Wheels that a server offers.
    pub const MAX_COUNT: usize = 64;
    /// Size of one wheel.
    pub const MAX_BYTES: u64 = 512 << 20;

    /// Whether `name` is a safe file name of a wheel: `horovod-0.29.0-cp39-abi3-manylinux_2_28_x86_64.whl`.
    pub fn is_name(name: &str) -> bool {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+!".contains(&byte);
        name.ends_with(".whl") && !name.starts_with('.') && name.len() <= 200 && name.bytes().all(plain)
    }
}

/// `POST` a [`MountTokenRequest`]: token to mount a volume of the server on a node of another machine.
pub const MOUNT_TOKENS_PATH: &str = "/corro/v1/passes";

/// Volume that a node wants to mount over the file service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountTokenRequest {
    /// Attempt that owns the volume; `None` for a volume of the cluster.
    pub attempt: Option<AttemptId>,
    /// Mount path below the mount root; `None` for the directory that the nodes of the attempt share.
    pub relative: Option<String>,
}

/// SAS token for one mounted volume. Expires after its lifetime, and at once with the job or the node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MountToken {
    /// Storage account and share of the file service.
    pub account: String,
    pub share: String,
    /// Directory of the share that is mounted; empty for all of it.
    pub directory: String,
    /// SAS query that is valid for this share only.
    pub signature: Secret,
    pub lifetime_s: u64,
}

/// Unique file of the server. A node that finds it with this content shares the server's disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedDiskProbe {
    pub file: PathBuf,
    pub content: String,
}

/// Volume that must appear at `relative` below a mount root.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    #[serde(default)]
    pub kind: VolumeKind,
    pub relative: String,
    /// Display name: `//account.file.core.windows.net/share`, or `name container from account account`.
    pub label: String,
    pub source: VolumeSource,
    /// Mounted read-only.
    #[serde(default)]
    pub read_only: bool,
    /// Directory that must contain the resolved source when it is mounted. Without it the source is a whole tree of the
    /// server, on whose path no job can place a symbolic link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beneath: Option<PathBuf>,
}

impl Volume {
    /// Whether it appears as a symbolic link to a directory of the server's machine. Read-only volumes never do.
    pub fn is_linked(&self) -> bool {
        matches!(self.source, VolumeSource::LocalDirectory(_)) && !self.read_only
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
    /// Directory that the nodes of a job share, for a node that does not share the server's disk.
    JobShared,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum VolumeSource {
    /// Directory on the server's own machine: a share, a container, a file server.
    LocalDirectory(PathBuf),
    /// The same for a node without access to the server's disk. Set only by the node itself.
    Remote(MountTokenRequest),
    /// The node runs this command with the mount point as last argument.
    Command { command: String },
    /// The server already knows that it cannot be mounted, and why.
    Unavailable { why: String },
}
