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
use corro_server::reconcile::pass_input::{GangAddresses, PassInput, PassScope};
use corro_server::reconcile::publish::DesiredStateSink;
use corro_server::reconcile::steps::{Step, apply};
use corro_server::{NewNode, Provider, SchedulingConfig};
use corro_store::{NodeRecord, State, Timeline};

use super::server::{Link, Server};
use super::world::{Event, Order, TROUBLE, World};

const TICK: u64 = 500;

/// Dead agents by the machine's file locks; unknown for nodes that joined by themselves.
pub struct Census {
    dead: BTreeSet<NodeId>,
    joined: bool,
}

impl Provider for Census {
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
pub struct Look {
    clock: Timeline,
    uptime: Duration,
    census: Census,
}

impl World {
    pub fn pass(&mut self) {
        let (now, time, config) = (self.now, self.time(), self.config());
        let dead = self.bodies.iter().filter(|(_, body)| !body.lives()).map(|(id, _)| id.clone()).collect();
        let census = Census { dead, joined: self.joined };
        let Some(server) = &mut self.server else { return };
        if server.next_pass.is_none_or(|planned| planned > now) {
            return;
        }
        server.next_pass = None;
        if now - server.last_pass > config.lease.as_millis() as u64 / 2 {
            server.started = now;
            server.links.values_mut().for_each(|link| link.heard = now);
        }
        server.last_pass = now;
        let whole = server.dirty.needs_full_pass() || now - server.last_whole >= TICK;
        let news = server.refresh(now, whole);
        let before = self.disk.clone();
        let (gone, emptied) = (std::mem::take(&mut server.gone), BTreeSet::new());
        let (jobs, state_changed) = (server.dirty.changed_jobs(&before), server.dirty.has_changed(&before));
        let scope = match whole {
            true => PassScope::Full,
            false => PassScope::Changed { nodes: &news.nodes, jobs: &jobs, state: state_changed },
        };
        let uptime = Duration::from_millis(now - server.started);
        let look = Look { clock: Timeline::starting(time), uptime, census };
        let input = PassInput {
            state: &before,
            observations: &server.observations,
            clock: &look.clock,
            uptime,
            gone: &gone,
            emptied: &emptied,
            config: &config,
            provider: &look.census,
        };
        let known_addresses = server.addresses.clone();
        let (steps, mut goals) = pass::decide_scoped(&input, scope, &mut server.addresses);
        if !whole {
            self.tally.narrow += 1;
            check_nothing_is_overlooked(&input, &steps, server.last_look.as_ref(), &known_addresses);
        }
        let left = follow_up_of(&steps, &before, &server.observations);
        server.clearing.retain(|node| !gone.contains(node));
        if whole {
            server.last_look = Some(look);
        }

        // The server dies before the commit, after it, or not at all; or the disk is full.
        let trouble = now < TROUBLE;
        if trouble && self.rng.one_in(400) {
            return self.server_crashes();
        }
        let full = trouble && !steps.is_empty() && self.rng.one_in(30);
        if !steps.is_empty() && !full {
            let (after, ()) = self.disk.simulate(|txn| apply(txn, steps.clone(), time));
            self.commit(after);
            if self.disk.revision != before.revision {
                self.say(|| format!("committed {steps:?}"));
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
            &mut server.addresses,
        ));
        let moved = state_changed || self.disk.revision != before.revision;
        self.tell(&news, goals, whole || moved);
        if whole || moved || !news.nodes.is_empty() {
            self.clear_away();
        }
        if whole || moved {
            self.start_agents();
        }
        self.turn(before, left, full, whole);
    }

    /// Records the follow-up work and schedules the next pass.
    fn turn(&mut self, before: std::sync::Arc<State>, left: FollowUp, full: bool, whole: bool) {
        let (now, disk) = (self.now, self.disk.clone());
        let own_commit = before.revision != disk.revision;
        let Some(server) = &mut self.server else { return };
        server.dirty.finish_pass(before, disk, left, !full);
        if full {
            server.dirty.require_full_pass();
        }
        if whole {
            server.last_whole = now;
        }
        // Own commits wake the loop, and so do changes that arrived meanwhile.
        let at_once = own_commit || server.dirty.needs_full_pass() || !server.news.nodes.is_empty();
        let pause = if at_once { 1 } else { TICK.saturating_sub(now - server.last_whole) };
        self.look_soon(pause);
    }

    fn tell(&mut self, news: &ChangedNodes, goals: Vec<(AttemptId, Goal)>, all: bool) {
        let (state, lease_ms) = (self.disk.clone(), self.joined.then(|| self.config().lease.as_millis() as u64));
        let server = self.server.as_mut().expect("it makes a pass");
        server.publisher.record_changes(news, goals);
        let mut mouth =
            Mouth { state: &state, lease_ms, links: &mut server.links, news: &mut server.news, said: vec![] };
        server.publisher.publish(&mut mouth, &state, &server.observations, all);
        for (node, wire, order) in mouth.said {
            if let Order::Desired(_) = order {
                self.check_order(&node);
            }
            let delay = self.on_the_wire(&node);
            self.after(delay, Event::ToAgent(node, wire, order));
        }
    }

    /// A machine that joined by itself needs a part of its lease to end its work.
    fn config(&self) -> ReconcileConfig {
        let lease = Duration::from_secs(if self.joined { 6 } else { 3 });
        let scheduling = SchedulingConfig { preemption_grace: Duration::from_secs(2), ..SchedulingConfig::DEFAULT };
        let (shared_temp, strict_isolation, landmark) = ("/tmp".into(), None, None);
        let masks_secrets = true;
        ReconcileConfig {
            lease,
            containers_on_host: true,
            strict_isolation,
            masks_secrets,
            shared_temp,
            landmark,
            scheduling,
        }
    }
}

impl Server {
    /// Like `Gateway::refresh`.
    fn refresh(&mut self, now: u64, silence: bool) -> ChangedNodes {
        let news = std::mem::take(&mut self.news);
        let silent_for = |link: &Link| Duration::from_millis(now - link.heard);
        for node in &news.nodes {
            let observation = self.links.get(node).map(|link| NodeObservation {
                epoch: link.epoch,
                connected: link.connected,
                silent_for: silent_for(link),
                observed: link.observed.clone(),
                run_time: None,
            });
            match observation {
                Some(observation) => _ = self.observations.insert(node.clone(), observation),
                None => _ = self.observations.remove(node),
            }
        }
        if silence {
            for (node, observation) in &mut self.observations {
                if let Some(link) = self.links.get(node) {
                    observation.silent_for = silent_for(link);
                }
            }
        }
        news
    }
}

/// Every step of a full pass was also found by the incremental one, except those caused by time alone: they disappear when the
/// clock is set back to the last full pass.
fn check_nothing_is_overlooked(input: &PassInput, steps: &[Step], last: Option<&Look>, addresses: &GangAddresses) {
    let found: BTreeSet<String> = steps.iter().map(name).collect();
    let everything = |input: &PassInput| pass::decide_scoped(input, PassScope::Full, &mut addresses.clone()).0;
    let missing: Vec<String> = everything(input).iter().map(name).filter(|step| !found.contains(step)).collect();
    if missing.is_empty() {
        return;
    }
    let Some(Look { clock, uptime, census }) = last else { return };
    let still = everything(&PassInput { clock, uptime: *uptime, provider: census, ..*input });
    // An agent that dies before its first message causes no event.
    let unheard =
        |step: &Step| matches!(step, Step::Node(id, NodeEvent::Broken { .. }) if !input.observations.contains_key(id));
    let overlooked: Vec<_> = still.iter().filter(|step| missing.contains(&name(step)) && !unheard(step)).collect();
    assert!(overlooked.is_empty(), "a narrow pass found {steps:?} and overlooked {overlooked:?}");
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
struct Mouth<'a> {
    state: &'a State,
    lease_ms: Option<u64>,
    links: &'a mut BTreeMap<NodeId, Link>,
    news: &'a mut ChangedNodes,
    said: Vec<(NodeId, u64, Order)>,
}

impl<'a> DesiredStateSink<'a> for Mouth<'_> {
    fn fence(&mut self, id: &NodeId, epoch: u64, _: &str) {
        if let Some(link) = self.links.remove(id) {
            assert_eq!(link.epoch, epoch, "nobody connected meanwhile");
            self.news.nodes.insert(id.clone());
            self.said.push((id.clone(), link.wire, Order::Fenced));
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
        if let Some(link) = self.links.get_mut(id)
            && link.connected
            && link.told.as_ref() != Some(&desired)
        {
            link.told = Some(desired.clone());
            self.said.push((id.clone(), link.wire, Order::Desired(Box::new(desired))));
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
    }
}
