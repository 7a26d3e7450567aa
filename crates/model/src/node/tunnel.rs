//! Tunnels: byte streams from a client, through the server, to something that listens on a node of a running job. The
//! server sends a [`TunnelOrder`] over the agent's WebSocket; the agent connects to the target and dials a second
//! WebSocket to [`TUNNEL_PATH`], so no address of the node has to be reachable.
//!
//! The agent's first message is a [`TunnelReply`]. After that both WebSockets carry binary messages of at most
//! [`MAX_TUNNEL_MESSAGE`] bytes; an empty one ends the stream in its direction. A close frame with another code than
//! 1000 breaks the tunnel off, and its reason says why.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{ApiError, AttemptId, Secret};

/// `GET` with upgrade: the agent's end of a tunnel.
pub const TUNNEL_PATH: &str = "/corro/v1/tunnel";
/// Header of that request with the secret of the order.
pub const TUNNEL_HEADER: &str = "x-corro-tunnel";
/// Largest message of a tunnel.
pub const MAX_TUNNEL_MESSAGE: usize = 64 * 1024;

/// Limit of a close frame's reason in the WebSocket protocol.
const MAX_REASON_BYTES: usize = 123;

/// The part of a reason that fits into a close frame.
pub fn close_reason(reason: &str) -> &str {
    let end = (0..=MAX_REASON_BYTES.min(reason.len())).rev().find(|end| reason.is_char_boundary(*end));
    &reason[..end.unwrap_or(0)]
}

/// Request to an agent to open its end of a tunnel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TunnelOrder {
    /// Valid once, for some seconds, and only for this node.
    pub secret: Secret,
    /// The node must be running this attempt.
    pub attempt: AttemptId,
    pub target: TunnelTarget,
}

/// Endpoint of a tunnel on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TunnelTarget {
    /// A port of the loopback address, which jobs and their containers share with the node.
    Port(u16),
    /// The output of [`crate::notebook::describe_script`] in the job's environment.
    Notebook,
    /// The node's SSH server.
    Ssh,
}

/// First message of an agent on a tunnel's WebSocket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum TunnelReply {
    Connected,
    /// The node still prepares the attempt, or has ended its part of it.
    NotReady,
    /// The target cannot be reached; the text says why and what to do.
    Refused {
        reason: String,
    },
}

impl TunnelTarget {
    /// Parses the last segment of a tunnel's path: a port, `notebook` or `ssh`.
    pub fn parse(text: &str) -> Result<TunnelTarget, ApiError> {
        match text {
            "notebook" => Ok(TunnelTarget::Notebook),
            "ssh" => Ok(TunnelTarget::Ssh),
            number => match number.parse() {
                Ok(port) if port > 0 => Ok(TunnelTarget::Port(port)),
                _ => Err(ApiError::invalid("target", format!("'{text}' is not a port: use a number from 1 to 65535"))),
            },
        }
    }
}

impl fmt::Display for TunnelTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TunnelTarget::Port(port) => write!(f, "{port}"),
            TunnelTarget::Notebook => f.write_str("notebook"),
            TunnelTarget::Ssh => f.write_str("ssh"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::node::{ObservedNode, ToNode};

    #[test]
    fn targets_are_written_and_parsed() {
        for target in [TunnelTarget::Port(1), TunnelTarget::Port(65535), TunnelTarget::Notebook, TunnelTarget::Ssh] {
            assert_eq!(TunnelTarget::parse(&target.to_string()), Ok(target));
        }
        for wrong in ["", "0", "65536", "-1", "80x", "Notebook", "127.0.0.1:80", "+"] {
            let error = TunnelTarget::parse(wrong).expect_err(wrong);
            assert_eq!((error.status, error.target.as_deref()), (400, Some("target")), "{wrong}");
        }
    }

    #[test]
    fn reasons_are_cut_between_characters() {
        assert_eq!(close_reason("the job has ended"), "the job has ended");
        assert_eq!(close_reason(&"x".repeat(200)), "x".repeat(123));
        assert_eq!(close_reason(&format!("x{}", "é".repeat(100))), format!("x{}", "é".repeat(61)));
        assert_eq!(close_reason(&"é".repeat(100)), "é".repeat(61));
    }

    #[test]
    fn the_protocol_stays() {
        let attempt = AttemptId { job: "j".to_owned(), number: 2 };
        let order = TunnelOrder { secret: Secret::new("s"), attempt, target: TunnelTarget::Port(8888) };
        let sent = serde_json::to_value(ToNode::Tunnel(order)).expect("plain data");
        let golden = json!({
            "kind": "tunnel", "secret": "s", "attempt": {"job": "j", "number": 2}, "target": {"port": 8888}
        });
        assert_eq!(sent, golden);
        let reply = serde_json::to_value(TunnelReply::Refused { reason: "r".to_owned() }).expect("plain data");
        assert_eq!(reply, json!({"kind": "refused", "reason": "r"}));
        // Agents of the previous version do not say that they open tunnels.
        let old: ObservedNode =
            serde_json::from_str(r#"{"ready": true, "problem": null, "task": null, "retired": false}"#).expect("reads");
        assert!(!old.tunnels && !serde_json::to_string(&old).expect("writes").contains("tunnels"));
    }
}
