//! Machines that join by themselves: what a host has and offers, the token that lets it in, what server and host tell each other,
//! and how the API shows them. A host is not a node: it carries as many nodes of clusters as fit on it.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::vm_size::VmSize;
use crate::{ApiError, NodeId, Secret, Timestamp};

/// `POST` a [`HostJoinRequest`]: trade a join token for a host's credential.
pub const HOST_JOIN_PATH: &str = "/corro/v1/host/join";
/// `POST` a [`HostReport`], about once a second: what the host is, answered by what it should carry.
pub const HOST_PATH: &str = "/corro/v1/host";

/// What a machine has, as its agent finds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Inventory {
    pub cores: u32,
    pub memory_bytes: u64,
    pub gpus: Vec<Gpu>,
    /// At which other machines may reach it.
    pub addresses: Vec<String>,
    pub labels: BTreeMap<String, String>,
    /// Of the agent.
    pub version: String,
    /// What it gives to nodes, where the operator chose to give less or more than it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered: Option<Capacity>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Gpu {
    pub name: String,
    pub memory_bytes: u64,
}

/// What nodes take of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Capacity {
    pub cores: u32,
    pub memory_bytes: u64,
    pub gpus: u32,
}

impl Inventory {
    pub fn capacity(&self) -> Capacity {
        let own = Capacity { cores: self.cores, memory_bytes: self.memory_bytes, gpus: self.gpus.len() as u32 };
        self.offered.unwrap_or(own)
    }
}

impl Capacity {
    pub fn of(size: &VmSize) -> Capacity {
        Capacity { cores: size.cores, memory_bytes: u64::from(size.memory_gib) << 30, gpus: size.gpus }
    }

    /// Is there room for `need` in what is left of `whole`? A machine sold with so much memory keeps some of it for itself: a
    /// sixteenth less than its size is enough.
    pub fn holds(&self, need: &Capacity) -> bool {
        let memory = need.memory_bytes - need.memory_bytes / 16;
        self.cores >= need.cores && self.gpus >= need.gpus && self.memory_bytes >= memory
    }

    pub fn less(&self, taken: &Capacity) -> Capacity {
        Capacity {
            cores: self.cores.saturating_sub(taken.cores),
            memory_bytes: self.memory_bytes.saturating_sub(taken.memory_bytes),
            gpus: self.gpus.saturating_sub(taken.gpus),
        }
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gib = self.memory_bytes as f64 / f64::from(1 << 30);
        let cores = if self.cores == 1 { "core" } else { "cores" };
        write!(f, "{} {cores}, {gib:.1} GiB", self.cores)?;
        match self.gpus {
            0 => Ok(()),
            1 => f.write_str(", 1 GPU"),
            gpus => write!(f, ", {gpus} GPUs"),
        }
    }
}

/// What a machine needs to join, in one word: where the server is, whose certificate is believed, and a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken {
    #[serde(rename = "u")]
    pub server: String,
    /// SHA-256 of the authority that vouches for the server; without it, whom the machine trusts anyway.
    #[serde(rename = "f", default, skip_serializing_if = "Option::is_none")]
    pub ca_fingerprint: Option<String>,
    #[serde(rename = "s")]
    pub secret: Secret,
}

/// Tells a token from anything else that might be pasted in its place.
const TOKEN_MARK: &str = "corro-join-";

impl JoinToken {
    pub fn encode(&self) -> Secret {
        let text = serde_json::to_vec(self).expect("a token is plain data");
        Secret::new(format!("{TOKEN_MARK}{}", URL_SAFE_NO_PAD.encode(text)))
    }

    /// `None` when it is not one, or was cut off on its way.
    pub fn decode(text: &str) -> Option<JoinToken> {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim().strip_prefix(TOKEN_MARK)?).ok()?;
        serde_json::from_slice(&bytes).ok()
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostJoinRequest {
    pub token: Secret,
    pub name: String,
    pub inventory: Inventory,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostCredential {
    pub name: String,
    pub secret: Secret,
    /// Which installation gave it: only that one can take it back.
    pub instance: String,
}

impl HostCredential {
    /// The `Authorization` header of a host.
    pub fn bearer(&self) -> String {
        format!("{BEARER}{}:{}", self.name, self.secret.expose())
    }

    /// Reads [`bearer`](Self::bearer) back; `None` for the header of anyone who is not a host.
    pub fn parse_bearer(header: &str) -> Option<HostCredential> {
        let (name, secret) = header.strip_prefix(BEARER)?.split_once(':')?;
        check_host_name(name).ok()?;
        Some(HostCredential { name: name.to_owned(), secret: Secret::new(secret), instance: String::new() })
    }
}

const BEARER: &str = "Bearer host:";

/// Host to server.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostReport {
    pub inventory: Inventory,
    /// Nodes whose agents live there.
    pub living: Vec<NodeId>,
}

/// Server to host: all the nodes it should carry. A node that is not here any more has nothing left to do there.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DesiredHost {
    pub nodes: Vec<DesiredHostNode>,
    /// The host was removed: end, and forget the credential.
    #[serde(default)]
    pub removed: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DesiredHostNode {
    pub node: NodeId,
    /// With which an agent becomes that node; only for nodes that nobody has become, and that no agent there waits to become.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// It runs a job, or is about to.
    #[serde(default)]
    pub busy: bool,
}

/// How a new join token is to be.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostTokenParameters {
    /// From now; a day when absent.
    pub ttl_seconds: Option<u64>,
    /// At which URL the machine reaches the server; as the server calls itself when absent.
    pub server: Option<String>,
}

impl HostTokenParameters {
    pub const USUAL_SECONDS: u64 = 24 * 3600;
    pub const LEAST_SECONDS: u64 = 1;
    pub const MOST_SECONDS: u64 = 366 * 24 * 3600;
}

/// A new token. This is the only time it is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostTokenCreated {
    pub id: String,
    pub token: Secret,
    pub server: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_fingerprint: Option<String>,
    pub expires: Timestamp,
}

/// A token that is kept, without what makes it one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostToken {
    pub id: String,
    pub created: Timestamp,
    pub expires: Timestamp,
    pub expired: bool,
    /// Hosts that joined with it.
    pub hosts: u64,
}

/// A host, as `corro host list` shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    pub name: String,
    pub state: HostState,
    #[serde(flatten)]
    pub inventory: Inventory,
    /// What no node has taken yet.
    pub free: Capacity,
    pub joined: Timestamp,
    pub last_heard: Timestamp,
    pub nodes: Vec<HostNode>,
    /// Why it carries no more, or none, of the nodes that clusters wait for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HostState {
    /// It is heard, and takes nodes.
    Ready,
    /// It takes no nodes, and its nodes take no jobs.
    Cordoned,
    /// Its nodes leave as their jobs end.
    Draining,
    /// It is cordoned, and nothing is left on it.
    Drained,
    /// It is ended, and forgotten then.
    Removing,
    /// It was not heard for a lease.
    Silent,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostNode {
    pub node_id: NodeId,
    pub cluster: String,
    pub vm_size: String,
    pub state: String,
}

/// How a host is emptied, or removed.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DrainParameters {
    /// Running jobs go back to the queue, instead of ending by themselves.
    pub now: bool,
}

/// Names of hosts are those of machines.
pub fn check_host_name(name: &str) -> Result<(), ApiError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let begins = name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
    if begins && name.len() <= 64 && name.bytes().all(plain) {
        return Ok(());
    }
    let shown: String = name.chars().take(80).flat_map(char::escape_debug).collect();
    let message = format!(
        "'{shown}' cannot be a host's name: use 1 to 64 letters, digits, '-', '_' and '.', a letter or digit first"
    );
    Err(ApiError::invalid("name", message))
}

/// What a host says of itself is kept, so it is bounded.
pub fn check_inventory(inventory: &Inventory) -> Result<(), ApiError> {
    let wrong = |what: &str| Err(ApiError::invalid("inventory", format!("the host's inventory {what}")));
    let short = |text: &String| text.len() <= 128 && !text.chars().any(char::is_control);
    if inventory.gpus.len() > 64 || inventory.addresses.len() > 64 || inventory.labels.len() > 64 {
        return wrong("has more than 64 GPUs, addresses or labels");
    }
    let labels = inventory.labels.iter().flat_map(|(key, value)| [key, value]);
    let mut texts = inventory.gpus.iter().map(|gpu| &gpu.name).chain(&inventory.addresses).chain(labels);
    if !texts.all(short) || !short(&inventory.version) {
        return wrong("has a text of more than 128 characters, or with control characters");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm_size;

    #[test]
    fn a_token_is_one_word_that_carries_everything() {
        let token = JoinToken {
            server: "https://gpu-box:8470".to_owned(),
            ca_fingerprint: Some("ab".repeat(32)),
            secret: Secret::new("s3cret"),
        };
        let word = token.encode();
        assert!(word.expose().bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
        assert_eq!(JoinToken::decode(&format!(" {}\n", word.expose())), Some(token));
        let cut = &word.expose()[..word.expose().len() - 9];
        for other in ["", "corro-join-", "corro-join-!!", "deadbeef", cut] {
            assert_eq!(JoinToken::decode(other), None, "{other}");
        }
    }

    #[test]
    fn a_credential_survives_the_header() {
        let credential =
            HostCredential { name: "gpu-1.lab".into(), secret: Secret::new("a:b"), instance: String::new() };
        let read = HostCredential::parse_bearer(&credential.bearer()).expect("it is one");
        assert_eq!((read.name.as_str(), read.secret.expose()), ("gpu-1.lab", "a:b"));
        for other in ["", "Bearer host:../x:y", "Bearer host:x", "Bearer node:a:1:s"] {
            assert!(HostCredential::parse_bearer(other).is_none(), "{other}");
        }
    }

    #[test]
    fn what_fits_is_what_is_left() {
        let size = |name: &str| Capacity::of(vm_size::find(name).expect("a size"));
        let machine = Capacity { cores: 12, memory_bytes: 125 << 30, gpus: 2 };
        let node = size("STANDARD_NC6");
        assert!(machine.holds(&node) && machine.less(&node).holds(&node));
        assert!(!machine.less(&node).less(&node).holds(&size("STANDARD_D1")), "no core is left");
        assert!(!Capacity { gpus: 0, ..machine }.holds(&node));
        assert_eq!(machine.less(&node).to_string(), "6 cores, 69.0 GiB, 1 GPU");
    }

    #[test]
    fn names_and_inventories_are_bounded() {
        for good in ["a", "gpu-box.example.org", "n_1"] {
            check_host_name(good).expect(good);
        }
        for bad in ["", "-a", "a b", "a/b", "a:b", "ü", &"x".repeat(65)] {
            assert!(check_host_name(bad).is_err(), "{bad}");
        }
        let many = Inventory { addresses: vec![String::new(); 65], ..Inventory::default() };
        let long = Inventory { version: "v".repeat(129), ..Inventory::default() };
        assert!(check_inventory(&many).is_err() && check_inventory(&long).is_err());
        check_inventory(&Inventory::default()).expect("an empty one");
    }
}
