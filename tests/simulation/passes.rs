//! The server's passes as `Reconciler::pass` makes them: full passes twice a second, incremental ones otherwise. A full pass as
//! oracle follows every incremental one and must find nothing overlooked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use corro_model::layout::{Layout, RankLogs, Ranks};
use corro_model::node::{DesiredNode, DesiredTask, GangHost, Goal, TaskOrder};
use corro_model::state::{NodeEvent, NodeState};
use corro_model::{AttemptId, JobKey, NodeId, Secret};
use corro_server::gateway::{ChangedNodes, NodeObservation};
use corro_server::reconcile::ReconcileConfig;
use corro_server::reconcile::dirty_tracking::{FollowUp, changed_jobs, follow_up_of};
use corro_server::reconcile::pass;
use corro_server::reconcile::pass_input::{GangMemory, PassInput, PassScope};
use corro_server::reconcile::publish::DesiredStateSink;
use corro_server::reconcile::steps::{Step, apply};
use corro_server::{NewNode, Provider, SchedulingConfig};
use corro_store::{NodeRecord, State, Timeline};

use super::server::{AgentConnection, Server};
use super::world::{Event, FAULT_PERIOD_MS, ServerMessage, World};

const FULL_PASS_INTERVAL_MS: u64 = 500;

/// Dead agents by the machine's file locks; unknown for nodes that joined by themselves.
pub struct SimProvider {
    dead: BTreeSet<NodeId>,
    joined: bool,
}

impl Provider for SimProvider {
    fn start(&self, _: &NewNode, _: Secret) {}
    fn is_alive(&self, node: &NodeId) -> Option<bool> {
        (!self.joined).then(|| !self.dead.contains(node))
    }
    fn ask_to_stop(&self, _: &NodeId) {}
    fn ensure_gone(&self, _: &NodeId, _: bool) -> bool {
        false
    }
}

/// Inputs that change without an event, as the last full pass saw them.
pub struct TimedInputs {
    clock: Timeline,
    uptime: Duration,
    provider: SimProvider,
}

impl World {
    pub fn pass(&mut self) {
        let (now, time, config) = (self.now, self.time(), self.config());
        let dead = self.agents.iter().filter(|(_, agent)| !agent.is_alive()).map(|(id, _)| id.clone()).collect();
        let provider = SimProvider { dead, joined: self.joined };
        let Some(server) = &mut self.server else { return };
        if server.next_pass.is_none_or(|planned| planned > now) {
            return;
        }
        server.next_pass = None;
        if now - server.last_pass > config.lease.as_millis() as u64 / 2 {
            server.started = now;
            server.connections.values_mut().for_each(|connection| connection.last_message = now);
        }
        server.last_pass = now;
        let full = server.dirty.needs_full_pass() || now - server.last_full_pass >= FULL_PASS_INTERVAL_MS;
        let changes = server.refresh(now, full);
        let before = self.disk.clone();
        let (gone, emptied) = (std::mem::take(&mut server.gone), BTreeSet::new());
        let (jobs, state_changed) = (server.dirty.changed_jobs(&before), server.dirty.has_changed(&before));
        let scope = match full {
            true => PassScope::Full,
            false => PassScope::Changed { nodes: &changes.nodes, jobs: &jobs, state: state_changed },
        };
        let uptime = Duration::from_millis(now - server.started);
        let timed = TimedInputs { clock: Timeline::starting(time), uptime, provider };
        let input = PassInput {
            state: &before,
            observations: &server.observations,
            clock: &timed.clock,
            uptime,
            gone: &gone,
            emptied: &emptied,
            config: &config,
            provider: &timed.provider,
        };
        let known_memory = server.memory.clone();
        let (steps, mut goals) = pass::decide_scoped(&input, scope, &mut server.memory);
        if !full {
            self.stats.incremental += 1;
            check_incremental_pass(&input, &steps, server.last_timed_inputs.as_ref(), &known_memory);
        }
        let left = follow_up_of(&steps, &before, &server.observations);
        server.removing.retain(|node| !gone.contains(node));
        if full {
            server.last_timed_inputs = Some(timed);
        }

        // The server dies before the commit, after it, or not at all; or the disk is full.
        let trouble = now < FAULT_PERIOD_MS;
        if trouble && self.rng.one_in(400) {
            return self.server_crashes();
        }
        let disk_full = trouble && !steps.is_empty() && self.rng.one_in(30);
        if !steps.is_empty() && !disk_full {
            let (after, ()) = self.disk.simulate(|txn| apply(txn, steps.clone(), time));
            self.commit(after);
            if self.disk.revision != before.revision {
                self.log(|| format!("committed {steps:?}"));
            }
        }
        if trouble && self.rng.one_in(400) {
            return self.server_crashes();
        }
        let jobs = changed_jobs(&before, &self.disk);
        let changed = PassScope::Changed { nodes: &BTreeSet::new(), jobs: &jobs, state: true };
        let server = self.server.as_mut().expect("it did not crash");
        goals.extend(pass::goals_scoped(
            &self.disk,
            changed,
            &server.observations,
            &Timeline::starting(time),
            &mut server.memory,
        ));
        let moved = state_changed || self.disk.revision != before.revision;
        self.publish(&changes, goals, full || moved);
        if full || moved || !changes.nodes.is_empty() {
            self.remove_leaving_nodes();
        }
        if full || moved {
            self.start_agents();
        }
        self.finish_pass(before, left, disk_full, full);
    }

    /// Records the follow-up work and schedules the next pass.
    fn finish_pass(&mut self, before: std::sync::Arc<State>, left: FollowUp, disk_full: bool, full: bool) {
        let (now, disk) = (self.now, self.disk.clone());
        let own_commit = before.revision != disk.revision;
        let Some(server) = &mut self.server else { return };
        server.dirty.finish_pass(before, disk, left, !disk_full);
        if disk_full {
            server.dirty.require_full_pass();
        }
        if full {
            server.last_full_pass = now;
        }
        // Own commits wake the loop, and so do changes that arrived meanwhile.
        let at_once = own_commit || server.dirty.needs_full_pass() || !server.changes.nodes.is_empty();
        let pause = if at_once { 1 } else { FULL_PASS_INTERVAL_MS.saturating_sub(now - server.last_full_pass) };
        self.schedule_pass(pause);
    }

    fn publish(&mut self, changes: &ChangedNodes, goals: Vec<(AttemptId, Goal)>, all: bool) {
        let (state, lease_ms) = (self.disk.clone(), self.joined.then(|| self.config().lease.as_millis() as u64));
        let server = self.server.as_mut().expect("it makes a pass");
        server.publisher.record_changes(changes, goals);
        let mut sink = MessageSink {
            state: &state,
            lease_ms,
            connections: &mut server.connections,
            changes: &mut server.changes,
            sent: vec![],
        };
        server.publisher.publish(&mut sink, &state, &server.observations, all);
        for (node, conn, order) in sink.sent {
            if let ServerMessage::Desired(_) = order {
                self.check_order(&node);
            }
            let delay = self.delivery_delay(&node);
            self.schedule(delay, Event::ToAgent(node, conn, order));
        }
    }

    /// A machine that joined by itself needs a part of its lease to end its work.
    fn config(&self) -> ReconcileConfig {
        let lease = Duration::from_secs(if self.joined { 6 } else { 3 });
        let scheduling = SchedulingConfig { preemption_grace: Duration::from_secs(2), ..SchedulingConfig::DEFAULT };
        let (shared_temp, strict_isolation, shared_disk_probe) = ("/tmp".into(), None, None);
        let masks_secrets = true;
        ReconcileConfig {
            lease,
            containers_on_host: true,
            strict_isolation,
            masks_secrets,
            shared_temp,
            shared_disk_probe,
            scheduling,
        }
    }
}

impl Server {
    /// Like `Gateway::refresh`.
    fn refresh(&mut self, now: u64, silence: bool) -> ChangedNodes {
        let changes = std::mem::take(&mut self.changes);
        let silent_for = |connection: &AgentConnection| Duration::from_millis(now - connection.last_message);
        for node in &changes.nodes {
            let observation = self.connections.get(node).map(|connection| NodeObservation {
                epoch: connection.epoch,
                connected: connection.connected,
                silent_for: silent_for(connection),
                observed: connection.observed.clone(),
                run_time: None,
            });
            match observation {
                Some(observation) => _ = self.observations.insert(node.clone(), observation),
                None => _ = self.observations.remove(node),
            }
        }
        if silence {
            for (node, observation) in &mut self.observations {
                if let Some(connection) = self.connections.get(node) {
                    observation.silent_for = silent_for(connection);
                }
            }
        }
        changes
    }
}

/// Every step of a full pass was also found by the incremental one, except those caused by time alone: they disappear when the
/// clock is set back to the last full pass.
fn check_incremental_pass(input: &PassInput, steps: &[Step], last: Option<&TimedInputs>, memory: &GangMemory) {
    let found: BTreeSet<String> = steps.iter().map(name).collect();
    let everything = |input: &PassInput| pass::decide_scoped(input, PassScope::Full, &mut memory.clone()).0;
    let missing: Vec<String> = everything(input).iter().map(name).filter(|step| !found.contains(step)).collect();
    if missing.is_empty() {
        return;
    }
    let Some(TimedInputs { clock, uptime, provider }) = last else { return };
    let still = everything(&PassInput { clock, uptime: *uptime, provider, ..*input });
    // An agent that dies before its first message causes no event.
    let unheard =
        |step: &Step| matches!(step, Step::Node(id, NodeEvent::Broken { .. }) if !input.observations.contains_key(id));
    let overlooked: Vec<_> = still.iter().filter(|step| missing.contains(&name(step)) && !unheard(step)).collect();
    assert!(overlooked.is_empty(), "an incremental pass found {steps:?} and overlooked {overlooked:?}");
}

/// A step without its time.
fn name(step: &Step) -> String {
    match step {
        Step::EndAttempt(job, event) => format!("{job} {}", event.name()),
        Step::Evict(job, evicted) => format!("{job} gives up its nodes: {}", evicted.reason.message),
        Step::Preempt(node, preemption) => format!("{node} is taken back: {:?}", preemption.cause),
        step => format!("{step:?}"),
    }
}

/// Sends orders to agents over their connections; an order equal to the last one on a connection is not repeated.
struct MessageSink<'a> {
    state: &'a State,
    lease_ms: Option<u64>,
    connections: &'a mut BTreeMap<NodeId, AgentConnection>,
    changes: &'a mut ChangedNodes,
    sent: Vec<(NodeId, u64, ServerMessage)>,
}

impl<'a> DesiredStateSink<'a> for MessageSink<'_> {
    fn fence(&mut self, id: &NodeId, epoch: u64, _: &str) {
        if let Some(connection) = self.connections.remove(id) {
            assert_eq!(connection.epoch, epoch, "nobody connected meanwhile");
            self.changes.nodes.insert(id.clone());
            self.sent.push((id.clone(), connection.conn, ServerMessage::Fenced));
        }
    }

    fn publish(&mut self, id: &NodeId, node: &'a NodeRecord, goal: Option<&Goal>) -> bool {
        let task = match (node.state(), goal) {
            (NodeState::Running { .. }, None) => return false,
            (NodeState::Running { job, attempt }, Some(goal)) => {
                Some(DesiredTask { goal: goal.clone(), order: order(attempt, hosts(self.state, job), id) })
            }
            _ => None,
        };
        let retire = *node.state() == NodeState::Leaving;
        let desired = DesiredNode { retire, task, lease_ms: self.lease_ms, ..DesiredNode::default() };
        if let Some(connection) = self.connections.get_mut(id)
            && connection.connected
            && connection.last_sent.as_ref() != Some(&desired)
        {
            connection.last_sent = Some(desired.clone());
            self.sent.push((id.clone(), connection.conn, ServerMessage::Desired(Box::new(desired))));
        }
        true
    }
}

fn hosts(state: &State, job: &JobKey) -> Vec<GangHost> {
    let nodes = state.jobs.get(job).map(|job| job.state().nodes().to_vec()).unwrap_or_default();
    let host = |node: NodeId| GangHost { node, address: "127.0.0.4".to_owned(), slots: 1 };
    nodes.into_iter().map(host).collect()
}

fn order(attempt: &AttemptId, hosts: Vec<GangHost>, node: &NodeId) -> TaskOrder {
    let host_idx = hosts.iter().position(|host| host.node == *node).expect("a busy node is one of the job's");
    TaskOrder {
        attempt: attempt.clone(),
        workspace: String::new(),
        experiment: String::new(),
        job: String::new(),
        segment: String::new(),
        hosts: hosts.into(),
        host_idx,
        layout: Layout::Ranks(Ranks {
            command: String::new(),
            logs: RankLogs::Together,
            indexed: false,
            backend: None,
        }),
        preparation: None,
        volumes: Vec::new(),
        std_out_err_path_prefix: String::new(),
        input_directories: Vec::new(),
        output_directories: Vec::new(),
        environment: Vec::new(),
        secrets: Vec::new(),
        shared_temp: Some("/tmp".into()),
        container: None,
        containers_on_host: true,
        strict_isolation: false,
        shows_secrets: false,
        limits: None,
        counters: false,
        gpus: 0,
        gang_secret: Secret::new(""),
        lost_attempts: Vec::new(),
        working_directory: None,
        prefix_output_with_rank: false,
        elastic: false,
        python_environment: None,
    }
}
