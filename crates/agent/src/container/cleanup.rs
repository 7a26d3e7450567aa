//! Removal of leftover containers: finds those of a node's directory by their labels and removes them, as
//! `corro_launch` does for processes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::ContainerSummary;
use bollard::query_parameters::{ListContainersOptions, RemoveContainerOptions};
use tokio::time::{sleep, timeout};

use corro_model::NodeId;

use super::engine::find;
use super::error::engine_message;
use super::spec::{INCARNATION_LABEL, NODE_LABEL};
use crate::identity::incarnation::OwnedIds;

const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Time limit for removal. Engines kill at once, but a busy disk delays the removal.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(30);
const NOT_FOUND: u16 = 404;

/// Selects containers. A node's id is not enough: a restored or copied server has nodes with the same ids.
#[derive(Clone, Debug)]
pub enum Owner {
    /// Containers labelled with one of these incarnations.
    Incarnation(OwnedIds),
    /// Containers of agents of the previous version, without an incarnation label: those of this node that mount
    /// something below its directory.
    Directory { node: NodeId, root: PathBuf },
}

/// Removes the owner's containers on all engines that answer and returns their ids when none is left. The error says
/// why that failed. Without an engine there is nothing to do.
pub async fn remove_owned(owner: &Owner, sockets: &[PathBuf]) -> Result<Vec<String>, String> {
    let mut removed = Vec::new();
    for socket in sockets {
        let Ok(engine) = find(std::slice::from_ref(socket)).await else { continue };
        let found = find_owned(&engine.docker, owner).await;
        for id in found.map_err(|error| format!("{}: {}", engine.name, engine_message(&error)))? {
            remove_and_wait(&engine.docker, &id).await.map_err(|why| format!("{}: {why}", engine.name))?;
            removed.push(id);
        }
    }
    Ok(removed)
}

/// Like [`remove_owned`], for callers that may block, inside or outside of a runtime.
pub fn remove_owned_blocking(owner: &Owner, sockets: &[PathBuf]) -> Result<Vec<String>, String> {
    // Most machines have no engine.
    if !sockets.iter().any(|socket| socket.exists()) {
        return Ok(Vec::new());
    }
    std::thread::scope(|scope| {
        let work = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_err(|error| error.to_string())?.block_on(remove_owned(owner, sockets))
        };
        scope.spawn(work).join().unwrap_or_else(|_| Err("an internal error".to_owned()))
    })
}

async fn find_owned(docker: &Docker, owner: &Owner) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    match owner {
        Owner::Incarnation(owned) => {
            for id in owned.iter() {
                found.extend(with_label(docker, INCARNATION_LABEL, id).await?);
            }
        }
        Owner::Directory { node, root } => {
            let of_node = with_label(docker, NODE_LABEL, node.as_str()).await?;
            found.extend(
                of_node.into_iter().filter(|container| has_no_incarnation(container) && mounts_below(container, root)),
            );
        }
    }
    Ok(found.into_iter().filter_map(|container| container.id).collect())
}

async fn with_label(docker: &Docker, label: &str, value: &str) -> Result<Vec<ContainerSummary>, Error> {
    let filters = HashMap::from([("label".to_owned(), vec![format!("{label}={value}")])]);
    let options = ListContainersOptions { all: true, filters: Some(filters), ..ListContainersOptions::default() };
    docker.list_containers(Some(options)).await
}

fn has_no_incarnation(container: &ContainerSummary) -> bool {
    !container.labels.as_ref().is_some_and(|labels| labels.contains_key(INCARNATION_LABEL))
}

/// Whether the container mounts something below `root`.
fn mounts_below(container: &ContainerSummary, root: &Path) -> bool {
    let sources = container.mounts.iter().flatten().filter_map(|mount| mount.source.as_deref());
    sources.into_iter().any(|source| Path::new(source).starts_with(root))
}

/// Kills and removes a container, and waits until it is gone. Errors are retried: an engine that is already removing it
/// reports a conflict.
pub async fn remove_and_wait(docker: &Docker, id: &str) -> Result<(), String> {
    let mut last_error = String::new();
    let gone = async {
        loop {
            let options = RemoveContainerOptions { force: true, v: true, link: false };
            match docker.remove_container(id, Some(options)).await {
                Ok(()) | Err(Error::DockerResponseServerError { status_code: NOT_FOUND, .. }) => return,
                Err(error) => last_error = engine_message(&error),
            }
            sleep(RETRY_INTERVAL).await;
        }
    };
    if timeout(REMOVE_TIMEOUT, gone).await.is_ok() {
        return Ok(());
    }
    Err(match last_error.is_empty() {
        true => format!("it still exists after {} s", REMOVE_TIMEOUT.as_secs()),
        false => last_error,
    })
}
