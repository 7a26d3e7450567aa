//! Simulated server: real decisions and transactions around modelled memory, which is lost when it is killed.

use std::collections::{BTreeMap, BTreeSet};

use corro_model::node::{DesiredNode, ObservedNode};
use corro_model::state::NodeState;
use corro_model::{AttemptId, NodeId};
use corro_server::gateway::{ChangedNodes, NodeObservation, assign_node, is_valid_credential};
use corro_server::reconcile::dirty_tracking::DirtyTracker;
use corro_server::reconcile::nodes::leaving_nodes;
use corro_server::reconcile::pass_input::GangAddresses;
use corro_server::reconcile::publish::DesiredStatePublisher;
use corro_store::Timeline;
use corro_store::encryption::digest;

use super::body::Body;
use super::passes::Look;
use super::world::{Event, World};

pub struct Server {
    pub started: u64,
    pub last_pass: u64,
    pub last_whole: u64,
    /// Time of the next scheduled pass, so that changes do not schedule a second one.
    pub next_pass: Option<u64>,
    pub links: BTreeMap<NodeId, Link>,
    /// Changed nodes since the last pass, and the last observation of all.
    pub news: ChangedNodes,
    pub observations: BTreeMap<NodeId, NodeObservation>,
    pub dirty: DirtyTracker,
    pub publisher: DesiredStatePublisher,
    pub addresses: GangAddresses,
    /// Attempts with a rank that reported success.
    pub heard_done: BTreeSet<AttemptId>,
    pub gone: BTreeSet<NodeId>,
    pub clearing: BTreeSet<NodeId>,
    agent_starts: BTreeMap<NodeId, u64>,
    /// Time and live agents as the last full pass saw them.
    pub last_look: Option<Look>,
}

pub struct Link {
    pub epoch: u64,
    pub wire: u64,
    pub heard: u64,
    pub connected: bool,
    pub observed: ObservedNode,
    pub told: Option<DesiredNode>,
}

impl World {
    pub fn server_starts(&mut self) {
        if self.server.is_none() {
            self.say(|| "the server starts".to_owned());
            let now = self.now;
            self.server = Some(Server {
                started: now,
                last_pass: now,
                last_whole: now,
                next_pass: None,
                links: BTreeMap::new(),
                news: ChangedNodes::default(),
                observations: BTreeMap::new(),
                dirty: DirtyTracker::new(self.disk.clone()),
                publisher: DesiredStatePublisher::default(),
                addresses: GangAddresses::new(),
                heard_done: BTreeSet::new(),
                gone: BTreeSet::new(),
                clearing: BTreeSet::new(),
                agent_starts: BTreeMap::new(),
                last_look: None,
            });
            self.look_soon(1);
        }
    }

    pub fn server_crashes(&mut self) {
        let Some(server) = self.server.take() else { return };
        self.say(|| "the server is killed".to_owned());
        self.tally.crashes += 1;
        for (node, link) in server.links {
            let delay = self.rng.between(0, 500);
            self.after(delay, Event::AgentNotices(node, link.wire));
        }
        let down = self.rng.between(50, 3_000);
        self.after(down, Event::ServerStarts);
    }

    /// Schedules a pass soon after a change, unless one is already scheduled.
    pub fn look_soon(&mut self, within: u64) {
        let Some(server) = &mut self.server else { return };
        let at = self.now + within;
        if server.next_pass.is_none_or(|planned| planned > at) {
            server.next_pass = Some(at);
            self.after(within, Event::Pass);
        }
    }

    pub fn clear_away(&mut self) {
        let clock = Timeline::starting(self.time());
        let Some(server) = &mut self.server else { return };
        let leaving = leaving_nodes(&self.disk, &server.observations, &clock).map(|(id, polite)| (id.clone(), polite));
        let new: Vec<_> = leaving.filter(|(id, _)| server.clearing.insert(id.clone())).collect();
        for (node, polite) in new {
            let delay = self.rng.between(1, 100);
            self.after(delay, Event::EnsureGone(node, polite));
        }
    }

    /// Starts agents for nodes that wait for one; one that died before it joined is restarted.
    pub fn start_agents(&mut self) {
        let now = self.now;
        let Some(server) = &mut self.server else { return };
        let waiting = self.disk.nodes.iter().filter(|(_, node)| *node.state() == NodeState::Allocating);
        let dead = waiting.map(|(id, _)| id).filter(|id| !self.bodies.get(id).is_some_and(Body::lives));
        let due: Vec<NodeId> =
            dead.filter(|id| server.agent_starts.get(id).is_none_or(|at| now - at > 1_000)).cloned().collect();
        server.agent_starts.extend(due.iter().map(|node| (node.clone(), now)));
        for node in due {
            self.bodies.insert(node.clone(), Body::new());
            let delay = self.rng.between(5, 800);
            self.after(delay, Event::Join(node));
        }
    }

    /// A join: the token is spent with the commit; the response may be lost.
    pub fn join(&mut self, node: &NodeId) {
        if self.server.is_none() {
            return self.after(200, Event::Join(node.clone()));
        }
        if !self.bodies.get(node).is_some_and(|body| body.lives() && body.credential.is_none()) {
            return;
        }
        let (secret, time) = (format!("secret of {node}"), self.time());
        let (after, joined) = self.disk.simulate(|txn| assign_node(txn, Some(node.clone()), digest(&secret), time));
        let Ok(Some((_, epoch))) = joined else { return self.agent_ends(node) };
        self.commit(after);
        if self.rng.one_in(30) {
            // The token is spent and the response was lost: this agent cannot join any more.
            return self.agent_ends(node);
        }
        self.body_joins(node, epoch, secret);
        self.look_soon(5);
    }

    pub fn connect(&mut self, node: &NodeId, life: u64) {
        let Some(body) = self.bodies.get(node).filter(|body| body.is(life) && body.wire.is_none()) else { return };
        if body.cut_off || self.server.is_none() {
            let later = self.rng.between(100, 700);
            self.after(later, Event::Connect(node.clone(), life));
            let body = self.bodies.get_mut(node).expect("just seen");
            if !body.cut_off {
                // Its machine refuses the connection because no server runs there: that does not count as silence.
                body.reached = self.now;
            }
            return;
        }
        let credential = body.credential.clone().expect("it has joined");
        if !is_valid_credential(&self.disk, &credential) {
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
        server.news.nodes.insert(node.clone());
        server.news.reconnected.insert(node.clone());
        self.laws.connected(node, life);
        self.body_connected(node, wire);
        self.look_soon(5);
    }

    pub fn server_hears(&mut self, node: &NodeId, wire: u64, observed: ObservedNode) {
        let Some(link) = self.hearing(node, wire).filter(|link| link.observed != observed) else { return };
        let done =
            observed.task.as_ref().filter(|task| task.exits.iter().any(|exit| exit.succeeded() && !exit.stopped));
        let attempt = done.map(|task| task.attempt.clone());
        link.observed = observed;
        self.server.as_mut().expect("it hears").heard_done.extend(attempt);
        self.news_of(node);
    }

    pub fn server_hears_beat(&mut self, node: &NodeId, wire: u64, sent: u64) {
        if self.hearing(node, wire).is_some() && self.joined {
            let delay = self.on_the_wire(node);
            self.after(delay, Event::Answer(node.clone(), wire, sent));
        }
    }

    /// The connection over which a message has just arrived.
    fn hearing(&mut self, node: &NodeId, wire: u64) -> Option<&mut Link> {
        let (now, cut) = (self.now, self.bodies.get(node).is_some_and(|body| body.cut_off));
        let link = self.server.as_mut().and_then(|server| server.links.get_mut(node))?;
        let link = Some(link).filter(|link| link.wire == wire && link.connected && !cut)?;
        link.heard = now;
        Some(link)
    }

    fn news_of(&mut self, node: &NodeId) {
        if let Some(server) = &mut self.server {
            server.news.nodes.insert(node.clone());
        }
        self.look_soon(5);
    }

    pub fn server_notices(&mut self, node: &NodeId, wire: u64) {
        let Some(link) = self.server.as_mut().and_then(|server| server.links.get_mut(node)) else { return };
        if link.wire == wire {
            link.connected = false;
            self.news_of(node);
        }
    }

    /// The provider's action for a leaving node, repeated until it succeeds.
    pub fn ensure_gone(&mut self, node: &NodeId, polite: bool) {
        let lives = self.bodies.get(node).is_some_and(Body::lives);
        // A machine that joined by itself is out of reach: it counts as gone when it need not be waited for.
        let gone = if self.joined { !polite } else { !lives };
        if !self.joined && lives && !polite {
            self.agent_ends(node);
        } else if !self.joined && !lives {
            self.sweep(node);
            self.bodies.remove(node);
        }
        let Some(server) = &mut self.server else { return };
        server.clearing.remove(node);
        if gone {
            server.gone.insert(node.clone());
        }
        self.look_soon(20);
    }
}
