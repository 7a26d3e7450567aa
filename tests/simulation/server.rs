//! The server: real decisions and transactions around a modelled memory. What it only remembers is lost with it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use corro_model::node::{DesiredNode, DesiredTask, GangHost, ObservedNode, TaskOrder};
use corro_model::state::NodeState;
use corro_model::{NodeId, Secret};
use corro_server::Provider;
use corro_server::gateway::{Sighting, is_living, take_place};
use corro_server::reconcile::ReconcileConfig;
use corro_server::reconcile::round::{self, Addresses, Scene};
use corro_store::seal::digest;

use super::body::Body;
use super::world::{Event, Order, World};

const LEASE: Duration = Duration::from_secs(3);
const TICK: u64 = 500;

#[derive(Default)]
pub struct Server {
    started: u64,
    last_pass: u64,
    /// When the next look is planned, so that news does not plan a second.
    next_pass: Option<u64>,
    links: BTreeMap<NodeId, Link>,
    addresses: Addresses,
    gone: BTreeSet<NodeId>,
    clearing: BTreeSet<NodeId>,
    agent_starts: BTreeMap<NodeId, u64>,
}

struct Link {
    epoch: u64,
    wire: u64,
    heard: u64,
    connected: bool,
    observed: ObservedNode,
    told: Option<DesiredNode>,
}

/// Which agents live, as the machine's locks tell.
struct Census(BTreeSet<NodeId>);

impl Provider for Census {
    fn start(&self, _: &NodeId, _: &str, _: Secret) {}
    fn is_alive(&self, node: &NodeId) -> Option<bool> {
        Some(self.0.contains(node))
    }
    fn ask_to_stop(&self, _: &NodeId) {}
    fn ensure_gone(&self, _: &NodeId, _: bool) -> bool {
        false
    }
}

impl World {
    pub fn server_starts(&mut self) {
        if self.server.is_none() {
            self.say(|| "the server starts".to_owned());
            let (started, last_pass) = (self.now, self.now);
            self.server = Some(Server { started, last_pass, ..Server::default() });
            self.look_soon(1);
        }
    }

    pub fn server_crashes(&mut self) {
        let Some(server) = self.server.take() else { return };
        self.say(|| "the server is killed".to_owned());
        self.tally.crashes += 1;
        for (node, link) in server.links {
            let delay = self.dice.between(0, 500);
            self.after(delay, Event::AgentNotices(node, link.wire));
        }
        let down = self.dice.between(50, 3_000);
        self.after(down, Event::ServerStarts);
    }

    /// Something changed: look at it soon, unless that is planned already.
    pub fn look_soon(&mut self, within: u64) {
        let Some(server) = &mut self.server else { return };
        let at = self.now + within;
        if server.next_pass.is_none_or(|planned| planned > at) {
            server.next_pass = Some(at);
            self.after(within, Event::Pass);
        }
    }

    pub fn pass(&mut self) {
        let (now, time) = (self.now, self.time());
        let Some(server) = &mut self.server else { return };
        if server.next_pass.is_none_or(|planned| planned > now) {
            return;
        }
        server.next_pass = None;
        let lease = LEASE.as_millis() as u64;
        if now - server.last_pass > lease / 2 {
            server.started = now;
            server.links.values_mut().for_each(|link| link.heard = now);
        }
        server.last_pass = now;
        let sightings = sightings(server, now);
        let (gone, emptied) = (std::mem::take(&mut server.gone), BTreeSet::new());
        let uptime = Duration::from_millis(now - server.started);
        let config = config();
        let census = Census(self.bodies.iter().filter(|(_, body)| body.lives()).map(|(id, _)| id.clone()).collect());
        let scene = Scene {
            state: &self.disk,
            sightings: &sightings,
            now: time,
            uptime,
            gone: &gone,
            emptied: &emptied,
            config: &config,
            provider: &census,
        };
        let steps = round::decide(&scene, &mut server.addresses);
        server.clearing.retain(|node| !gone.contains(node));

        // Death comes before the commit, after it, or not at all; or the disk is full.
        let trouble = now < super::world::TROUBLE;
        if trouble && self.dice.once_in(200) {
            return self.server_crashes();
        }
        let full = trouble && self.dice.once_in(50);
        if !steps.is_empty() && !full {
            let words = format!("{steps:?}");
            let (after, ()) = self.disk.after(|txn| round::apply(txn, steps, time));
            let revision = self.disk.revision;
            self.commit(after);
            if self.disk.revision != revision {
                self.say(|| format!("committed {words}"));
            }
        }
        if trouble && self.dice.once_in(200) {
            return self.server_crashes();
        }
        self.tell_everybody();
        self.clear_away();
        self.start_agents();
        self.look_soon(TICK);
    }

    fn tell_everybody(&mut self) {
        let (now, time) = (self.now, self.time());
        let Some(server) = &mut self.server else { return };
        let sightings = sightings(server, now);
        let goals = round::goals(&self.disk, &sightings, time, &mut server.addresses);
        let mut orders = Vec::new();
        for (id, sighting) in &sightings {
            let living = self.disk.nodes.get(id).filter(|record| record.epoch == sighting.epoch);
            let Some(record) = living else {
                if let Some(link) = server.links.remove(id) {
                    orders.push((id.clone(), link.wire, Order::Fenced));
                }
                continue;
            };
            let task = match record.state() {
                NodeState::Running { job, attempt } => {
                    let Some(goal) = goals.get(attempt) else { continue };
                    let hosts = hosts(&self.disk, job);
                    let order = order(attempt.clone(), hosts, id);
                    Some(DesiredTask { goal: goal.clone(), order })
                }
                _ => None,
            };
            let retire = *record.state() == NodeState::Leaving;
            let desired = DesiredNode { retire, task, ..DesiredNode::default() };
            let link = server.links.get_mut(id).expect("it was sighted");
            if link.connected && link.told.as_ref() != Some(&desired) {
                link.told = Some(desired.clone());
                orders.push((id.clone(), link.wire, Order::Desired(Box::new(desired))));
            }
        }
        for (node, wire, order) in orders {
            if let Order::Desired(_) = order {
                self.check_order(&node);
            }
            let delay = self.on_the_wire(&node);
            self.after(delay, Event::ToAgent(node, wire, order));
        }
    }

    fn clear_away(&mut self) {
        let time = self.time();
        let Some(server) = &mut self.server else { return };
        let sightings = sightings(server, self.now);
        let leaving = round::leaving(&self.disk, &sightings, time).map(|(id, polite)| (id.clone(), polite));
        let new: Vec<_> = leaving.filter(|(id, _)| server.clearing.insert(id.clone())).collect();
        for (node, polite) in new {
            let delay = self.dice.between(1, 100);
            self.after(delay, Event::EnsureGone(node, polite));
        }
    }

    /// Agents for nodes that wait for one; one that died before it joined is started again.
    fn start_agents(&mut self) {
        let now = self.now;
        let Some(server) = &mut self.server else { return };
        let waiting = self.disk.nodes.iter().filter(|(_, node)| *node.state() == NodeState::Allocating);
        let dead = waiting.map(|(id, _)| id).filter(|id| !self.bodies.get(id).is_some_and(Body::lives));
        let due: Vec<NodeId> =
            dead.filter(|id| server.agent_starts.get(id).is_none_or(|at| now - at > 1_000)).cloned().collect();
        server.agent_starts.extend(due.iter().map(|node| (node.clone(), now)));
        for node in due {
            self.bodies.insert(node.clone(), Body::new());
            let delay = self.dice.between(5, 800);
            self.after(delay, Event::Join(node));
        }
    }

    /// A join: the token is spent with the commit; the answer may be lost.
    pub fn join(&mut self, node: &NodeId) {
        if self.server.is_none() {
            return self.after(200, Event::Join(node.clone()));
        }
        if !self.bodies.get(node).is_some_and(|body| body.lives() && body.credential.is_none()) {
            return;
        }
        let (secret, time) = (format!("secret of {node}"), self.time());
        let (after, joined) = self.disk.after(|txn| take_place(txn, Some(node.clone()), digest(&secret), time));
        let Ok(Some((_, epoch))) = joined else { return self.agent_ends(node) };
        self.commit(after);
        if self.dice.once_in(30) {
            // The token is spent and the answer never came: this agent can become nobody.
            return self.agent_ends(node);
        }
        self.body_joins(node, epoch, secret);
        self.look_soon(5);
    }

    pub fn connect(&mut self, node: &NodeId, life: u64) {
        let Some(body) = self.bodies.get(node).filter(|body| body.is(life) && body.wire.is_none()) else { return };
        if body.cut_off || self.server.is_none() {
            let later = self.dice.between(100, 700);
            return self.after(later, Event::Connect(node.clone(), life));
        }
        let credential = body.credential.clone().expect("it has joined");
        if !is_living(&self.disk, &credential) {
            return self.body_fenced(node);
        }
        let (wire, now) = (self.new_wire(node), self.now);
        let server = self.server.as_mut().expect("checked above");
        let link = Link {
            epoch: credential.epoch,
            wire,
            heard: now,
            connected: true,
            observed: ObservedNode::default(),
            told: None,
        };
        server.links.insert(node.clone(), link);
        self.body_connected(node, wire);
        self.look_soon(5);
    }

    pub fn server_hears(&mut self, node: &NodeId, wire: u64, observed: Option<Box<ObservedNode>>) {
        let now = self.now;
        let cut = self.bodies.get(node).is_some_and(|body| body.cut_off);
        let Some(link) = self.server.as_mut().and_then(|server| server.links.get_mut(node)) else { return };
        if link.wire != wire || !link.connected || cut {
            return;
        }
        link.heard = now;
        if let Some(observed) = observed.filter(|observed| link.observed != **observed) {
            link.observed = *observed;
            self.look_soon(5);
        }
    }

    pub fn server_notices(&mut self, node: &NodeId, wire: u64) {
        let Some(link) = self.server.as_mut().and_then(|server| server.links.get_mut(node)) else { return };
        if link.wire == wire {
            link.connected = false;
            self.look_soon(5);
        }
    }

    /// What the provider does for a leaving node, repeated until it holds.
    pub fn ensure_gone(&mut self, node: &NodeId, polite: bool) {
        let lives = self.bodies.get(node).is_some_and(Body::lives);
        if lives {
            if !polite {
                self.agent_ends(node);
            }
        } else {
            self.sweep(node);
            self.bodies.remove(node);
        }
        let Some(server) = &mut self.server else { return };
        server.clearing.remove(node);
        if !lives {
            server.gone.insert(node.clone());
        }
        self.look_soon(20);
    }
}

fn sightings(server: &Server, now: u64) -> BTreeMap<NodeId, Sighting> {
    let sighting = |link: &Link| Sighting {
        epoch: link.epoch,
        connected: link.connected,
        silent_for: Duration::from_millis(now - link.heard),
        observed: link.observed.clone(),
    };
    server.links.iter().map(|(id, link)| (id.clone(), sighting(link))).collect()
}

fn config() -> ReconcileConfig {
    ReconcileConfig { lease: LEASE, containers_on_host: true, shared_temp: "/tmp".into() }
}

fn hosts(disk: &corro_store::State, job: &corro_model::JobKey) -> Vec<GangHost> {
    let nodes = disk.jobs.get(job).map(|job| job.state().nodes().to_vec()).unwrap_or_default();
    let host = |node: NodeId| GangHost { node, address: "127.0.0.4".to_owned(), slots: 1 };
    nodes.into_iter().map(host).collect()
}

fn order(attempt: corro_model::AttemptId, hosts: Vec<GangHost>, node: &NodeId) -> TaskOrder {
    let host_idx = hosts.iter().position(|host| host.node == *node).expect("a busy node is one of the job's");
    TaskOrder {
        attempt,
        workspace: String::new(),
        experiment: String::new(),
        job: String::new(),
        segment: String::new(),
        hosts: hosts.into(),
        host_idx,
        command: String::new(),
        ranked: true,
        preparation: None,
        volumes: Vec::new(),
        std_out_err_path_prefix: String::new(),
        input_directories: Vec::new(),
        output_directories: Vec::new(),
        environment: Vec::new(),
        secrets: Vec::new(),
        shared_temp: "/tmp".into(),
        container: None,
        containers_on_host: true,
        gpus: 0,
        gang_secret: Secret::new(""),
    }
}
