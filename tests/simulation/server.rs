//! Simulated server: real decisions and transactions around modelled memory, which is lost when it is killed.

use std::collections::{BTreeMap, BTreeSet};

use corro_model::node::{DesiredNode, ObservedNode};
use corro_model::state::NodeState;
use corro_model::{AttemptId, NodeId};
use corro_server::gateway::{ChangedNodes, NodeObservation, assign_node, is_valid_credential};
use corro_server::reconcile::dirty_tracking::DirtyTracker;
use corro_server::reconcile::nodes::leaving_nodes;
use corro_server::reconcile::pass_input::GangMemory;
use corro_server::reconcile::publish::DesiredStatePublisher;
use corro_store::Timeline;
use corro_store::encryption::digest;

use super::agent::SimAgent;
use super::passes::TimedInputs;
use super::world::{Event, World};

pub struct Server {
    pub started: u64,
    pub last_pass: u64,
    pub last_full_pass: u64,
    /// Time of the next scheduled pass, so that changes do not schedule a second one.
    pub next_pass: Option<u64>,
    pub connections: BTreeMap<NodeId, AgentConnection>,
    /// Changed nodes since the last pass, and the last observation of all.
    pub changes: ChangedNodes,
    pub observations: BTreeMap<NodeId, NodeObservation>,
    pub dirty: DirtyTracker,
    pub publisher: DesiredStatePublisher,
    pub memory: GangMemory,
    /// Attempts with a rank that reported success.
    pub reported_done: BTreeSet<AttemptId>,
    pub gone: BTreeSet<NodeId>,
    pub removing: BTreeSet<NodeId>,
    agent_starts: BTreeMap<NodeId, u64>,
    /// Time and live agents as the last full pass saw them.
    pub last_timed_inputs: Option<TimedInputs>,
}

pub struct AgentConnection {
    pub epoch: u64,
    pub conn: u64,
    pub last_message: u64,
    pub connected: bool,
    pub observed: ObservedNode,
    pub last_sent: Option<DesiredNode>,
}

impl World {
    pub fn server_starts(&mut self) {
        if self.server.is_none() {
            self.log(|| "the server starts".to_owned());
            let now = self.now;
            self.server = Some(Server {
                started: now,
                last_pass: now,
                last_full_pass: now,
                next_pass: None,
                connections: BTreeMap::new(),
                changes: ChangedNodes::default(),
                observations: BTreeMap::new(),
                dirty: DirtyTracker::new(self.disk.clone()),
                publisher: DesiredStatePublisher::default(),
                memory: GangMemory::default(),
                reported_done: BTreeSet::new(),
                gone: BTreeSet::new(),
                removing: BTreeSet::new(),
                agent_starts: BTreeMap::new(),
                last_timed_inputs: None,
            });
            self.schedule_pass(1);
        }
    }

    pub fn server_crashes(&mut self) {
        let Some(server) = self.server.take() else { return };
        self.log(|| "the server is killed".to_owned());
        self.stats.crashes += 1;
        for (node, connection) in server.connections {
            let delay = self.rng.between(0, 500);
            self.schedule(delay, Event::AgentDetectsCut(node, connection.conn));
        }
        let down = self.rng.between(50, 3_000);
        self.schedule(down, Event::ServerStarts);
    }

    /// Schedules a pass soon after a change, unless one is already scheduled.
    pub fn schedule_pass(&mut self, within: u64) {
        let Some(server) = &mut self.server else { return };
        let at = self.now + within;
        if server.next_pass.is_none_or(|planned| planned > at) {
            server.next_pass = Some(at);
            self.schedule(within, Event::Pass);
        }
    }

    pub fn remove_leaving_nodes(&mut self) {
        let clock = Timeline::starting(self.time());
        let Some(server) = &mut self.server else { return };
        let leaving = leaving_nodes(&self.disk, &server.observations, &clock).map(|(id, polite)| (id.clone(), polite));
        let new: Vec<_> = leaving.filter(|(id, _)| server.removing.insert(id.clone())).collect();
        for (node, polite) in new {
            let delay = self.rng.between(1, 100);
            self.schedule(delay, Event::EnsureGone(node, polite));
        }
    }

    /// Starts agents for nodes that wait for one; one that died before it joined is restarted.
    pub fn start_agents(&mut self) {
        let now = self.now;
        let Some(server) = &mut self.server else { return };
        let waiting = self.disk.nodes.iter().filter(|(_, node)| *node.state() == NodeState::Allocating);
        let dead = waiting.map(|(id, _)| id).filter(|id| !self.agents.get(id).is_some_and(SimAgent::is_alive));
        let due: Vec<NodeId> =
            dead.filter(|id| server.agent_starts.get(id).is_none_or(|at| now - at > 1_000)).cloned().collect();
        server.agent_starts.extend(due.iter().map(|node| (node.clone(), now)));
        for node in due {
            self.agents.insert(node.clone(), SimAgent::new());
            let delay = self.rng.between(5, 800);
            self.schedule(delay, Event::Join(node));
        }
    }

    /// A join: the token is spent with the commit; the response may be lost.
    pub fn join(&mut self, node: &NodeId) {
        if self.server.is_none() {
            return self.schedule(200, Event::Join(node.clone()));
        }
        if !self.agents.get(node).is_some_and(|agent| agent.is_alive() && agent.credential.is_none()) {
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
        self.agent_joins(node, epoch, secret);
        self.schedule_pass(5);
    }

    pub fn connect(&mut self, node: &NodeId, incarnation: u64) {
        let Some(agent) =
            self.agents.get(node).filter(|agent| agent.is_incarnation(incarnation) && agent.conn.is_none())
        else {
            return;
        };
        if agent.cut_off || self.server.is_none() {
            let later = self.rng.between(100, 700);
            self.schedule(later, Event::Connect(node.clone(), incarnation));
            let agent = self.agents.get_mut(node).expect("just seen");
            if !agent.cut_off {
                // Its machine refuses the connection because no server runs there: that does not count as silence.
                agent.last_contact = self.now;
            }
            return;
        }
        let credential = agent.credential.clone().expect("it has joined");
        if !is_valid_credential(&self.disk, &credential) {
            return self.agent_fenced(node);
        }
        let (conn, now) = (self.new_connection(node), self.now);
        let server = self.server.as_mut().expect("checked above");
        let connection = AgentConnection {
            epoch: credential.epoch,
            conn,
            last_message: now,
            connected: true,
            observed: ObservedNode::default(),
            last_sent: None,
        };
        server.connections.insert(node.clone(), connection);
        server.changes.nodes.insert(node.clone());
        server.changes.reconnected.insert(node.clone());
        self.invariants.connected(node, incarnation);
        self.agent_connected(node, conn);
        self.schedule_pass(5);
    }

    pub fn server_receives(&mut self, node: &NodeId, conn: u64, observed: ObservedNode) {
        let Some(connection) =
            self.receiving_connection(node, conn).filter(|connection| connection.observed != observed)
        else {
            return;
        };
        let done =
            observed.task.as_ref().filter(|task| task.exits.iter().any(|exit| exit.succeeded() && !exit.stopped));
        let attempt = done.map(|task| task.attempt.clone());
        connection.observed = observed;
        self.server.as_mut().expect("it has received a message").reported_done.extend(attempt);
        self.mark_changed(node);
    }

    pub fn server_receives_heartbeat(&mut self, node: &NodeId, conn: u64, sent: u64) {
        if self.receiving_connection(node, conn).is_some() && self.joined {
            let delay = self.delivery_delay(node);
            self.schedule(delay, Event::HeartbeatAck(node.clone(), conn, sent));
        }
    }

    /// The connection over which a message has just arrived.
    fn receiving_connection(&mut self, node: &NodeId, conn: u64) -> Option<&mut AgentConnection> {
        let (now, cut) = (self.now, self.agents.get(node).is_some_and(|agent| agent.cut_off));
        let connection = self.server.as_mut().and_then(|server| server.connections.get_mut(node))?;
        let connection =
            Some(connection).filter(|connection| connection.conn == conn && connection.connected && !cut)?;
        connection.last_message = now;
        Some(connection)
    }

    fn mark_changed(&mut self, node: &NodeId) {
        if let Some(server) = &mut self.server {
            server.changes.nodes.insert(node.clone());
        }
        self.schedule_pass(5);
    }

    pub fn server_detects_cut(&mut self, node: &NodeId, conn: u64) {
        let Some(connection) = self.server.as_mut().and_then(|server| server.connections.get_mut(node)) else { return };
        if connection.conn == conn {
            connection.connected = false;
            self.mark_changed(node);
        }
    }

    /// The provider's action for a leaving node, repeated until it succeeds.
    pub fn ensure_gone(&mut self, node: &NodeId, polite: bool) {
        let alive = self.agents.get(node).is_some_and(SimAgent::is_alive);
        // A machine that joined by itself is out of reach: it counts as gone when it need not be waited for.
        let gone = if self.joined { !polite } else { !alive };
        if !self.joined && alive && !polite {
            self.agent_ends(node);
        } else if !self.joined && !alive {
            self.kill_ranks(node);
            self.agents.remove(node);
        }
        let Some(server) = &mut self.server else { return };
        server.removing.remove(node);
        if gone {
            server.gone.insert(node.clone());
        }
        self.schedule_pass(20);
    }
}
