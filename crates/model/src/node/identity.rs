//! Authentication of agents: protocol versions, join and connect endpoints, node credentials.

use serde::{Deserialize, Serialize};

use crate::{ApiError, NodeId, Secret};

/// Protocol version of this program. Incremented when one side must understand something new of the other.
pub const PROTOCOL: u32 = 2;
/// Header with the protocol version of agents and hosts; absent means 1.
pub const PROTOCOL_HEADER: &str = "x-corro-protocol";

/// Whether this server understands an agent of version `given`. Servers are upgraded first, so one version back is
/// accepted and running jobs survive until the agents follow.
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

/// `POST`: exchanges a one-time join token for a node's identity and credential.
pub const JOIN_PATH: &str = "/corro/v1/join";
/// `GET` with upgrade: the node's WebSocket.
pub const CONNECT_PATH: &str = "/corro/v1/connect";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JoinRequest {
    pub token: Secret,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeCredential {
    pub node: NodeId,
    /// Incremented when the node is declared lost: older credentials are refused.
    pub epoch: u64,
    pub secret: Secret,
    /// Installation that issued it; only that one can fence the node.
    #[serde(default)]
    pub instance: String,
}

/// Header with the id of the installation that refuses a node.
pub const INSTANCE_HEADER: &str = "x-corro-instance";

/// `Authorization` header of a node: `Bearer node:{node}:{epoch}:{secret}`.
pub fn bearer(credential: &NodeCredential) -> String {
    format!("{BEARER}{}:{}:{}", credential.node, credential.epoch, credential.secret.expose())
}

/// Parses [`bearer`]; `None` for other headers.
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
