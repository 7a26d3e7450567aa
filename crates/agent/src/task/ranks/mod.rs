//! Runs this node's processes of a job: all start, their output goes into the files that the layout names, and one that
//! fails takes its siblings down. Entered by `task` only. Never decides what a failure means for the job.

pub mod mpirun;
pub mod tensorflow;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use libc::SIGKILL;

use corro_launch::confinement::Confinement;
use corro_launch::environment::{GangContext, for_rank};
use corro_launch::exit::Exit;
use corro_launch::lines::Mode;
use corro_launch::place::{RankPlace, place};
use corro_launch::process::ProcessSpec;
use corro_launch::rendezvous::report_end_to;
use corro_model::layout::{Layout, Place, Ranks, Role};
use corro_model::node::{GangAddress, RankExit, TaskOrder, TaskPhase};
use corro_model::root_cause::{Cause, cause_in};
use tokio::time::{Instant, timeout_at};

use crate::events::Reporter;
use crate::output::curve_recorder::{Hearing, Recorder};
use crate::output::log_file::LogFile;
use crate::output::log_sink::LateOutput;
use crate::shell;
use crate::task::Task;
use crate::task::control::{Cut, stop_asked};
use crate::task::job_env::Ground;
use crate::task::node_context::Context;
use crate::task::processes::{Crew, Ended, Output};
use crate::task::ranks::mpirun::Mpirun;
use crate::task::ranks::tensorflow::Cluster;
use crate::task::remote_exec;
use crate::task::rendezvous_host::{hosts, interface_of};
use crate::task_errors;

/// For the siblings of a rank that failed.
const SIBLING_GRACE: Duration = Duration::from_secs(1);
/// How long a rank that others name as the cause of their failure may take to end by itself.
const CAUSE_PATIENCE: Duration = Duration::from_millis(500);

/// Runs the processes to their end and reports each one's. An error is a failure beside them.
pub async fn run(task: &mut Task, ground: &Ground, gang: &GangAddress, mpirun: Option<&Mpirun>) -> Result<(), Cut> {
    let order = Arc::clone(&task.order);
    let places = order.places(gang.mpirun);
    let here: Vec<&Place> = places.iter().filter(|place| place.host_idx == order.host_idx).collect();
    if here.is_empty() {
        task.log.line("No process of the job runs on this node by itself");
        task.reporter.phase(TaskPhase::Running).await;
        // The job's command may reach this node in its own way, so everything stays as prepared until the job is over.
        stop_asked(&mut task.control, None).await;
        return Ok(());
    }
    let node = task.context.node.clone();
    let outputs = outputs(&places, &here, ground, task)?;
    task.reporter.phase(TaskPhase::Running).await;
    let recorder = Recorder::new(&ground.logs, &node);
    let _writing = recorder.writing(task.reporter.clone());
    let mut crew = Crew::default();
    let mut failure = None;
    let scene = Scene::new(&order, ground, gang, &places, &task.context);
    for place in &here {
        let name = place.role.name(place.index);
        let words = scene.words(mpirun, place);
        let hearing = recorder.hearing(place, places.len(), order.hosts.len());
        let output = (&outputs[&place.number], hearing);
        if let Err(error) = start(task, ground, place, words, output, &mut crew).await {
            task.log.line(format_args!("Could not start {name}: {}", task_errors::chain(&error)));
            failure = Some(task_errors::process(&name, &node, &error));
            crew.stop(Duration::ZERO);
            break;
        }
    }
    let mut reports = Reports::default();
    loop {
        let next = match reports.held_until() {
            Some(until) => timeout_at(until, crew.next(&mut task.control)).await,
            None => Ok(crew.next(&mut task.control).await),
        };
        let ended = match next {
            Ok(Some(ended)) => ended,
            Ok(None) => break,
            Err(_) => {
                reports.release(&task.reporter).await;
                crew.stop(SIBLING_GRACE);
                continue;
            }
        };
        let place = places[ended.rank].clone();
        if let Err(error) = &ended.exit {
            failure.get_or_insert(task_errors::process(&place.role.name(place.index), &node, error));
        }
        if let (Role::Rank, Ok(exit), false) = (place.role, &ended.exit, ended.stopped || places.len() == 1) {
            report_to_rendezvous(&order, gang, &place, *exit);
        }
        let exit = describe(task, &place, ended).await;
        task.was_killed |= exit.signal == Some(SIGKILL) && !exit.stopped;
        if reports.must_stop(&task.reporter, exit).await {
            crew.stop(SIBLING_GRACE);
        }
    }
    reports.release(&task.reporter).await;
    recorder.write_down().await;
    let lost =
        outputs.values().find_map(|output| output.stdout.failure(&node).or_else(|| output.stderr.failure(&node)));
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

/// The files of this node's processes, by their numbers. One that all write to is opened once.
fn outputs(places: &[Place], here: &[&Place], ground: &Ground, task: &Task) -> Result<HashMap<usize, Output>, Cut> {
    let (directory, node) = (&ground.logs, &task.context.node);
    let mut files: HashMap<&str, Output> = HashMap::new();
    let mut outputs = HashMap::new();
    for place in here {
        let output = match files.get(place.stdout.as_str()) {
            Some(output) => output.clone(),
            None => {
                let alone = places.iter().filter(|other| other.stdout == place.stdout).count() == 1;
                let output = Output {
                    stdout: LogFile::open(directory, &place.stdout, node)?,
                    stderr: LogFile::open(directory, &place.stderr, node)?,
                    mode: if alone { Mode::Raw } else { Mode::Lines },
                    late: None,
                };
                if alone && task.order.attempt.number > 1 {
                    output.stdout.end_half_line();
                    output.stderr.end_half_line();
                }
                files.insert(&place.stdout, output.clone());
                output
            }
        };
        let source = format!("{} in attempt {}", place.role.name(place.index), task.order.attempt.number);
        let late = LateOutput::new(task.context.lease_expiry.clone(), task.log.clone(), source);
        outputs.insert(place.number, Output { late: Some(late), ..output });
    }
    Ok(outputs)
}

/// What the words and variables of this node's processes are made from.
struct Scene<'a> {
    order: &'a TaskOrder,
    gang: &'a GangAddress,
    /// What all of them see.
    variables: BTreeMap<String, String>,
    /// Of all ranks, in order, and who tells them of each other.
    ranks: Vec<RankPlace>,
    context: GangContext,
    cluster: Option<Cluster>,
}

impl<'a> Scene<'a> {
    fn new(
        order: &'a TaskOrder,
        ground: &Ground,
        gang: &'a GangAddress,
        places: &[Place],
        node: &Context,
    ) -> Scene<'a> {
        let mut variables = ground.environment.variables.clone();
        variables.extend(remote_exec::nodes(order, gang).map(|nodes| (remote_exec::NODES_VARIABLE.to_owned(), nodes)));
        let shared = ground.directories.layout.shared.to_string_lossy();
        variables.extend(order.layout.ranks().into_iter().flat_map(|ranks| of_torch(ranks, gang, &shared)));
        let distributed = matches!(order.layout, Layout::TensorFlow(_)) && places.len() > 1;
        let context = GangContext {
            rendezvous_addr: gang.address.clone(),
            rendezvous_port: gang.rendezvous_port,
            iface: interface_of(&node.address),
            master_addr: gang.address.clone(),
            master_port: gang.master_port,
            secret: order.gang_secret.expose().to_owned(),
        };
        let ranks = if order.layout.ranks().is_some() { place(&hosts(order)) } else { Vec::new() };
        let cluster = distributed.then(|| tensorflow::cluster(order, places, gang)).flatten();
        Scene { order, gang, variables, ranks, context, cluster }
    }

    /// The words and the variables of one process.
    fn words(&self, mpirun: Option<&Mpirun>, own: &Place) -> (Vec<String>, BTreeMap<String, String>) {
        let mut env = self.variables.clone();
        let path = self.variables.get("PATH").map(String::as_str);
        if let (Some(mpirun), Layout::Mpi(ranks)) = (mpirun, &self.order.layout) {
            let argv = mpirun::command(mpirun, self.order, ranks, &self.of_all_ranks(ranks), path);
            return (argv, env);
        }
        match own.role {
            Role::Rank => {
                let hostname = self.order.hosts.get(own.host_idx).map_or("", |host| host.node.as_str());
                env.extend(
                    self.ranks.get(own.number).map(|p| for_rank(&self.context, p, hostname)).unwrap_or_default(),
                );
                if self.order.layout.ranks().is_some_and(|ranks| ranks.indexed) {
                    env.insert("AZ_BATCHAI_TASK_INDEX".to_owned(), own.number.to_string());
                }
            }
            Role::Worker | Role::ParameterServer => env.extend(tensorflow::variables(self.cluster.as_ref(), own)),
            Role::Command | Role::Mpirun => {}
        }
        (shell::command(own.command, path), env)
    }

    /// What ranks under an `mpirun` must be told on every node, where no agent of ours starts them.
    fn of_all_ranks(&self, ranks: &Ranks) -> Vec<(String, String)> {
        let (address, port) = (self.gang.address.clone(), self.gang.master_port.to_string());
        let mut exports = vec![("MASTER_ADDR".to_owned(), address), ("MASTER_PORT".to_owned(), port)];
        exports.extend(of_torch(ranks, self.gang, ""));
        exports
    }
}

/// How processes of `torch.distributed` meet: by a file that all nodes see, as the service did it, or at the master. The file's locks hold within
/// one machine, whose nodes have loopback addresses.
fn of_torch(ranks: &Ranks, gang: &GangAddress, shared: &str) -> Vec<(String, String)> {
    let Some(backend) = &ranks.backend else { return Vec::new() };
    let method = match backend.as_str() {
        "gloo" if gang.address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()) => {
            format!("file://{shared}/pytorch-init")
        }
        "mpi" => "env://".to_owned(),
        _ => format!("tcp://{}:{}", gang.address, gang.master_port),
    };
    let variables = [("AZ_BATCHAI_PYTORCH_BACKEND", backend.clone()), ("AZ_BATCHAI_PYTORCH_INIT_METHOD", method)];
    variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

async fn start(
    task: &Task,
    ground: &Ground,
    place: &Place<'_>,
    (argv, env): (Vec<String>, BTreeMap<String, String>),
    (output, hearing): (&Output, Option<Hearing>),
    crew: &mut Crew,
) -> Result<(), corro_launch::process::SpawnError> {
    let cwd = ground.directories.layout.job_temp.clone();
    let (tag, confinement) = (task.tag(&format!("rank-{}", place.number)), Confinement::default());
    let spec = ProcessSpec { argv, env, cwd, tag, confinement };
    let process = task.context.config.guard.spawn(ground.process(spec)).await?;
    let name = place.role.name(place.index);
    task.log.line(format_args!("Started {name} as process {}: {}", process.pid(), place.command));
    crew.add(place.number, process, output.clone(), hearing);
    Ok(())
}

/// The ends of this node's processes on their way to the server. One that fails because of another rank is held for a moment: the server
/// stops the whole gang when it hears of a failure, and the rank that caused it, here or on another node, is to end by itself before.
#[derive(Default)]
struct Reports {
    ended: Vec<usize>,
    held: Vec<RankExit>,
    until: Option<Instant>,
}

impl Reports {
    fn held_until(&self) -> Option<Instant> {
        self.until.filter(|_| !self.held.is_empty())
    }

    /// Takes the end of a process. True when its siblings have to be stopped now.
    async fn must_stop(&mut self, reporter: &Reporter, exit: RankExit) -> bool {
        self.ended.push(exit.rank);
        let has_failed = !exit.succeeded() && !exit.stopped;
        if has_failed && self.waits_for_cause(&exit.stderr_tail) {
            self.until.get_or_insert_with(|| Instant::now() + CAUSE_PATIENCE);
            self.held.push(exit);
            return false;
        }
        reporter.exited(exit).await;
        if has_failed {
            self.release(reporter).await;
        }
        has_failed
    }

    /// Whether the last lines of a rank that failed say that it did so because of another, which has not ended or failed because of a third.
    fn waits_for_cause(&self, stderr: &str) -> bool {
        let is_held = |rank| self.held.iter().any(|held| held.rank == rank);
        match cause_in(stderr).map(Cause::rank) {
            Some(Some(rank)) => !self.ended.contains(&rank) || is_held(rank),
            Some(None) => true,
            None => false,
        }
    }

    async fn release(&mut self, reporter: &Reporter) {
        for exit in self.held.drain(..) {
            reporter.exited(exit).await;
        }
    }
}

/// Ranks that wait for each other are told that they wait in vain. In the background: the server may be gone, or not needed any more.
fn report_to_rendezvous(order: &TaskOrder, gang: &GangAddress, place: &Place<'_>, exit: Exit) {
    let (address, port, rank) = (gang.address.clone(), gang.rendezvous_port, place.number);
    let host = order.hosts.get(place.host_idx).map(|host| host.node.to_string()).unwrap_or_default();
    if port != 0 {
        tokio::spawn(async move {
            let _ = report_end_to(&address, port, rank, &host, exit).await;
        });
    }
}

async fn describe(task: &Task, place: &Place<'_>, ended: Ended) -> RankExit {
    let (exit_code, signal) = match ended.exit {
        Ok(Exit::Code(code)) => (Some(code), None),
        Ok(Exit::Signal(signal)) => (None, Some(signal)),
        Err(_) => (Some(-1), None),
    };
    let name = sentence(place.role.name(place.index));
    let why = if ended.stopped { ", as it was told to stop" } else { "" };
    match &ended.exit {
        Ok(exit) => task.log.line(format_args!("{name} ended with {exit}{why}")),
        Err(error) => task.log.line(format_args!("{name} could not be waited for: {error}")),
    }
    let (rank, role, index, stopped) = (place.number, place.role, place.index, ended.stopped);
    let stderr_tail = ended.stderr.join("\n");
    let failed = exit_code != Some(0) && !stopped;
    let out_of_memory = if failed { task.out_of_memory().await } else { None };
    // One that went on all the same is to see it in its execution log.
    let is_asked = failed || (!stopped && task.container.is_none());
    let out_of_processes = if is_asked { task.out_of_processes().await.filter(|_| failed) } else { None };
    #[rustfmt::skip]
    let exit = RankExit {
        rank, role, index, exit_code, signal, stopped, at: ended.at, stderr_tail, out_of_memory, out_of_processes,
    };
    exit
}

/// With the capital that a line begins with; a program's name stays as it is.
fn sentence(name: String) -> String {
    match name.strip_prefix(|first: char| "rwpt".contains(first)) {
        Some(rest) => format!("{}{rest}", name[..1].to_uppercase()),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torch_is_told_where_to_meet() {
        for (address, backend, expected) in [
            ("127.0.0.4", "gloo", "file:///n/shared/pytorch-init"),
            ("10.0.0.4", "gloo", "tcp://10.0.0.4:29500"),
            ("127.0.0.4", "tcp", "tcp://127.0.0.4:29500"),
            ("127.0.0.4", "nccl", "tcp://127.0.0.4:29500"),
        ] {
            let gang = GangAddress::new(address, 1, 29500);
            let logs = corro_model::layout::RankLogs::Apart;
            let ranks = Ranks { command: "x".into(), logs, indexed: true, backend: Some(backend.into()) };
            let seen = of_torch(&ranks, &gang, "/n/shared");
            assert_eq!([seen[0].1.as_str(), seen[1].1.as_str()], [backend, expected]);
        }
    }

    #[test]
    fn victims_of_victims_wait_for_the_cause_too() {
        let held = RankExit {
            rank: 2,
            role: Role::Rank,
            index: 2,
            exit_code: Some(1),
            signal: None,
            stopped: false,
            at: corro_model::Timestamp::from_millis(0),
            stderr_tail: String::new(),
            out_of_memory: None,
            out_of_processes: None,
        };
        let reports = Reports { ended: vec![1, 2], held: vec![held], until: None };
        for (stderr, expected) in [
            ("HorovodInternalError: rank 0 on host n has died", true),
            ("HorovodInternalError: rank 2 on host n has died", true),
            ("HorovodInternalError: Horovod has been shut down.", true),
            ("HorovodInternalError: rank 1 on host n has died", false),
            ("ZeroDivisionError: division by zero", false),
        ] {
            assert_eq!(reports.waits_for_cause(stderr), expected, "{stderr}");
        }
    }

    #[test]
    fn lines_begin_with_a_capital() {
        let names = [Role::Rank, Role::Command, Role::Mpirun, Role::Worker].map(|role| sentence(role.name(1)));
        assert_eq!(names, ["Rank 1", "The command", "mpirun", "Worker 1"]);
    }
}
