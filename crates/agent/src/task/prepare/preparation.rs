//! Runs commands that prepare a job before its ranks start, with their output in the log files of the job preparation:
//! the job's own preparation command, and what makes its Python environment. One at a time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use corro_launch::confinement::Confinement;
use corro_launch::exit::Exit;
use corro_launch::lines::Mode;
use corro_launch::process_spec::ProcessSpec;
use tokio::time::timeout;

use crate::output::log_file::LogFile;
use crate::shell;
use crate::task::Task;
use crate::task::control::TaskAbort;
use crate::task::job_env::JobEnv;
use crate::task::processes::{ProcessOutput, TaskProcesses};
use crate::task_errors;

/// Grace of a command that has used up its time.
const TIMEOUT_GRACE: Duration = Duration::from_secs(2);

/// A command that prepares the job.
#[derive(Debug)]
pub struct PreparationCommand {
    /// For messages: `job preparation`.
    pub name: &'static str,
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub cwd: PathBuf,
    /// Last part of the tag of its processes.
    pub tag: &'static str,
    pub time_limit: Option<Duration>,
}

/// How a command ended.
#[derive(Debug)]
pub struct PreparationEnd {
    pub exit: Exit,
    /// It was ended because its time was over.
    pub is_timed_out: bool,
    /// The last lines of its stderr.
    pub stderr: Vec<String>,
}

/// Runs the job preparation command to its end.
pub async fn run_preparation(task: &mut Task, job_env: &JobEnv, line: &str) -> Result<(), TaskAbort> {
    let env = job_env.environment.variables.clone();
    let command = PreparationCommand {
        name: "job preparation",
        argv: shell::command(line, env.get("PATH").map(String::as_str)),
        env,
        cwd: job_env.environment.working_directory.clone(),
        tag: "preparation",
        time_limit: None,
    };
    task.log.line(format_args!("Running job preparation: {line}"));
    let ended = run_logged(task, job_env, command).await?;
    if ended.exit.success() {
        return Ok(());
    }
    task.log.tool_output(&ended.stderr);
    let met = exceeded_limits(task).await;
    Err(task_errors::preparation(&task.context.node, ended.exit, met, &ended.stderr).into())
}

/// Runs a command to its end. The error is a stop of the job, or that the command could not be started or its output
/// not be written.
pub async fn run_logged(
    task: &mut Task,
    job_env: &JobEnv,
    command: PreparationCommand,
) -> Result<PreparationEnd, TaskAbort> {
    let PreparationCommand { name, argv, env, cwd, tag, time_limit } = command;
    let node = task.context.node.clone();
    let output = ProcessOutput {
        stdout: LogFile::open(&job_env.logs, &job_env.names.preparation_stdout, &node)?,
        stderr: LogFile::open(&job_env.logs, &job_env.names.preparation_stderr, &node)?,
        mode: Mode::Raw,
        line_prefix: None,
        late: None,
    };
    let spec = ProcessSpec { argv, env, cwd, tag: task.tag(tag), confinement: Confinement::default() };
    let process = task.context.config.guard.spawn(job_env.wrap(spec)).await;
    let process = process.map_err(|error| task_errors::process(name, &node, &error))?;
    let mut processes = TaskProcesses::default();
    processes.add(0, process, output.clone(), None);
    let mut is_timed_out = false;
    let next = match time_limit {
        Some(limit) => timeout(limit, processes.next(&mut task.control)).await.ok(),
        None => Some(processes.next(&mut task.control).await),
    };
    let ended = match next {
        Some(ended) => ended,
        None => {
            is_timed_out = true;
            processes.stop(TIMEOUT_GRACE);
            processes.next(&mut task.control).await
        }
    };
    let ended = ended.expect("one process was added");
    let exit = ended.exit.map_err(|error| task_errors::process(name, &node, &error))?;
    task.log.line(format_args!("{}{} ended with {exit}", name[..1].to_uppercase(), &name[1..]));
    // A command whose time was over was stopped by this function.
    let is_stopped = if is_timed_out { task.control.borrow().stop.is_some() } else { ended.stopped };
    if is_stopped {
        return Err(TaskAbort::Stopped);
    }
    // A failed command is reported in place of output that could not be written.
    let lost = output.stdout.failure(&node).or_else(|| output.stderr.failure(&node));
    match lost.filter(|_| exit.success() && !is_timed_out) {
        Some(failure) => Err(failure.into()),
        None => Ok(PreparationEnd { exit, is_timed_out, stderr: ended.stderr }),
    }
}

/// Limits that the job's processes exceeded, by the name of the error detail.
pub async fn exceeded_limits(task: &Task) -> [(&'static str, Option<String>); 2] {
    [("OutOfMemory", task.out_of_memory().await), ("OutOfProcesses", task.out_of_processes().await)]
}
