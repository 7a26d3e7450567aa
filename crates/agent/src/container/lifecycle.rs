//! A running container: creation, attached input, OOM checks, removal. Dropping it ends the container.

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
use super::spec::Capabilities;
use super::{cleanup, error, oom, spec};
use crate::limits::{Bounds, bounds, out_of_processes};
use crate::output::execution_log::ExecutionLog;

/// Time limit for changing the owner of many files.
const CHOWN_TIMEOUT: Duration = Duration::from_secs(60);

/// The running container of a job.
#[derive(Debug)]
pub struct Container {
    engine: Engine,
    pub id: String,
    bounds: Bounds,
    vm_size: String,
    /// Cgroup file that counts OOM kills.
    oom_counter: Option<PathBuf>,
    max_processes: Option<u64>,
    /// Cgroup file that counts refused forks.
    refused_starts: Option<PathBuf>,
    /// Paths with files that root inside wrote and this agent cannot remove. Set if root inside is root outside and the
    /// agent is not root.
    pub paths_to_chown: Vec<PathBuf>,
    stdin: AttachedStdin,
}

/// The container's attached standard input. Dropping it closes the input, which ends the container.
#[derive(Debug)]
struct AttachedStdin {
    task: AbortHandle,
    over: Arc<AtomicBool>,
}

impl Drop for AttachedStdin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Creates, attaches and starts the container.
pub async fn create_and_start(
    engine: &Engine,
    body: ContainerCreateBody,
    order: &TaskOrder,
    capabilities: &Capabilities,
) -> Result<Container, Error> {
    let docker = &engine.docker;
    let id = docker.create_container(None::<CreateContainerOptions>, body).await?.id;
    // Attached before the start: a container must never run without the agent holding its input.
    let options =
        AttachContainerOptions { stream: true, stdin: true, stdout: true, stderr: true, ..Default::default() };
    let stdin = AttachedStdin::new(docker.attach_container(&id, Some(options)).await?);
    docker.start_container(&id, None).await?;
    let state = docker.inspect_container(&id, None::<InspectContainerOptions>).await?.state;
    let pid = state.and_then(|state| state.pid).filter(|pid| *pid > 0);
    Ok(Container {
        engine: engine.clone(),
        id,
        bounds: bounds(order.limits.as_ref(), capabilities.capacity),
        vm_size: order.limits.as_ref().map(|limits| limits.vm_size.clone()).unwrap_or_default(),
        oom_counter: pid.and_then(oom::counter),
        max_processes: spec::max_processes(order, capabilities),
        refused_starts: pid.and_then(oom::refused_starts_file),
        paths_to_chown: Vec::new(),
        stdin,
    })
}

impl AttachedStdin {
    fn new(attached: AttachContainerResults) -> AttachedStdin {
        let over = Arc::new(AtomicBool::new(false));
        let over_flag = Arc::clone(&over);
        let task = tokio::spawn(async move {
            let AttachContainerResults { mut output, input: _open } = attached;
            while output.next().await.is_some() {}
            over_flag.store(true, Ordering::SeqCst);
        });
        AttachedStdin { task: task.abort_handle(), over }
    }
}

impl Container {
    /// Message with the memory limit if the OOM killer killed processes of the container.
    pub async fn out_of_memory(&self) -> Option<String> {
        let counted = match self.oom_counter.clone() {
            Some(counter) => spawn_blocking(move || oom::killed(&counter)).await.unwrap_or(0),
            None => 0,
        };
        let oom_killed = || async {
            let inspected =
                self.engine.docker.inspect_container(&self.id, None::<InspectContainerOptions>).await.ok()?;
            inspected.state?.oom_killed
        };
        if counted == 0 && oom_killed().await != Some(true) {
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

    /// Message with the process limit if forks were refused.
    pub async fn out_of_processes(&self) -> Option<String> {
        let (max, counter) = self.max_processes.zip(self.refused_starts.clone())?;
        let refused = spawn_blocking(move || oom::refused_starts(&counter)).await.unwrap_or(0);
        (refused > 0).then(|| out_of_processes(max))
    }

    /// Ends the container and waits until the engine has removed it. The error says what is left.
    pub async fn remove(self, log: &ExecutionLog) -> Result<(), String> {
        if self.stdin.over.load(Ordering::SeqCst) {
            log.line(format_args!("Container {} had ended before its job", short_id(&self.id)));
        }
        if let Err(why) = self.chown_to_agent().await {
            log.line(format_args!("Files of the job may belong to root and stay: {why}"));
        }
        let Container { engine, id, stdin, .. } = self;
        drop(stdin);
        cleanup::remove_and_wait(&engine.docker, &id)
            .await
            .map_err(|why| format!("{} did not remove container {}: {why}", engine.name, short_id(&id)))?;
        log.line(format_args!("Removed container {}", short_id(&id)));
        Ok(())
    }
}

impl Container {
    /// Changes the owner of the job's files to the agent's user, by a `chown` as root inside the container.
    async fn chown_to_agent(&self) -> Result<(), String> {
        if self.paths_to_chown.is_empty() {
            return Ok(());
        }
        let owner = format!("{}:{}", geteuid().as_raw(), getegid().as_raw());
        let paths = self.paths_to_chown.iter().map(|path| path.to_string_lossy().into_owned());
        let command = ["chown", "-hR", &owner, "--"].map(str::to_owned).into_iter().chain(paths);
        let config = ExecConfig {
            cmd: Some(command.collect()),
            user: Some("0:0".to_owned()),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            ..ExecConfig::default()
        };
        let docker = &self.engine.docker;
        let chown = async {
            let exec = docker.create_exec(&self.id, config).await?.id;
            let options = StartExecOptions { detach: false, tty: false, output_capacity: None };
            if let StartExecResults::Attached { mut output, .. } = docker.start_exec(&exec, Some(options)).await? {
                while output.next().await.is_some() {}
            }
            docker.inspect_exec(&exec).await
        };
        match timeout(CHOWN_TIMEOUT, chown).await {
            Ok(Ok(state)) if state.exit_code == Some(0) => Ok(()),
            Ok(Ok(_)) => Err("the image's chown did not change their owner".to_owned()),
            Ok(Err(error)) => Err(error::engine_message(&error)),
            Err(_) => Err("changing their owner took too long".to_owned()),
        }
    }
}

/// The first 12 digits of a container id, as engines print it.
pub fn short_id(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}
