//! What a node uses that is not its own: volumes and the leave to mount them, and wheels.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{AttemptId, Secret};

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

/// `POST` a [`MountTokenRequest`]: leave to mount a volume that lies on the server, for a node on another machine.
pub const MOUNT_TOKENS_PATH: &str = "/corro/v1/passes";

/// Which volume a node wants to mount over the file service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountTokenRequest {
    /// The attempt whose volume it is; of the node's cluster without.
    pub attempt: Option<AttemptId>,
    /// Where it is mounted below the mount root; without it, the directory that the nodes of the attempt share.
    pub relative: Option<String>,
}

/// What it is mounted with. Ends by itself after a while, and with the job or the node at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MountToken {
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
pub struct SharedDiskProbe {
    pub file: PathBuf,
    pub content: String,
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
    /// The directory that the local directory of `source` must lie in when it is mounted, symbolic links followed. Without it the
    /// source is a whole tree of the server's, on whose path no job can plant a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beneath: Option<PathBuf>,
}

impl Volume {
    /// Is it shown by a symbolic link to a directory of the server's machine? What is read-only has no link.
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
    /// What the nodes of a job share, to a node that does not see it.
    JobShared,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum VolumeSource {
    /// A directory on the server's own machine: a share, a container, a file server.
    LocalDirectory(PathBuf),
    /// The same to a node that does not see the server's directories. Only nodes say this, to themselves.
    Remote(MountTokenRequest),
    /// The node runs this, with the mount point behind it.
    Command { command: String },
    /// The server already knows that it cannot be mounted, and why.
    Unavailable { why: String },
}
