//! SSH access to nodes as the cluster's administrator: choose the node and the credentials here, then [`connection`] runs commands and
//! [`port_forward`] forwards ports. [`job_login`] finds the node of a job. [`known_hosts`] pins the host keys of nodes.

pub mod connection;
pub mod job_login;
mod known_hosts;
pub mod port_forward;

use std::path::PathBuf;

use corro_client::Client;
use corro_model::Secret;
use corro_model::batchai::RemoteLoginInformation;
use corro_model::ops::{ClustersGet, JobsGet};

use crate::error::CliError;
use crate::resource::resource_ref::ResourceRef;
use crate::session::home_dir;
use connection::Credentials;

/// The node with the given id, or without an id the first one.
pub fn choose_node(
    nodes: Vec<RemoteLoginInformation>,
    node_id: Option<&str>,
) -> Result<RemoteLoginInformation, CliError> {
    let found = nodes.into_iter().find(|node| node_id.is_none_or(|id| node.node_id.as_str() == id));
    found.ok_or_else(|| match node_id {
        Some(id) => CliError::new(format!("Cannot find a node with id={id}"))
            .hint("see the ids with 'node list' in place of 'node exec'"),
        None => CliError::new("No nodes available in the cluster"),
    })
}

/// The given credentials, or without any the default key `~/.ssh/id_rsa`.
pub fn credentials(password: Option<String>, key: Option<PathBuf>) -> Result<Credentials, CliError> {
    let key = match (key, &password) {
        (Some(key), _) => Some(key),
        (None, Some(_)) => None,
        (None, None) => Some(home_dir()?.join(".ssh").join("id_rsa")),
    };
    Ok(Credentials { key, password: password.map(Secret::new) })
}

/// The cluster on which a job runs.
pub async fn cluster_of_job(client: &Client, job: &ResourceRef) -> Result<ResourceRef, CliError> {
    let found = client.get::<JobsGet>(&job.values()).await.map_err(|error| job.request_error(error))?;
    let id = found.properties.spec.cluster.as_ref().map(|cluster| cluster.id.clone()).unwrap_or_default();
    ResourceRef::from_id::<ClustersGet>("--job/-j", &id)
}

/// Name of the administrator's account on the nodes of a cluster.
pub async fn admin_user_name(client: &Client, cluster: &ResourceRef) -> Result<String, CliError> {
    let found = client.get::<ClustersGet>(&cluster.values()).await.map_err(|error| cluster.request_error(error))?;
    Ok(found.properties.spec.user_account_settings.admin_user_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_node_is_the_default() {
        let nodes = || -> Vec<RemoteLoginInformation> {
            serde_json::from_value(json!([{"nodeId": "tvm-1_1-20180718t174802z-p", "ipAddress": "127.0.0.1", "port": 1},
                                          {"nodeId": "tvm-1_2-20180718t174802z-p", "ipAddress": "127.0.0.1", "port": 2}]))
            .expect("literals")
        };
        assert_eq!(choose_node(nodes(), None).expect("there is one").port, 1);
        assert_eq!(choose_node(nodes(), Some("tvm-1_2-20180718t174802z-p")).expect("there is one").port, 2);
        assert_eq!(choose_node(nodes(), Some("x")).expect_err("none").message, "Cannot find a node with id=x");
        assert_eq!(choose_node(vec![], None).expect_err("none").message, "No nodes available in the cluster");
    }
}
