//! Runs this node's processes of an elastic attempt: starts and kills what the server's decisions ([`ElasticWorld`]) name, answers the
//! processes that ask for their place in a generation, and reports who waits and who has ended. Decides nothing: while the
//! server is away, a generation that has begun goes on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use corro_base::error_chain;
use corro_launch::lines::Mode;
use corro_launch::rendezvous::{ELASTIC_SCOPE, report_failed_generation};
use corro_launch::stopper::Stopper;
use corro_model::layout::{ProcessSlot, Role};
use corro_model::node::{ElasticWorld, ObservedElastic, ObservedProcess, RankExit, TaskPhase};
use libc::SIGKILL;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use super::rank_launch::RankLaunch;
use super::{exit_report, open_outputs, spawn_process};
use crate::output::curve_recorder::Recorder;
use crate::task::Task;
use crate::task::control::{TaskAbort, wait_for_stop};
use crate::task::job_env::JobEnv;
use crate::task::processes::{ProcessEnd, ProcessOutput, TaskProcesses};

/// Grace of a process that must go.
const KILL_GRACE: Duration = Duration::from_secs(5);

/// The processes of the attempt on this node.
#[derive(Default)]
struct ElasticProcesses {
    observed: ObservedElastic,
    running: TaskProcesses,
    stoppers: HashMap<u64, Stopper>,
    killed: BTreeSet<u64>,
    kills: JoinSet<()>,
    /// The last request of each process for a place: the generation after which it wants one.
    places: BTreeMap<u64, u64>,
    /// Generations whose members ask for news.
    updates: BTreeSet<u64>,
    world: Arc<ElasticWorld>,
}

/// Runs processes until the server stops this node's part of the attempt.
pub async fn run(task: &mut Task, job_env: &JobEnv) -> Result<(), TaskAbort> {
    let order = Arc::clone(&task.order);
    let Some(host) = task.rendezvous.as_mut() else { return Err(TaskAbort::Stopped) };
    let gang = host.gang.clone();
    let mut requests: UnboundedReceiver<String> = host.elastic_requests();
    let slots = order.process_slots(false);
    let here: Vec<&ProcessSlot> = slots.iter().filter(|slot| slot.host_idx == order.host_idx).collect();
    let outputs = open_outputs(&slots, &here, job_env, task)?;
    let recorder = Recorder::new(&job_env.logs, &task.context.node);
    let _writer = recorder.start_writer(task.reporter.clone());
    let launch = RankLaunch::new(&order, job_env, &gang, &slots, &task.context);
    let mut own = ElasticProcesses::default();
    own.observed.rendezvous = Some(format!("{}:{}", gang.address, gang.rendezvous_port));
    task.reporter.elastic(own.observed.clone()).await;
    task.reporter.phase(TaskPhase::Running).await;
    let mut control = task.control.clone();
    loop {
        let (world, is_stopping) = {
            let now = control.borrow_and_update();
            (now.world.clone(), now.stop.is_some())
        };
        if let Some(world) = world {
            own.world = world;
        }
        let mut is_changed = false;
        if is_stopping {
            if own.running.is_empty() {
                break;
            }
        } else {
            for (process, slot) in own.to_start(task, &here) {
                is_changed = true;
                let output = ProcessOutput { mode: Mode::Lines, ..outputs[&slot.number].clone() };
                let output = with_prefix(output, order.prefix_output_with_rank, process);
                let mut command_and_env = launch.command_and_env(None, slot);
                let added = [("HOROVOD_ELASTIC", "1".to_owned()), ("CORRO_ELASTIC_PROCESS", process.to_string())];
                command_and_env.1.extend(added.map(|(name, value)| (name.to_owned(), value)));
                let numbered = numbered(slot, process);
                let tap = recorder.tap_process(&numbered, usize::MAX, order.hosts.len());
                match spawn_process(task, job_env, &numbered, command_and_env).await {
                    Ok(started) => own.add(process, slot_number(&here, slot), started, output, tap),
                    Err(error) => {
                        task.log.line(format_args!("Could not start process {process}: {}", error_chain::join(&error)));
                        own.observed.processes.push(ended_process(process, slot_number(&here, slot), false));
                    }
                }
            }
            own.kill_unwanted();
        }
        own.answer(task);
        if is_changed {
            task.reporter.elastic(own.observed.clone()).await;
        }
        tokio::select! {
            ended = own.running.next(&mut task.control), if !own.running.is_empty() => {
                let Some(ended) = ended else { continue };
                let process = ended.rank as u64;
                let slot = own.slot_of(process).and_then(|slot| here.get(slot)).map(|slot| numbered(slot, process));
                let Some(slot) = slot else { continue };
                let exit = own.end(task, &slot, ended).await;
                task.was_killed |= exit.signal == Some(SIGKILL) && !exit.stopped;
                task.reporter.exited(exit).await;
                task.reporter.elastic(own.observed.clone()).await;
            }
            Some(key) = requests.recv() => {
                if own.take_request(task, &key) {
                    task.reporter.elastic(own.observed.clone()).await;
                }
            }
            changed = control.changed() => {
                if changed.is_err() {
                    return Err(TaskAbort::Stopped);
                }
            }
        }
    }
    // A stop that was asked for before any process was started ends here too.
    wait_for_stop(&mut task.control, None).await;
    recorder.flush().await;
    let node = task.context.node.clone();
    let lost =
        outputs.values().find_map(|output| output.stdout.failure(&node).or_else(|| output.stderr.failure(&node)));
    match lost {
        Some(lost) => Err(lost.into()),
        None => Ok(()),
    }
}

impl ElasticProcesses {
    /// Processes of this node that the server wants and that were never started here, with their slots.
    fn to_start<'s>(&self, task: &Task, here: &[&'s ProcessSlot<'s>]) -> Vec<(u64, &'s ProcessSlot<'s>)> {
        let is_new = |process: u64| !self.observed.processes.iter().any(|known| known.process == process);
        let own = self.world.processes.iter().filter(|process| process.node == task.context.node);
        let new = own.filter(|process| is_new(process.process));
        new.filter_map(|process| Some((process.process, *here.get(process.slot)?))).collect()
    }

    fn add(
        &mut self,
        process: u64,
        slot: usize,
        started: corro_launch::process::Process,
        output: ProcessOutput,
        tap: Option<crate::output::curve_recorder::ProcessTap>,
    ) {
        self.stoppers.insert(process, started.stopper());
        self.running.add(process as usize, started, output, tap);
        self.observed.processes.push(ObservedProcess { process, slot, waits_after: None, succeeded: None });
    }

    fn kill_unwanted(&mut self) {
        for process in &self.world.killed {
            if let Some(stopper) = self.stoppers.get(process).filter(|_| self.killed.insert(*process)).cloned() {
                self.kills.spawn(async move { stopper.terminate(KILL_GRACE).await });
            }
        }
    }

    fn slot_of(&self, process: u64) -> Option<usize> {
        self.observed.processes.iter().find(|known| known.process == process).map(|known| known.slot)
    }

    /// Records the end of a process.
    async fn end(&mut self, task: &Task, slot: &ProcessSlot<'_>, ended: ProcessEnd) -> RankExit {
        let process = ended.rank as u64;
        self.stoppers.remove(&process);
        self.places.remove(&process);
        if let (Ok(exit), Some(member)) =
            (&ended.exit, self.world.members.iter().find(|member| member.process == process))
            && let Some(rendezvous) = self.world.rendezvous.clone()
        {
            // Others may still be connecting to it. In the background, since the rendezvous may be gone.
            let (generation, rank, host, exit) =
                (self.world.generation, member.rank, task.context.node.to_string(), *exit);
            tokio::spawn(async move {
                let _ = report_failed_generation(&rendezvous, generation, rank, &host, exit).await;
            });
        }
        let mut exit = exit_report(task, slot, ended).await;
        exit.stopped |= self.killed.contains(&process);
        for known in self.observed.processes.iter_mut().filter(|known| known.process == process) {
            (known.waits_after, known.succeeded) = (None, Some(exit.succeeded()));
        }
        exit
    }

    /// Notes what a process asks for; whether the server must hear of it.
    fn take_request(&mut self, task: &Task, key: &str) -> bool {
        let Some(request) = Request::parse(key) else { return false };
        match request {
            Request::Update { generation } => {
                if generation <= self.world.generation {
                    self.updates.insert(generation);
                }
                false
            }
            Request::Place { process, after } => {
                let Some(known) = self.observed.processes.iter_mut().find(|known| known.process == process) else {
                    return false;
                };
                let last = self.places.insert(process, after);
                if let (Some(last), Some(host)) = (last.filter(|last| *last != after), &task.rendezvous) {
                    host.rendezvous.set(ELASTIC_SCOPE, &place_key(process, last), None);
                }
                known.waits_after.replace(after) != Some(after)
            }
        }
    }

    /// Answers the requests that the server's decisions answer.
    fn answer(&self, task: &Task) {
        let Some(host) = &task.rendezvous else { return };
        for (process, after) in &self.places {
            let place = self.world.place(*process, *after).map(String::into_bytes);
            host.rendezvous.set(ELASTIC_SCOPE, &place_key(*process, *after), place);
        }
        for generation in &self.updates {
            let update = self.world.update.filter(|_| *generation == self.world.generation);
            let update = update.map(|update| update.to_string().into_bytes());
            host.rendezvous.set(ELASTIC_SCOPE, &format!("update.{generation}"), update);
        }
    }
}

/// A key of [`ELASTIC_SCOPE`].
#[derive(Debug, PartialEq, Eq)]
enum Request {
    Place { process: u64, after: u64 },
    Update { generation: u64 },
}

impl Request {
    fn parse(key: &str) -> Option<Request> {
        if let Some(generation) = key.strip_prefix("update.") {
            return Some(Request::Update { generation: generation.parse().ok()? });
        }
        let (process, after) = key.strip_prefix("place.")?.split_once('.')?;
        Some(Request::Place { process: process.parse().ok()?, after: after.parse().ok()? })
    }
}

fn place_key(process: u64, after: u64) -> String {
    format!("place.{process}.{after}")
}

/// The slot with the number of its present process, by which people know it.
fn numbered<'s>(slot: &ProcessSlot<'s>, process: u64) -> ProcessSlot<'s> {
    let number = usize::try_from(process).unwrap_or(usize::MAX);
    ProcessSlot { number, role: Role::Rank, index: number, ..slot.clone() }
}

fn slot_number(here: &[&ProcessSlot], slot: &ProcessSlot) -> usize {
    here.iter().position(|own| own.number == slot.number).unwrap_or_default()
}

fn ended_process(process: u64, slot: usize, succeeded: bool) -> ObservedProcess {
    ObservedProcess { process, slot, waits_after: None, succeeded: Some(succeeded) }
}

fn with_prefix(output: ProcessOutput, is_asked: bool, process: u64) -> ProcessOutput {
    ProcessOutput { line_prefix: is_asked.then(|| format!("[{process}] ")), ..output }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_from_keys() {
        for (key, expected) in [
            ("place.3.0", Some(Request::Place { process: 3, after: 0 })),
            ("update.2", Some(Request::Update { generation: 2 })),
            ("place.3", None),
            ("place.x.0", None),
            ("update.-1", None),
            ("other", None),
        ] {
            assert_eq!(Request::parse(key), expected, "{key}");
        }
    }
}
