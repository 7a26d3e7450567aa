//! Runs this node's ranks: all start, their output goes into one pair of files, and one that fails takes its siblings
//! down. Entered by `task` only. Never decides what a failure means for the job.

use std::collections::BTreeMap;
use std::time::Duration;

use corro_launch::confinement::Confinement;
use corro_launch::environment::{GangContext, for_rank};
use corro_launch::exit::Exit;
use corro_launch::lines::Mode;
use corro_launch::place::place;
use corro_launch::process::ProcessSpec;
use corro_model::node::{GangAddress, RankExit, TaskOrder, TaskPhase};

use crate::crew::{Crew, Ended, Output};
use crate::failure::{self, now};
use crate::logs::{LogFile, STDERR, STDOUT};
use crate::meeting::{hosts, interface_of};
use crate::prepare::Ground;
use crate::shell;
use crate::task::{Cut, Task, stop_asked};

/// For the siblings of a rank that failed.
const SIBLING_GRACE: Duration = Duration::from_secs(1);

/// Runs the ranks to their end and reports each one's. An error is a failure beside them.
pub async fn run(task: &mut Task, ground: &Ground, gang: &GangAddress) -> Result<(), Cut> {
    let ranks = ranks_here(task, gang);
    if ranks.is_empty() {
        task.log.line("No process of the job runs on this node");
        task.reporter.phase(TaskPhase::Running).await;
        // The job's command may reach this node in its own way, so everything stays as prepared until the job is over.
        stop_asked(&mut task.control, None).await;
        return Ok(());
    }
    let node = task.context.node.clone();
    let directory = &ground.environment.log_directory;
    let output = Output {
        stdout: LogFile::open(directory, STDOUT, &node)?,
        stderr: LogFile::open(directory, STDERR, &node)?,
        mode: if n_processes(&task.order) == 1 { Mode::Raw } else { Mode::Lines },
    };
    task.reporter.phase(TaskPhase::Running).await;
    let mut crew = Crew::default();
    let mut failure = None;
    for (rank, own) in ranks {
        if let Err(error) = start(task, ground, rank, own, &output, &mut crew).await {
            task.log.line(format_args!("Could not start rank {rank}: {}", failure::chain(&error)));
            failure = Some(failure::process(&format!("rank {rank}"), &node, &error));
            crew.stop(Duration::ZERO);
            break;
        }
    }
    while let Some(ended) = crew.next(&mut task.control).await {
        if let Err(error) = &ended.exit {
            failure.get_or_insert(failure::process(&format!("rank {}", ended.rank), &node, error));
        }
        let exit = report(task, ended).await;
        if !exit.succeeded() && !exit.stopped {
            crew.stop(SIBLING_GRACE);
        }
    }
    let lost = output.stdout.failure(&node).or_else(|| output.stderr.failure(&node));
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

/// The numbers of this node's ranks, each with the variables of its place.
fn ranks_here(task: &Task, gang: &GangAddress) -> Vec<(usize, BTreeMap<String, String>)> {
    let order = &task.order;
    if !order.ranked {
        return if order.is_master() { vec![(0, BTreeMap::new())] } else { Vec::new() };
    }
    let context = GangContext {
        rendezvous_addr: gang.address.clone(),
        rendezvous_port: gang.rendezvous_port,
        iface: interface_of(&task.context.config.address),
        master_addr: gang.address.clone(),
        master_port: gang.master_port,
        secret: order.gang_secret.expose().to_owned(),
    };
    let hostname = task.context.node.as_str();
    let places = place(&hosts(order)).into_iter().filter(|place| place.host_idx == order.host_idx);
    places.map(|place| (place.rank, for_rank(&context, &place, hostname))).collect()
}

/// Of the whole job, over all its nodes.
fn n_processes(order: &TaskOrder) -> usize {
    if order.ranked { order.hosts.iter().map(|host| host.slots).sum() } else { 1 }
}

async fn start(
    task: &Task,
    ground: &Ground,
    rank: usize,
    own: BTreeMap<String, String>,
    output: &Output,
    crew: &mut Crew,
) -> Result<(), corro_launch::process::SpawnError> {
    let mut env = ground.environment.variables.clone();
    env.extend(own);
    let spec = ProcessSpec {
        argv: shell::command(&task.order.command, env.get("PATH").map(String::as_str)),
        env,
        cwd: ground.directories.layout.job_temp.clone(),
        tag: task.tag(&format!("rank-{rank}")),
        confinement: Confinement::default(),
    };
    let process = task.context.config.guard.spawn(ground.process(spec)).await?;
    task.log.line(format_args!("Started rank {rank} as process {}: {}", process.pid(), task.order.command));
    crew.add(rank, process, output.clone());
    Ok(())
}

async fn report(task: &Task, ended: Ended) -> RankExit {
    let (exit_code, signal) = match ended.exit {
        Ok(Exit::Code(code)) => (Some(code), None),
        Ok(Exit::Signal(signal)) => (None, Some(signal)),
        Err(_) => (Some(-1), None),
    };
    let rank = ended.rank;
    let why = if ended.stopped { ", as it was told to stop" } else { "" };
    match &ended.exit {
        Ok(exit) => task.log.line(format_args!("Rank {rank} ended with {exit}{why}")),
        Err(error) => task.log.line(format_args!("Rank {rank} could not be waited for: {error}")),
    }
    let (stopped, stderr_tail) = (ended.stopped, ended.stderr.join("\n"));
    let failed = exit_code != Some(0) && !stopped;
    let out_of_memory = if failed { task.out_of_memory().await } else { None };
    let exit = RankExit { rank, exit_code, signal, stopped, at: now(), stderr_tail, out_of_memory };
    task.reporter.exited(exit.clone()).await;
    exit
}
