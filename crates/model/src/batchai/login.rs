//! SSH login information of the nodes of a cluster or job.

use serde::{Deserialize, Serialize};

use crate::NodeId;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemoteLoginInformation {
    pub node_id: NodeId,
    pub ip_address: String,
    pub port: u16,
}
