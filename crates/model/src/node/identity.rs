//! How an agent gets in: which versions understand each other, where it joins, and what proves it to be a node.

use serde::{Deserialize, Serialize};

use crate::{ApiError, NodeId, Secret};

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
