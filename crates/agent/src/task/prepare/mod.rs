//! Makes a node ready for a job: directories, volumes, job preparation. Entered by `task` only.
//! Starts nothing of the job but its preparation command.

pub mod container_start;
pub mod python_env;
pub mod wheels;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use corro_launch::compat;
use corro_launch::confinement::Confinement;
use corro_launch::environment::inherited;
use corro_launch::lines::Mode;
use corro_launch::process::ProcessSpec;
use corro_launch::redact::Secrets;
use corro_model::node::{PassRequest, TaskFailure, TaskOrder, Volume, VolumeKind, VolumeSource};

use crate::container;
use crate::isolation;
use crate::limits::gpus;
use crate::output::execution_log::ExecutionLog;
use crate::output::log_file::LogFile;
use crate::output::log_names::LogNames;
use crate::output::output_dir::OutputRoots;
use crate::shell;
use crate::storage::directories::{JobDirectories, Layout, SHARED};
use crate::storage::mounts;
use crate::storage::mounts::{MountCommands, MountFailure, Mounted, Site};
use crate::task::Task;
use crate::task::control::Cut;
use crate::task::env_vars;
use crate::task::job_env::{Ground, how_secrets_are_shown, secrets_of};
use crate::task::node_context::Context;
use crate::task::processes::{Crew, Output};
use crate::task_errors;

/// Directories, volumes, log and output directories, execution log. Blocks on the disk.
pub fn lay_ground(
    context: &Context,
    order: &TaskOrder,
    cluster_volumes: &[Volume],
    log: &ExecutionLog,
) -> Result<Ground, TaskFailure> {
    let node = &context.node;
    let directories = context.directories.begin(order);
    let directories =
        directories.map_err(|error| task_errors::node_storage(node, context.directories.root(), &error))?;
    log.line(format_args!("Created job directory {}", directories.layout.job_temp.display()));
    let restored = context.directories.mounts().and_then(|root| {
        mounts::restore_links(&root, &context.directories.mount_root(), cluster_volumes, context.site())
    });
    restored.map_err(|error| task_errors::node_storage(node, context.directories.root(), &error))?;
    let volumes: Vec<Volume> = order.volumes.iter().cloned().chain(shared_volume(order)).collect();
    let in_container = container::is_wanted(order);
    let mode = context.config.isolation.mode_for(order.strict_isolation);
    let isolated = isolation::is_isolated(mode, &context.walls, in_container);
    let commands = if isolated { MountCommands::Refused } else { MountCommands::OfJob };
    let site = Site { commands, ..context.site() };
    let mounted = mount_all(site, &directories, &volumes, log);
    // A container has the variables of its image instead.
    let mut node_variables = if in_container { BTreeMap::new() } else { inherited(std::env::vars_os()) };
    if !in_container {
        node_variables.insert("TMPDIR".to_owned(), directories.layout.scratch.to_string_lossy().into_owned());
    }
    let environment = env_vars::compose(node_variables, &directories.layout, order, gpus::most(order.gpus));
    let secrets = secrets_of(order, Some(&environment));
    log.redact(secrets.clone());
    let names = LogNames::new(order, node);
    let roots = OutputRoots::of_job(&context.directories, &directories, order, cluster_volumes);
    let roots = roots.map_err(|error| task_errors::node_storage(node, context.directories.root(), &error))?;
    let make = |path: &Path| {
        let made = roots.locate(path).and_then(|found| found.make().map(|()| found));
        made.map_err(|error| task_errors::directory(path, node, &error))
    };
    // Also after a failed mount, so that the log tells of it wherever it can be written.
    let logs = make(&environment.log_directory).and_then(|logs| log.open(&logs, &names.execution, node).map(|()| logs));
    mounted?;
    let logs = logs?;
    for path in &environment.output_directories {
        make(path)?;
        log.line(format_args!("Created output directory {}", path.display()));
    }
    // Its walls are the engine's.
    let confinement = match in_container {
        true => Confinement::default(),
        false => {
            let own = environment.output_directories.iter().chain([&environment.log_directory]);
            let outputs: Vec<&Path> = own.map(AsRef::as_ref).collect();
            put_up_walls(context, &directories.layout, order, (cluster_volumes, &outputs), log)?
        }
    };
    let secrets = blanked(order, secrets, log);
    let confinement = Confinement { secrets, ..confinement };
    Ok(Ground { directories, environment, logs, names, confinement, container: None })
}

/// What is blanked in the output of its processes; that it is is said once, as the retired service showed secrets.
fn blanked(order: &TaskOrder, secrets: Secrets, log: &ExecutionLog) -> Secrets {
    if order.secrets.is_empty() {
        return secrets;
    }
    log.line(how_secrets_are_shown(order.shows_secrets));
    if order.shows_secrets { Secrets::default() } else { secrets }
}

/// Says in one line what the job is kept from and what not.
fn put_up_walls(
    context: &Context,
    layout: &Layout,
    order: &TaskOrder,
    (cluster_volumes, outputs): (&[Volume], &[&Path]),
    log: &ExecutionLog,
) -> Result<Confinement, TaskFailure> {
    let isolation = &context.config.isolation;
    let view = isolation::view(isolation, context.directories.root(), layout, order, cluster_volumes);
    let view = view.with_read_only(isolation::read_only_root(layout, cluster_volumes, outputs));
    let walls = isolation::build(isolation, &context.walls, &view, order);
    let (at, told) = (layout.scratch.display(), &walls.told);
    log.line(format_args!("Isolation: own process group and directories, temporary files in {at} (TMPDIR), {told}"));
    match walls.refusal {
        Some(why) => Err(task_errors::isolation(&context.node, &why)),
        None => Ok(Confinement { namespaces: walls.namespaces, ..Confinement::default() }),
    }
}

/// What the job's nodes share, where it has to be mounted.
fn shared_volume(order: &TaskOrder) -> Option<Volume> {
    (order.hosts.len() > 1 && order.shared_temp.is_none()).then(|| Volume {
        kind: VolumeKind::JobShared,
        relative: SHARED.to_owned(),
        label: "the directory that the nodes of the job share".to_owned(),
        source: VolumeSource::Remote(PassRequest { attempt: Some(order.attempt.clone()), relative: None }),
        read_only: false,
        beneath: None,
    })
}

/// The places of volumes that have no other below them, and can go in any order.
fn apart(layout: &Layout, order: &TaskOrder) -> Vec<PathBuf> {
    let shared = shared_volume(order).map(|volume| layout.job_temp.join(volume.relative));
    let places = order.volumes.iter().map(|volume| layout.job_mount_root.join(volume.relative.trim_matches('/')));
    let places: Vec<PathBuf> = places.chain(shared).collect();
    let is_apart = |at: &&PathBuf| !places.iter().any(|other| other != *at && other.starts_with(at));
    places.iter().filter(is_apart).cloned().collect()
}

/// Takes the job's volumes away again, and says the last words. Blocks on the disk.
pub fn take_away_volumes(context: &Context, order: &TaskOrder, log: &ExecutionLog, last_words: &str) {
    // The log may lie on a mount that ends when its last file is closed: it has to be complete before.
    let layout = context.directories.layout(order);
    if context.remotes.lives.any_in(&layout.job_mount_root) {
        let shared = shared_volume(order);
        let volumes = shared.iter().chain(order.volumes.iter().rev());
        volumes.for_each(|volume| log.line(format_args!("Unmounting {}", volume.label)));
        log.line(last_words);
        log.close();
        return take_away(context, order, log);
    }
    take_away(context, order, log);
    log.line(last_words);
}

fn take_away(context: &Context, order: &TaskOrder, log: &ExecutionLog) {
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
    let take_away =
        |root: &OwnedFd, path: &Path, volume: &Volume| match mounts::unmount(root, path, volume, context.site()) {
            Ok(true) => log.line(format_args!("Unmounted {}", volume.label)),
            Ok(false) => {}
            Err(error) => failed(&volume.label, &error),
        };
    context.remotes.lives.begin_to_end(&apart(&layout, order));
    if let (Some(shared), Ok(Some(job))) = (shared_volume(order), context.directories.job(order)) {
        take_away(&job, &layout.job_temp, &shared);
    }
    order.volumes.iter().rev().for_each(|volume| take_away(&root, &layout.job_mount_root, volume));
}

/// What old scripts expect, where the job's variables ask for it.
pub fn add_compatibility(context: &Context, ground: &mut Ground, log: &ExecutionLog) -> Result<(), TaskFailure> {
    let variables = &mut ground.environment.variables;
    let Some(name) = variables.get(compat::VARIABLE).filter(|name| !name.is_empty()).cloned() else { return Ok(()) };
    let directory = ground.directories.layout.job_temp.join(COMPAT);
    let failed = |error: &dyn std::error::Error| task_errors::compatibility(&context.node, error);
    for (file, content) in compat::files(&name).map_err(|error| failed(&error))? {
        let written = ground.directories.write(&format!("{COMPAT}/{file}"), content.as_bytes(), 0o644);
        written.map_err(|error| failed(&error))?;
    }
    compat::add_variables(&name, &directory, variables);
    log.line(format_args!("Python finds the compatibility layer {name} in {}", directory.display()));
    Ok(())
}

const COMPAT: &str = ".compat";

/// Runs the job preparation command to its end.
pub async fn run_preparation(task: &mut Task, ground: &Ground, line: &str) -> Result<(), Cut> {
    let (node, log) = (task.context.node.clone(), task.log.clone());
    let directory = &ground.logs;
    let output = Output {
        stdout: LogFile::open(directory, &ground.names.preparation_stdout, &node)?,
        stderr: LogFile::open(directory, &ground.names.preparation_stderr, &node)?,
        mode: Mode::Raw,
        late: None,
    };
    let env = ground.environment.variables.clone();
    let spec = ProcessSpec {
        argv: shell::command(line, env.get("PATH").map(String::as_str)),
        env,
        cwd: ground.directories.layout.job_temp.clone(),
        tag: task.tag("preparation"),
        confinement: Confinement::default(),
    };
    log.line(format_args!("Running job preparation: {line}"));
    let process = task.context.config.guard.spawn(ground.process(spec)).await;
    let process = process.map_err(|error| task_errors::process("job preparation", &node, &error))?;
    let mut crew = Crew::default();
    crew.add(0, process, output.clone(), None);
    let ended = crew.next(&mut task.control).await.expect("one process was added");
    let exit = ended.exit.map_err(|error| task_errors::process("job preparation", &node, &error))?;
    log.line(format_args!("Job preparation ended with {exit}"));
    if ended.stopped {
        return Err(Cut::Stopped);
    }
    if !exit.success() {
        log.tool_output(&ended.stderr);
        let met = [("OutOfMemory", task.out_of_memory().await), ("OutOfProcesses", task.out_of_processes().await)];
        return Err(task_errors::preparation(&node, exit, met, &ended.stderr).into());
    }
    match output.stdout.failure(&node).or_else(|| output.stderr.failure(&node)) {
        Some(failure) => Err(failure.into()),
        None => Ok(()),
    }
}

fn mount_all(
    site: Site<'_>,
    directories: &JobDirectories,
    volumes: &[Volume],
    log: &ExecutionLog,
) -> Result<(), TaskFailure> {
    let mut said = None;
    for volume in volumes {
        if said.replace(volume.kind) != Some(volume.kind) {
            log.line(match volume.kind {
                VolumeKind::FileShare => "Mounting Azure file shares",
                VolumeKind::Container => "Mounting blob file systems",
                VolumeKind::FileServer => "Mounting file servers",
                VolumeKind::Unmanaged => "Mounting unmanaged file systems",
                VolumeKind::JobShared => "Mounting what the nodes of the job share",
            });
        }
        let (root, path) = match volume.kind {
            VolumeKind::JobShared => (&directories.job, &directories.layout.job_temp),
            _ => (&directories.mounts, &directories.layout.job_mount_root),
        };
        let (output, failed) = match mounts::mount(root, path, volume, site) {
            Ok(Mounted { at, output }) => {
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
