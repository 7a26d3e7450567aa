//! The second net for containers, as `corro_launch::sweep` is for processes: finds those of a node by their label and removes
//! them. Entered by an agent that starts, and by the server's local nodes when one is lost or removed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::query_parameters::{ListContainersOptions, RemoveContainerOptions};
use tokio::time::{sleep, timeout};

use corro_model::NodeId;

use super::engine::find;
use super::plan::NODE_LABEL;
use super::refusal::words;

const PAUSE: Duration = Duration::from_millis(20);
/// An engine kills at once; a busy disk may take its time to remove.
const GONE_WITHIN: Duration = Duration::from_secs(30);
const NOT_FOUND: u16 = 404;

/// Removes the node's containers, on whatever engine answers, and returns when none is left. Gives the ids of those that were
/// there, or why it could not be seen to. Where no engine is, there is nothing.
pub async fn sweep(node: &NodeId, sockets: &[PathBuf]) -> Result<Vec<String>, String> {
    let mut removed = Vec::new();
    for socket in sockets {
        let Ok(engine) = find(std::slice::from_ref(socket)).await else { continue };
        let found = of_node(&engine.docker, node).await;
        for id in found.map_err(|error| format!("{}: {}", engine.name, words(&error)))? {
            until_gone(&engine.docker, &id).await.map_err(|why| format!("{}: {why}", engine.name))?;
            removed.push(id);
        }
    }
    Ok(removed)
}

/// The same, for whoever may block and is in no runtime or in any.
pub fn sweep_blocking(node: &NodeId, sockets: &[PathBuf]) -> Result<Vec<String>, String> {
    // Nothing listens where nothing is, and most machines have no engine.
    if !sockets.iter().any(|socket| socket.exists()) {
        return Ok(Vec::new());
    }
    std::thread::scope(|scope| {
        let work = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_err(|error| error.to_string())?.block_on(sweep(node, sockets))
        };
        scope.spawn(work).join().unwrap_or_else(|_| Err("an internal error".to_owned()))
    })
}

async fn of_node(docker: &Docker, node: &NodeId) -> Result<Vec<String>, Error> {
    let filters = HashMap::from([("label".to_owned(), vec![format!("{NODE_LABEL}={node}")])]);
    let options = ListContainersOptions { all: true, filters: Some(filters), ..ListContainersOptions::default() };
    let found = docker.list_containers(Some(options)).await?;
    Ok(found.into_iter().filter_map(|container| container.id).collect())
}

/// Kills and removes it. An engine that is just removing it by itself may complain about that, which means nothing.
pub async fn until_gone(docker: &Docker, id: &str) -> Result<(), String> {
    let mut complaint = String::new();
    let gone = async {
        loop {
            let options = RemoveContainerOptions { force: true, v: true, link: false };
            match docker.remove_container(id, Some(options)).await {
                Ok(()) | Err(Error::DockerResponseServerError { status_code: NOT_FOUND, .. }) => return,
                Err(error) => complaint = words(&error),
            }
            sleep(PAUSE).await;
        }
    };
    if timeout(GONE_WITHIN, gone).await.is_ok() {
        return Ok(());
    }
    Err(match complaint.is_empty() {
        true => format!("it was still there after {} s", GONE_WITHIN.as_secs()),
        false => complaint,
    })
}
