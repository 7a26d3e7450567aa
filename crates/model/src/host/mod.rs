//! Machines that join by themselves: what a host has and offers, the token that lets it in, what server and host tell each other,
//! and how the API shows them. A host is not a node: it carries as many nodes of clusters as fit on it.

mod inventory;
mod status;
mod token;

use serde::{Deserialize, Serialize};

use crate::{ApiError, NodeId, Secret};

pub use inventory::*;
pub use status::*;
pub use token::*;

/// `POST` a [`HostJoinRequest`]: trade a join token for a host's credential.
pub const HOST_JOIN_PATH: &str = "/corro/v1/host/join";
/// `POST` a [`HostReport`], about once a second: what the host is, answered by what it should carry.
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
