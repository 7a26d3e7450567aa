//! Runs this node's processes of a job: starts all of them, copies their output into the files that the layout names,
//! and stops all if one fails. Never decides what a failure means for the job.

pub mod elastic;
mod exit_reports;
pub mod mpirun;
mod rank_launch;
pub mod tensorflow;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use corro_base::error_chain;
use libc::SIGKILL;
use tokio::time::timeout_at;

use corro_launch::confinement::Confinement;
use corro_launch::exit::Exit;
use corro_launch::lines::Mode;
use corro_launch::process::{Process, SpawnError};
use corro_launch::process_spec::ProcessSpec;
use corro_launch::rendezvous::report_end_to;
use corro_model::layout::{ProcessSlot, RankLogs, Role};
use corro_model::node::{GangAddress, RankExit, TaskOrder, TaskPhase};

use crate::output::curve_recorder::{ProcessTap, Recorder};
use crate::output::log_file::LogFile;
use crate::output::log_sink::LateOutput;
use crate::task::Task;
use crate::task::control::{TaskAbort, wait_for_stop};
use crate::task::job_env::JobEnv;
use crate::task::processes::{ProcessEnd, ProcessOutput, TaskProcesses};
use crate::task_errors;

use exit_reports::ExitReports;
use mpirun::Mpirun;
use rank_launch::RankLaunch;

/// Grace for the siblings of a failed rank.
const SIBLING_GRACE: Duration = Duration::from_secs(1);

/// Runs the processes to completion and reports each exit. The error is a failure outside of them.
pub async fn run(
    task: &mut Task,
    job_env: &JobEnv,
    gang: &GangAddress,
    mpirun: Option<&Mpirun>,
) -> Result<(), TaskAbort> {
    let order = Arc::clone(&task.order);
    let slots = order.process_slots(gang.mpirun);
    let here: Vec<&ProcessSlot> = slots.iter().filter(|slot| slot.host_idx == order.host_idx).collect();
    if here.is_empty() {
        task.log.line("The job starts no process on this node by itself");
        task.reporter.phase(TaskPhase::Running).await;
        // The job's command may use this node by its own means, so the environment stays until the job is over.
        wait_for_stop(&mut task.control, None).await;
        return Ok(());
    }
    let node = task.context.node.clone();
    let open_outputs = open_outputs(&slots, &here, job_env, task)?;
    task.reporter.phase(TaskPhase::Running).await;
    let recorder = Recorder::new(&job_env.logs, &node);
    let _writer = recorder.start_writer(task.reporter.clone());
    let mut processes = TaskProcesses::default();
    let mut failure = None;
    let launch = RankLaunch::new(&order, job_env, gang, &slots, &task.context);
    for slot in &here {
        let name = slot.role.name(slot.index);
        let command_and_env = launch.command_and_env(mpirun, slot);
        let tap = recorder.tap_process(slot, slots.len(), order.hosts.len());
        let output = (&open_outputs[&slot.number], tap);
        if let Err(error) = start(task, job_env, slot, command_and_env, output, &mut processes).await {
            task.log.line(format_args!("Could not start {name}: {}", error_chain::join(&error)));
            failure = Some(task_errors::process(&name, &node, &error));
            processes.stop(Duration::ZERO);
            break;
        }
    }
    let mut reports = ExitReports::default();
    loop {
        let next = match reports.release_time() {
            Some(until) => timeout_at(until, processes.next(&mut task.control)).await,
            None => Ok(processes.next(&mut task.control).await),
        };
        let ended = match next {
            Ok(Some(ended)) => ended,
            Ok(None) => break,
            Err(_) => {
                reports.release(&task.reporter).await;
                processes.stop(SIBLING_GRACE);
                continue;
            }
        };
        let slot = slots[ended.rank].clone();
        if let Err(error) = &ended.exit {
            failure.get_or_insert(task_errors::process(&slot.role.name(slot.index), &node, error));
        }
        if let (Role::Rank, Ok(exit), false) = (slot.role, &ended.exit, ended.stopped || slots.len() == 1) {
            report_to_rendezvous(&order, gang, &slot, *exit);
        }
        let exit = exit_report(task, &slot, ended).await;
        task.was_killed |= exit.signal == Some(SIGKILL) && !exit.stopped;
        if reports.record_exit(&task.reporter, exit).await {
            processes.stop(SIBLING_GRACE);
        }
    }
    reports.release(&task.reporter).await;
    recorder.flush().await;
    let lost =
        open_outputs.values().find_map(|output| output.stdout.failure(&node).or_else(|| output.stderr.failure(&node)));
    if let Some(lost) = &lost {
        task.log.line(format_args!(
            "{}: {}",
            lost.error.message,
            lost.error.details.last().map_or("", |detail| &detail.value)
        ));
    }
    match failure.or(lost) {
        Some(failure) => Err(failure.into()),
        None => Ok(()),
    }
}

/// Output files of this node's processes by process number. A shared file is opened once.
fn open_outputs(
    slots: &[ProcessSlot],
    here: &[&ProcessSlot],
    job_env: &JobEnv,
    task: &Task,
) -> Result<HashMap<usize, ProcessOutput>, TaskAbort> {
    let (directory, node) = (&job_env.logs, &task.context.node);
    let mut files: HashMap<&str, ProcessOutput> = HashMap::new();
    let mut open_outputs = HashMap::new();
    for slot in here {
        let output = match files.get(slot.stdout.as_str()) {
            Some(output) => output.clone(),
            None => {
                let alone = slots.iter().filter(|other| other.stdout == slot.stdout).count() == 1;
                let output = ProcessOutput {
                    stdout: LogFile::open(directory, &slot.stdout, node)?,
                    stderr: LogFile::open(directory, &slot.stderr, node)?,
                    mode: if alone { Mode::Raw } else { Mode::Lines },
                    line_prefix: None,
                    late: None,
                };
                if alone && task.order.attempt.number > 1 {
                    output.stdout.terminate_partial_line();
                    output.stderr.terminate_partial_line();
                }
                files.insert(&slot.stdout, output.clone());
                output
            }
        };
        let source = format!("{} in attempt {}", slot.role.name(slot.index), task.order.attempt.number);
        let late = Some(LateOutput::new(task.context.lease_expiry.clone(), task.log.clone(), source));
        open_outputs.insert(slot.number, ProcessOutput { late, line_prefix: line_prefix(&task.order, slot), ..output });
    }
    Ok(open_outputs)
}

/// Prefix of each line of a process's output, for a job that asks for it and whose ranks write to the same files.
fn line_prefix(order: &TaskOrder, slot: &ProcessSlot) -> Option<String> {
    let is_together = order.layout.ranks().is_some_and(|ranks| ranks.logs == RankLogs::Together);
    (order.prefix_output_with_rank && is_together && slot.role == Role::Rank).then(|| format!("[{}] ", slot.number))
}

async fn start(
    task: &Task,
    job_env: &JobEnv,
    slot: &ProcessSlot<'_>,
    command_and_env: (Vec<String>, BTreeMap<String, String>),
    (output, tap): (&ProcessOutput, Option<ProcessTap>),
    processes: &mut TaskProcesses,
) -> Result<(), SpawnError> {
    let process = spawn_process(task, job_env, slot, command_and_env).await?;
    processes.add(slot.number, process, output.clone(), tap);
    Ok(())
}

async fn spawn_process(
    task: &Task,
    job_env: &JobEnv,
    slot: &ProcessSlot<'_>,
    (argv, env): (Vec<String>, BTreeMap<String, String>),
) -> Result<Process, SpawnError> {
    let cwd = job_env.environment.working_directory.clone();
    let (tag, confinement) = (task.tag(&format!("rank-{}", slot.number)), Confinement::default());
    let spec = ProcessSpec { argv, env, cwd, tag, confinement };
    let process = task.context.config.guard.spawn(job_env.wrap(spec)).await?;
    let name = slot.role.name(slot.index);
    task.log.line(format_args!("Started {name} as process {}: {}", process.pid(), slot.command));
    Ok(process)
}

/// Tells the rendezvous that a rank has ended, so that others do not wait for it in vain. In the background, since the
/// rendezvous may be gone.
fn report_to_rendezvous(order: &TaskOrder, gang: &GangAddress, slot: &ProcessSlot<'_>, exit: Exit) {
    let (address, port, rank) = (gang.address.clone(), gang.rendezvous_port, slot.number);
    let host = order.hosts.get(slot.host_idx).map(|host| host.node.to_string()).unwrap_or_default();
    if port != 0 {
        tokio::spawn(async move {
            let _ = report_end_to(&address, port, rank, &host, exit).await;
        });
    }
}

async fn exit_report(task: &Task, slot: &ProcessSlot<'_>, ended: ProcessEnd) -> RankExit {
    let (exit_code, signal) = match ended.exit {
        Ok(Exit::Code(code)) => (Some(code), None),
        Ok(Exit::Signal(signal)) => (None, Some(signal)),
        Err(_) => (Some(-1), None),
    };
    let name = capitalize(slot.role.name(slot.index));
    let why = if ended.stopped { " after a stop request" } else { "" };
    match &ended.exit {
        Ok(exit) => task.log.line(format_args!("{name} ended with {exit}{why}")),
        Err(error) => task.log.line(format_args!("Could not wait for {name}: {error}")),
    }
    let (rank, role, index, stopped) = (slot.number, slot.role, slot.index, ended.stopped);
    let stderr_tail = ended.stderr.join("\n");
    let failed = exit_code != Some(0) && !stopped;
    let out_of_memory = if failed { task.out_of_memory().await } else { None };
    // A job that survived a refused fork should see it in its execution log.
    let must_check = failed || (!stopped && task.container.is_none());
    let out_of_processes = if must_check { task.out_of_processes().await.filter(|_| failed) } else { None };
    let gpu_errors = match (failed, stopped) {
        (true, _) => task.gpu_errors().await,
        // It may have waited for a GPU that was lost, which made ranks of other nodes fail.
        (false, true) => task.context.gpus.known_errors(&task.order.attempt),
        (false, false) => Vec::new(),
    };
    #[rustfmt::skip]
    let exit = RankExit {
        rank, role, index, exit_code, signal, stopped, at: ended.at, stderr_tail, out_of_memory, out_of_processes, gpu_errors,
    };
    exit
}

/// Capitalizes the beginning of a log line; the name of a program stays as it is.
fn capitalize(name: String) -> String {
    match name.strip_prefix(|first: char| "rwpt".contains(first)) {
        Some(rest) => format!("{}{rest}", name[..1].to_uppercase()),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use corro_model::layout::{Layout, Ranks};

    use super::*;
    use crate::testing;

    #[test]
    fn lines_are_prefixed_where_ranks_share_files() {
        let check = |logs, mpirun: bool, is_asked: bool, expected: &[Option<&str>]| {
            let mut order = testing::order(2);
            order.prefix_output_with_rank = is_asked;
            order.layout = Layout::Mpi(Ranks { command: "x".into(), logs, indexed: false, backend: None });
            let slots = order.process_slots(mpirun);
            let prefixes: Vec<Option<String>> = slots.iter().map(|slot| line_prefix(&order, slot)).collect();
            assert_eq!(prefixes.iter().map(Option::as_deref).collect::<Vec<_>>(), expected, "{logs:?} {mpirun}");
        };
        check(RankLogs::Together, false, true, &[Some("[0] "), Some("[1] ")]);
        check(RankLogs::Together, false, false, &[None, None]);
        check(RankLogs::Apart, false, true, &[None, None]);
        // The launcher marks the lines itself.
        check(RankLogs::Together, true, true, &[None]);
        let command = TaskOrder { prefix_output_with_rank: true, layout: testing::command("x"), ..testing::order(1) };
        assert_eq!(line_prefix(&command, &command.process_slots(false)[0]), None);
    }

    #[test]
    fn lines_begin_with_a_capital() {
        let names = [Role::Rank, Role::Command, Role::Mpirun, Role::Worker].map(|role| capitalize(role.name(1)));
        assert_eq!(names, ["Rank 1", "The command", "mpirun", "Worker 1"]);
    }
}
