//! The cluster's setup task on this node: runs after the cluster's volumes are mounted and before the first job, once
//! for each agent, so again after a reboot. Its processes are guarded: they end with the agent, or when the node is no
//! longer wanted.

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};

use corro_launch::confinement::Confinement;
use corro_launch::environment::inherited;
use corro_launch::kill_tagged::kill_by_tag_prefix;
use corro_launch::lines::Mode;
use corro_launch::process_spec::ProcessSpec;
use corro_launch::redact::Secrets;
use corro_model::batchai::BatchAiError;
use corro_model::node::{SetupOrder, TaskFailure};

use crate::events::Event;
use crate::output::execution_log::ExecutionLog;
use crate::output::log_file::LogFile;
use crate::output::log_names::SetupLogNames;
use crate::output::output_dir::OutputRoots;
use crate::shell;
use crate::task::control::TaskControl;
use crate::task::env_vars;
use crate::task::job_env::secret_masking_note;
use crate::task::node_context::NodeContext;
use crate::task::processes::{ProcessOutput, TaskProcesses};
use crate::task_errors;

/// A running setup task. Dropping it kills it.
#[derive(Debug)]
pub struct SetupTask {
    tag: String,
    work: JoinHandle<()>,
}

impl SetupTask {
    /// Starts the setup task; its end is reported by an event.
    pub fn start(context: &NodeContext, order: &SetupOrder, events: mpsc::Sender<Event>) -> SetupTask {
        let tag = context.tags.with("setup/");
        let (context, order, process_tag) = (context.clone(), order.clone(), format!("{tag}task"));
        let work = tokio::spawn(async move {
            let node = context.node.clone();
            let mut work = JoinSet::new();
            work.spawn(async move { run(&context, &order, process_tag).await });
            let result = match work.join_next().await {
                Some(Ok(result)) => result,
                _ => Err(task_errors::agent_panicked(&node)),
            };
            // Fails only when the driver is gone, which is when the whole agent ends.
            let _ = events.send(Event::SetUp(result.map_err(|failure| Box::new(failure.error)))).await;
        });
        SetupTask { tag, work }
    }

    /// Kills it and waits until nothing is left of it.
    pub async fn cancel(self) {
        self.work.abort();
        let tag = self.tag.clone();
        // Joining fails only when the runtime ends; then the guard kills the processes.
        let _ = spawn_blocking(move || kill_by_tag_prefix(&tag)).await;
    }
}

impl Drop for SetupTask {
    fn drop(&mut self) {
        self.work.abort();
    }
}

async fn run(context: &NodeContext, order: &SetupOrder, tag: String) -> Result<(), TaskFailure> {
    let node = &context.node;
    let home = context.directories.login_home();
    let home = home.map_err(|error| task_errors::node_storage(node, context.directories.root(), &error))?;
    let mounts = context.directories.mount_root();
    let (env, logs) = env_vars::for_setup(inherited(std::env::vars_os()), &mounts, &home, order);
    let volumes = context.cluster_volumes.get();
    let roots = OutputRoots::of_setup(&context.directories, &home, &volumes);
    let output = roots.and_then(|roots| roots.locate(&logs)).and_then(|output| output.make().map(|()| output));
    let directory = output.map_err(|error| task_errors::directory(&logs, node, &error))?;
    let (names, log) = (SetupLogNames::new(node), ExecutionLog::new());
    let expanded = order.secrets.iter().filter_map(|secret| env.get(&secret.name).map(String::as_str));
    let secrets = Secrets::new(order.secrets.iter().map(|secret| secret.value.expose()).chain(expanded));
    log.redact(secrets.clone());
    log.open(&directory, &names.execution, node)?;
    let output = ProcessOutput {
        stdout: LogFile::open(&directory, &names.stdout, node)?,
        stderr: LogFile::open(&directory, &names.stderr, node)?,
        mode: Mode::Raw,
        line_prefix: None,
        late: None,
    };
    log.line(format_args!("Running the setup task of the cluster on node {node}: {}", order.command));
    let argv = shell::command(&order.command, env.get("PATH").map(String::as_str));
    let confinement = context.confine_cluster_process(&home);
    let confinement = confinement.map_err(|why| task_errors::isolation(node, &why))?;
    if !order.secrets.is_empty() {
        log.line(secret_masking_note(order.shows_secrets));
    }
    let secrets = if order.shows_secrets { Secrets::default() } else { secrets };
    let confinement = Confinement { secrets, ..confinement };
    let process = context.config.guard.spawn(ProcessSpec { argv, env, cwd: home, tag, confinement }).await;
    let process = process.map_err(|error| task_errors::process("the setup task", node, &error))?;
    let mut processes = TaskProcesses::default();
    processes.add(0, process, output.clone(), None);
    // It is never stopped gracefully: a node that is not wanted kills it.
    let (_keep, mut control) = watch::channel(TaskControl::default());
    let ended = processes.next(&mut control).await.expect("one process was added");
    let exit = ended.exit.map_err(|error| task_errors::process("the setup task", node, &error))?;
    log.line(format_args!("The setup task ended with {exit}"));
    if !exit.success() {
        return Err(task_errors::setup(node, exit, &ended.stderr, &logs));
    }
    match output.stdout.failure(node).or_else(|| output.stderr.failure(node)) {
        Some(failure) => Err(failure),
        None => Ok(()),
    }
}

/// Progress of the setup task.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum SetupProgress {
    #[default]
    NotBegun,
    Running,
    Done,
    Failed(BatchAiError),
}
