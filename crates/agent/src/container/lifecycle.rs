//! A running container: made, held, asked about memory, ended. Entered by the room above and by `task`. Dropping one ends it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bollard::container::AttachContainerResults;
use bollard::errors::Error;
use bollard::exec::{StartExecOptions, StartExecResults};
use bollard::models::{ContainerCreateBody, ExecConfig};
use bollard::query_parameters::{AttachContainerOptions, CreateContainerOptions, InspectContainerOptions};
use futures_util::StreamExt;
use rustix::process::{getegid, geteuid};
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::timeout;

use corro_model::container::size_words;
use corro_model::node::TaskOrder;

use super::engine::Engine;
use super::spec::Machine;
use super::{cleanup, error, oom, spec};
use crate::limits::{Bounds, bounds, out_of_processes};
use crate::output::execution_log::ExecutionLog;

/// For many small files.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(60);

/// A running container of the job.
#[derive(Debug)]
pub struct Container {
    engine: Engine,
    pub id: String,
    bounds: Bounds,
    vm_size: String,
    /// Where the kernel counts whom it killed.
    oom_counter: Option<PathBuf>,
    most_processes: Option<u64>,
    /// Where the kernel counts what it did not start.
    refused_starts: Option<PathBuf>,
    /// What root inside wrote and this agent could not remove, if root inside is root outside and the agent is not.
    pub to_give_back: Vec<PathBuf>,
    held: Held,
}

/// Holds the container's input open. Dropping it ends the container.
#[derive(Debug)]
struct Held {
    task: AbortHandle,
    over: Arc<AtomicBool>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Makes the container, takes hold of it, starts it.
pub async fn create_and_start(
    engine: &Engine,
    body: ContainerCreateBody,
    order: &TaskOrder,
    machine: &Machine,
) -> Result<Container, Error> {
    let docker = &engine.docker;
    let id = docker.create_container(None::<CreateContainerOptions>, body).await?.id;
    // Before it starts: it must never live without somebody who holds it.
    let options =
        AttachContainerOptions { stream: true, stdin: true, stdout: true, stderr: true, ..Default::default() };
    let held = Held::new(docker.attach_container(&id, Some(options)).await?);
    docker.start_container(&id, None).await?;
    let state = docker.inspect_container(&id, None::<InspectContainerOptions>).await?.state;
    let pid = state.and_then(|state| state.pid).filter(|pid| *pid > 0);
    Ok(Container {
        engine: engine.clone(),
        id,
        bounds: bounds(order.limits.as_ref(), machine.capacity),
        vm_size: order.limits.as_ref().map(|limits| limits.vm_size.clone()).unwrap_or_default(),
        oom_counter: pid.and_then(oom::counter),
        most_processes: spec::most_processes(order, machine),
        refused_starts: pid.and_then(oom::refused_starts_file),
        to_give_back: Vec::new(),
        held,
    })
}

impl Held {
    fn new(attached: AttachContainerResults) -> Held {
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let task = tokio::spawn(async move {
            let AttachContainerResults { mut output, input: _open } = attached;
            while output.next().await.is_some() {}
            told.store(true, Ordering::SeqCst);
        });
        Held { task: task.abort_handle(), over }
    }
}

impl Container {
    /// Words about the limit of memory, if processes were killed for it.
    pub async fn out_of_memory(&self) -> Option<String> {
        let counted = match self.oom_counter.clone() {
            Some(counter) => spawn_blocking(move || oom::killed(&counter)).await.unwrap_or(0),
            None => 0,
        };
        let inspected = || async {
            let seen = self.engine.docker.inspect_container(&self.id, None::<InspectContainerOptions>).await.ok()?;
            seen.state?.oom_killed
        };
        if counted == 0 && inspected().await != Some(true) {
            return None;
        }
        Some(match self.bounds.memory_bytes {
            Some(bytes) => format!(
                "The kernel killed processes of the container, which had used up its {} of memory (a node of size {})",
                size_words(bytes),
                self.vm_size
            ),
            None => "The kernel killed processes of the container: the machine had no memory left".to_owned(),
        })
    }

    /// Words about the limit of processes, if some were not started because of it.
    pub async fn out_of_processes(&self) -> Option<String> {
        let (most, counter) = self.most_processes.zip(self.refused_starts.clone())?;
        let refused = spawn_blocking(move || oom::refused_starts(&counter)).await.unwrap_or(0);
        (refused > 0).then(|| out_of_processes(most))
    }

    /// Ends everything in it and waits until the engine has removed it; else says what is left.
    pub async fn end(self, log: &ExecutionLog) -> Result<(), String> {
        if self.held.over.load(Ordering::SeqCst) {
            log.line(format_args!("Container {} had ended before its job", short(&self.id)));
        }
        if let Err(why) = self.give_back().await {
            log.line(format_args!("Files of the job may belong to root and stay: {why}"));
        }
        let Container { engine, id, held, .. } = self;
        drop(held);
        cleanup::until_gone(&engine.docker, &id)
            .await
            .map_err(|why| format!("{} does not remove container {}: {why}", engine.name, short(&id)))?;
        log.line(format_args!("Removed container {}", short(&id)));
        Ok(())
    }
}

impl Container {
    /// Only root can, and inside the job is root.
    async fn give_back(&self) -> Result<(), String> {
        if self.to_give_back.is_empty() {
            return Ok(());
        }
        let owner = format!("{}:{}", geteuid().as_raw(), getegid().as_raw());
        let paths = self.to_give_back.iter().map(|path| path.to_string_lossy().into_owned());
        let words = ["chown", "-hR", &owner, "--"].map(str::to_owned).into_iter().chain(paths);
        let config = ExecConfig {
            cmd: Some(words.collect()),
            user: Some("0:0".to_owned()),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            ..ExecConfig::default()
        };
        let docker = &self.engine.docker;
        let given = async {
            let exec = docker.create_exec(&self.id, config).await?.id;
            let how = StartExecOptions { detach: false, tty: false, output_capacity: None };
            if let StartExecResults::Attached { mut output, .. } = docker.start_exec(&exec, Some(how)).await? {
                while output.next().await.is_some() {}
            }
            docker.inspect_exec(&exec).await
        };
        match timeout(GIVEN_BACK_WITHIN, given).await {
            Ok(Ok(state)) if state.exit_code == Some(0) => Ok(()),
            Ok(Ok(_)) => Err("the image's chown did not change them".to_owned()),
            Ok(Err(error)) => Err(error::words(&error)),
            Err(_) => Err("it took too long to change them".to_owned()),
        }
    }
}

pub fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}
