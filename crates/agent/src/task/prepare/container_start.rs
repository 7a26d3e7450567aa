//! Starts the container of a job and adapts the job's environment to it.

use std::collections::BTreeMap;
use std::io;

use corro_launch::redact::Secrets;
use corro_model::node::TaskOrder;

use crate::container::error::{ContainerError, Reason};
use crate::container::exec_relay::ContainerExec;
use crate::container::lifecycle::{self, Container, short_id};
use crate::container::{capabilities, cleanup, engine, image, spec};
use crate::storage::directories::Layout;
use crate::storage::mounts;
use crate::task::Task;
use crate::task::control::{TaskAbort, wait_for_stop};
use crate::task::env_vars;
use crate::task::job_env::{JobEnv, job_secrets};
use crate::task_errors;

/// Default home directory: processes in the container run as root.
const HOME: &str = "/root";

/// Starts the job's container, if it has one, and makes the job's processes run in it.
pub async fn enter(task: &mut Task, job_env: &mut JobEnv) -> Result<(), TaskAbort> {
    let Some(settings) = task.order.container.clone() else { return Ok(()) };
    let image = &settings.image_source_registry.image;
    if task.order.containers_on_host {
        task.log.line(format_args!("Running on the host without the container image {image}, as the operator allowed"));
        return Ok(());
    }
    let mut control = task.control.clone();
    let started = tokio::select! {
        started = start(task, job_env) => started.map_err(Some),
        _ = wait_for_stop(&mut control, None) => Err(None),
    };
    let error = match started {
        Ok(container) => {
            task.container = Some(container);
            return Ok(());
        }
        Err(error) => error,
    };
    // Removes a container that was created and not started.
    let owner = cleanup::Owner::Incarnation(task.context.incarnation.owned_ids());
    if let Err(error) = cleanup::remove_owned(&owner, &task.context.config.engine_sockets).await {
        tracing::warn!(error, "a container that was not started could not be removed");
    }
    let Some(error) = error else { return Err(TaskAbort::Stopped) };
    task.log.line(format_args!("Could not start a container from image {image}: {}", error.info));
    Err(task_errors::container(image, &task.context.node, error.reason.name(), &error.info).into())
}

async fn start(task: &Task, job_env: &mut JobEnv) -> Result<Container, ContainerError> {
    let (order, log, context) = (&task.order, &task.log, &task.context);
    let Some(settings) = &order.container else { unreachable!("only jobs with a container come here") };
    let engine = engine::find(&context.config.engine_sockets).await?;
    log.line(format_args!("Using {} at {}", engine.name, engine.socket.display()));
    let image = image::ensure(&engine, &settings.image_source_registry, log).await?;
    let name = &settings.image_source_registry.image;
    log.line(format_args!("Image {name} is {}", image.digest));
    let capabilities = capabilities::probe(&engine).await;
    let layout = &job_env.directories.layout;
    if let Some(volume) =
        order.volumes.iter().find(|volume| mounts::is_symlinked_subdirectory(&layout.job_mount_root, volume))
    {
        let info = format!(
            "{} cannot be shown in a container: an agent that is not root may not mount a directory inside a file server. Leave \
             sourceDirectory out and use the directory below the mount, or run the agent as root",
            volume.label
        );
        return Err(ContainerError { reason: Reason::StartFailed, info });
    }
    let (_, wheels) = context.directories.wheels().map_err(|error| storage_error(&error))?;
    let bind_mounts = spec::bind_mounts(layout, &wheels, order, &task.cluster_volumes);
    let body = spec::create_body(
        (&context.node, &context.incarnation.id),
        order,
        &bind_mounts,
        &capabilities,
        &task.applied_limits.gpus.numbers,
    );
    let started = lifecycle::create_and_start(&engine, body, order, &capabilities).await;
    let mut container = started.map_err(|error| ContainerError::from_start(&error))?;
    let description = spec::describe(order, &capabilities, task.applied_limits.gpus.describe(order.gpus).as_deref());
    log.line(format_args!("Started container {}: {description}", short_id(&container.id)));
    let gpus = task.applied_limits.gpus.count(order.gpus);
    job_env.environment =
        container_environment(job_env, order, gpus, image.variables).map_err(|error| storage_error(&error))?;
    // Secrets may refer to variables of the image.
    let secrets = job_secrets(order, Some(&job_env.environment));
    log.redact(secrets.clone());
    job_env.confinement.secrets = if order.shows_secrets { Secrets::default() } else { secrets };
    if capabilities.engine_is_more_privileged {
        let job = std::iter::once(layout.job_temp.clone()).chain(order.shared_temp.clone());
        let written_paths = job.chain(job_env.environment.output_directories.iter().cloned());
        container.paths_to_chown = written_paths.filter(|path| path.exists()).collect();
    }
    job_env.container = Some(ContainerExec {
        socket: engine.socket.to_string_lossy().into_owned(),
        version: engine.version(),
        container: container.id.clone(),
    });
    Ok(container)
}

/// Environment in the container: the image's variables in place of this machine's, and the job's on top. The log
/// directory stays the same.
fn container_environment(
    job_env: &JobEnv,
    order: &TaskOrder,
    gpus: usize,
    image: BTreeMap<String, String>,
) -> io::Result<env_vars::Environment> {
    let home = image.get("HOME").filter(|home| home.starts_with('/')).map_or(HOME, String::as_str);
    let layout = Layout { home: home.into(), ..job_env.directories.layout.clone() };
    let service_bashrc = layout.home.join(".bashrc").to_string_lossy().into_owned();
    let mut environment = env_vars::compose(image, &layout, order, gpus);
    environment.log_directory = job_env.environment.log_directory.clone();
    let logs = environment.log_directory.to_string_lossy().into_owned();
    environment.variables.insert("AZ_BATCHAI_STDOUTERR_DIR".to_owned(), logs);
    if environment.variables.get("BASH_ENV") == Some(&service_bashrc) {
        let script = layout.job_temp.join(BASH_ENV);
        // The image's shell already runs and may have put a symlink there.
        job_env.directories.write(BASH_ENV, BASH_ENV_TEXT.as_bytes(), 0o644)?;
        environment.variables.insert("BASH_ENV".to_owned(), script.to_string_lossy().into_owned());
    }
    Ok(environment)
}

fn storage_error(error: &io::Error) -> ContainerError {
    let info = format!("The node's directory cannot be written to: {error}");
    ContainerError { reason: Reason::from_message(&info).unwrap_or(Reason::StartFailed), info }
}

const BASH_ENV: &str = ".bashenv";
/// Sources `~/.bashrc` in non-interactive shells too, so that additions by job preparation count. The `.bashrc` of many
/// images returns early without a prompt.
const BASH_ENV_TEXT: &str = "\
if [ -r ~/.bashrc ]; then
    corro_bash_env=$BASH_ENV; unset BASH_ENV; PS1=${PS1-$ }
    . ~/.bashrc
    unset PS1; export BASH_ENV=$corro_bash_env; unset corro_bash_env
fi
";
