//! Prepares a node for a job: directories, volumes, isolation, Python packages, the job preparation command; and
//! unmounts the volumes at the end. Starts nothing of the job but its preparation.

pub mod container_start;
pub mod preparation;
pub mod python_env;
pub mod python_packages;
pub mod wheels;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use corro_launch::compat;
use corro_launch::confinement::Confinement;
use corro_launch::environment::inherited;
use corro_launch::namespaces::MountView;
use corro_launch::redact::Secrets;
use corro_model::node::{MountTokenRequest, TaskFailure, TaskOrder, Volume, VolumeKind, VolumeSource};
use tokio::task::spawn_blocking;

use crate::container;
use crate::isolation;
use crate::limits::gpus;
use crate::output::execution_log::ExecutionLog;
use crate::output::log_names::LogNames;
use crate::output::output_dir::OutputRoots;
use crate::storage::directories::{JobDirectories, Layout, SHARED};
use crate::storage::mounts;
use crate::storage::mounts::{MountCommands, MountContext, MountFailure, MountedVolume};
use crate::task::Task;
use crate::task::control::TaskAbort;
use crate::task::env_vars;
use crate::task::job_env::{JobEnv, job_secrets, secret_masking_note};
use crate::task::node_context::NodeContext;
use crate::task_errors;

/// Creates directories, mounts volumes, opens the execution log and isolates the job. Blocks on the disk.
pub fn set_up_job(
    context: &NodeContext,
    order: &TaskOrder,
    cluster_volumes: &[Volume],
    log: &ExecutionLog,
) -> Result<JobEnv, TaskFailure> {
    let node = &context.node;
    let directories = context.directories.begin(order);
    let directories =
        directories.map_err(|error| task_errors::node_storage(node, context.directories.root(), &error))?;
    log.line(format_args!("Created job directory {}", directories.layout.job_temp.display()));
    let restored = context.directories.mounts().and_then(|root| {
        mounts::restore_links(&root, &context.directories.mount_root(), cluster_volumes, context.mount_context())
    });
    restored.map_err(|error| task_errors::node_storage(node, context.directories.root(), &error))?;
    let volumes: Vec<Volume> = order.volumes.iter().cloned().chain(shared_volume(order)).collect();
    let in_container = container::is_wanted(order);
    let mode = context.config.isolation.mode_for(order.strict_isolation);
    let is_isolated = isolation::is_isolated(mode, &context.isolation_support, in_container);
    let commands = if is_isolated { MountCommands::Refused } else { MountCommands::Job };
    let mount_context = MountContext { commands, ..context.mount_context() };
    let mounted = mount_all(mount_context, &directories, &volumes, log);
    // In a container the image's variables take their place.
    let mut node_variables = if in_container { BTreeMap::new() } else { inherited(std::env::vars_os()) };
    if !in_container {
        node_variables.insert("TMPDIR".to_owned(), directories.layout.tmp_dir.to_string_lossy().into_owned());
    }
    let environment = env_vars::compose(node_variables, &directories.layout, order, gpus::max_count(order.gpus));
    let secrets = job_secrets(order, Some(&environment));
    log.redact(secrets.clone());
    let names = LogNames::new(order, node);
    let roots = OutputRoots::of_job(&context.directories, &directories, order, cluster_volumes);
    let roots = roots.map_err(|error| task_errors::node_storage(node, context.directories.root(), &error))?;
    let make = |path: &Path| {
        let made = roots.locate(path).and_then(|found| found.make().map(|()| found));
        made.map_err(|error| task_errors::directory(path, node, &error))
    };
    // Also after a failed mount, so that the log reports it if it can be written at all.
    let logs = make(&environment.log_directory).and_then(|logs| log.open(&logs, &names.execution, node).map(|()| logs));
    mounted?;
    let logs = logs?;
    for path in &environment.output_directories {
        make(path)?;
        log.line(format_args!("Created output directory {}", path.display()));
    }
    // A container is isolated by its engine.
    let (confinement, mount_view) = match in_container {
        true => (Confinement::default(), MountView::default()),
        false => {
            let own = environment.output_directories.iter().chain([&environment.log_directory]);
            let outputs: Vec<&Path> = own.map(AsRef::as_ref).collect();
            isolate(context, &directories.layout, order, (cluster_volumes, &outputs), log)?
        }
    };
    let secrets = redacted_secrets(order, secrets, log);
    let confinement = Confinement { secrets, ..confinement };
    let (container, python) = (None, None);
    Ok(JobEnv { directories, environment, logs, names, confinement, mount_view, container, python })
}

/// Checks that the working directory that the job names is there, in the job's container if it has one.
pub async fn check_working_directory(task: &Task, job_env: &JobEnv) -> Result<(), TaskAbort> {
    let Some(given) = &task.order.working_directory else { return Ok(()) };
    let path = job_env.environment.working_directory.clone();
    let checked = if job_env.container.is_some() {
        let test = ["test -d \"$0\"", &*path.to_string_lossy()];
        let found = python_env::run_script(task, job_env, Path::new("/bin/sh"), &test).await?;
        found.map(drop).map_err(|_| "the container has no such directory".to_owned())
    } else {
        let checked = path.clone();
        // On a volume of another machine that may take long.
        let found = spawn_blocking(move || std::fs::metadata(checked)).await.map_err(io::Error::other);
        match found.and_then(|found| found) {
            Ok(found) if found.is_dir() => Ok(()),
            Ok(_) => Err(io::Error::from(io::ErrorKind::NotADirectory).to_string()),
            Err(error) => Err(error.to_string()),
        }
    };
    checked.map_err(|why| task_errors::working_directory(given, &path, &task.context.node, &why).into())
}

/// Secrets to mask in the output of the job's processes. Logged, because Batch AI showed them.
fn redacted_secrets(order: &TaskOrder, secrets: Secrets, log: &ExecutionLog) -> Secrets {
    if order.secrets.is_empty() {
        return secrets;
    }
    log.line(secret_masking_note(order.shows_secrets));
    if order.shows_secrets { Secrets::default() } else { secrets }
}

/// Isolates the job and describes the result in one line of the execution log.
fn isolate(
    context: &NodeContext,
    layout: &Layout,
    order: &TaskOrder,
    (cluster_volumes, outputs): (&[Volume], &[&Path]),
    log: &ExecutionLog,
) -> Result<(Confinement, MountView), TaskFailure> {
    let isolation = &context.config.isolation;
    let own = [context.directories.root(), context.python_cache.root()];
    let view = isolation::job_view(isolation, &own, layout, order, cluster_volumes);
    let view = view.with_read_only(isolation::read_only_root(layout, cluster_volumes, outputs));
    let isolation_result = isolation::create(isolation, &context.isolation_support, &view, order);
    let (at, log_text) = (layout.tmp_dir.display(), &isolation_result.log_text);
    log.line(format_args!(
        "Isolation: own process group and directories, temporary files in {at} (TMPDIR), {log_text}"
    ));
    match isolation_result.refusal {
        Some(why) => Err(task_errors::isolation(&context.node, &why)),
        None => Ok((Confinement { namespaces: isolation_result.namespaces, ..Confinement::default() }, view)),
    }
}

/// The directory shared by the job's nodes, as a volume, if it must be mounted.
fn shared_volume(order: &TaskOrder) -> Option<Volume> {
    (order.hosts.len() > 1 && order.shared_temp.is_none()).then(|| Volume {
        kind: VolumeKind::JobShared,
        relative: SHARED.to_owned(),
        label: "the shared directory of the job's nodes".to_owned(),
        source: VolumeSource::Remote(MountTokenRequest { attempt: Some(order.attempt.clone()), relative: None }),
        read_only: false,
        beneath: None,
    })
}

/// Mount points without other volumes below them, which can be unmounted in any order.
fn independent_mount_points(layout: &Layout, order: &TaskOrder) -> Vec<PathBuf> {
    let shared = shared_volume(order).map(|volume| layout.job_temp.join(volume.relative));
    let mount_points = order.volumes.iter().map(|volume| layout.job_mount_root.join(volume.relative.trim_matches('/')));
    let mount_points: Vec<PathBuf> = mount_points.chain(shared).collect();
    let is_independent = |at: &&PathBuf| !mount_points.iter().any(|other| other != *at && other.starts_with(at));
    mount_points.iter().filter(is_independent).cloned().collect()
}

/// Unmounts the job's volumes and writes the last line of the log. Blocks on the disk.
pub fn unmount_volumes(context: &NodeContext, order: &TaskOrder, log: &ExecutionLog, last_line: &str) {
    // The log may be on a mount that ends when its last file is closed, so it must be complete before.
    let layout = context.directories.layout(order);
    if context.fuse_mounts.processes.any_below(&layout.job_mount_root) {
        let shared = shared_volume(order);
        let volumes = shared.iter().chain(order.volumes.iter().rev());
        volumes.for_each(|volume| log.line(format_args!("Unmounting {}", volume.label)));
        log.line(last_line);
        log.close();
        return unmount_all(context, order, log);
    }
    unmount_all(context, order, log);
    log.line(last_line);
}

fn unmount_all(context: &NodeContext, order: &TaskOrder, log: &ExecutionLog) {
    let failed = |what: &str, error: &io::Error| {
        tracing::warn!(%error, "could not unmount {what}");
        log.line(format_args!("Could not unmount {what}: {error}"));
    };
    let root = match context.directories.job_mounts(order) {
        Ok(Some(root)) => root,
        Ok(None) => return,
        Err(error) => return failed("the job's volumes", &error),
    };
    let layout = context.directories.layout(order);
    let unmount_all = |root: &OwnedFd, path: &Path, volume: &Volume| match mounts::unmount(
        root,
        path,
        volume,
        context.mount_context(),
    ) {
        Ok(true) => log.line(format_args!("Unmounted {}", volume.label)),
        Ok(false) => {}
        Err(error) => failed(&volume.label, &error),
    };
    context.fuse_mounts.processes.begin_unmount(&independent_mount_points(&layout, order));
    if let (Some(shared), Ok(Some(job))) = (shared_volume(order), context.directories.job(order)) {
        unmount_all(&job, &layout.job_temp, &shared);
    }
    order.volumes.iter().rev().for_each(|volume| unmount_all(&root, &layout.job_mount_root, volume));
}

/// Installs the compatibility layer for old scripts if the job's variables ask for it.
pub fn add_compatibility(context: &NodeContext, job_env: &mut JobEnv, log: &ExecutionLog) -> Result<(), TaskFailure> {
    let variables = &mut job_env.environment.variables;
    let Some(name) = variables.get(compat::VARIABLE).filter(|name| !name.is_empty()).cloned() else { return Ok(()) };
    let directory = job_env.directories.layout.job_temp.join(COMPAT);
    let failed = |error: &dyn std::error::Error| task_errors::compatibility(&context.node, error);
    for (file, content) in compat::files(&name).map_err(|error| failed(&error))? {
        let written = job_env.directories.write(&format!("{COMPAT}/{file}"), content.as_bytes(), 0o644);
        written.map_err(|error| failed(&error))?;
    }
    compat::add_variables(&name, &directory, variables);
    log.line(format_args!("Python finds the compatibility layer {name} in {}", directory.display()));
    Ok(())
}

const COMPAT: &str = ".compat";

fn mount_all(
    mount_context: MountContext<'_>,
    directories: &JobDirectories,
    volumes: &[Volume],
    log: &ExecutionLog,
) -> Result<(), TaskFailure> {
    let mut last_kind = None;
    for volume in volumes {
        if last_kind.replace(volume.kind) != Some(volume.kind) {
            log.line(match volume.kind {
                VolumeKind::FileShare => "Mounting Azure file shares",
                VolumeKind::Container => "Mounting blob file systems",
                VolumeKind::FileServer => "Mounting file servers",
                VolumeKind::Unmanaged => "Mounting unmanaged file systems",
                VolumeKind::JobShared => "Mounting the shared directory of the job's nodes",
            });
        }
        let (root, path) = match volume.kind {
            VolumeKind::JobShared => (&directories.job, &directories.layout.job_temp),
            _ => (&directories.mounts, &directories.layout.job_mount_root),
        };
        let (output, failed) = match mounts::mount(root, path, volume, mount_context) {
            Ok(MountedVolume { at, output }) => {
                log.line(format_args!("Mounted {} at {}", volume.label, at.display()));
                (output, None)
            }
            Err(MountFailure { error, output }) => {
                error.details.iter().for_each(|detail| log.line(&detail.value));
                (output, Some(task_errors::job_mount(volume.kind, error)))
            }
        };
        let printed: Vec<String> = output.lines().map(str::to_owned).collect();
        log.tool_output(&printed);
        if let Some(failure) = failed {
            return Err(failure);
        }
    }
    Ok(())
}
