//! Hosts: machines that join by themselves. Inventory, join token, protocol between server and host, and API resources.
//! A host is not a node: it runs as many nodes of clusters as fit.

mod inventory;
mod status;
mod token;

use serde::{Deserialize, Serialize};

use crate::gpu::GpuReading;
use crate::{ApiError, NodeId, Secret};

pub use inventory::*;
pub use status::*;
pub use token::*;

/// `POST` a [`HostJoinRequest`]: exchanges a join token for a host credential.
pub const HOST_JOIN_PATH: &str = "/corro/v1/host/join";
/// `POST` a [`HostReport`], about once a second; the response is a [`DesiredHost`].
pub const HOST_PATH: &str = "/corro/v1/host";

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
    /// Id of the server installation that issued the credential. Only that installation can revoke it.
    pub instance: String,
}

impl HostCredential {
    /// The `Authorization` header of a host.
    pub fn bearer(&self) -> String {
        format!("{BEARER}{}:{}", self.name, self.secret.expose())
    }

    /// Parses [`bearer`](Self::bearer); `None` for any other `Authorization` header.
    pub fn parse_bearer(header: &str) -> Option<HostCredential> {
        let (name, secret) = header.strip_prefix(BEARER)?.split_once(':')?;
        check_host_name(name).ok()?;
        Some(HostCredential { name: name.to_owned(), secret: Secret::new(secret), instance: String::new() })
    }
}

const BEARER: &str = "Bearer host:";

/// Report of a host to the server.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostReport {
    pub inventory: Inventory,
    /// Nodes with a running agent on this host.
    pub living: Vec<NodeId>,
    /// The GPUs that its nodes may use. Absent from agents of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuReading>,
}

/// Desired state of a host, from the server: all nodes that it runs. A node that is missing here is stopped.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DesiredHost {
    pub nodes: Vec<DesiredHostNode>,
    /// The host was removed: exit and delete the credential.
    #[serde(default)]
    pub removed: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DesiredHostNode {
    pub node: NodeId,
    /// Join token of the node. Only set while the node has not joined and no agent on the host waits to join as it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// The node runs a job, or is about to.
    #[serde(default)]
    pub busy: bool,
}

/// Checks a host name, which is the name of a machine.
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

#[cfg(test)]
mod tests {
    use super::*;

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
