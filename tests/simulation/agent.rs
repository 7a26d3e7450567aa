//! Simulated machine with an agent: the agent's decisions are the real code; its ranks, disk and network are modelled. A killed
//! agent loses its memory and, a little later, its ranks; its disk survives. `agent_lifecycle` has stop and restart, `tasks` the
//! work of its ranks.

use corro_agent::reconcile::{Action, DeclineReason, LocalNode, LocalTask, next_action};
use corro_model::batchai::BatchAiError;
use corro_model::node::{
    AGENT_RESTARTED, DesiredNode, NodeCredential, ObservedNode, ObservedTask, TaskFailure, TaskOrder, TaskPhase,
};
use corro_model::{AttemptId, NodeId, Secret};

use super::tasks::{Rank, TaskEvent};
use super::world::{Event, ServerMessage, World};

/// Interval of heartbeats to the server.
pub const HEARTBEAT_MS: u64 = 1_000;

pub struct SimAgent {
    /// Incarnation number of the agent.
    pub incarnation: u64,
    pub alive: bool,
    /// Frozen without dying; events are deferred meanwhile.
    pub frozen: bool,
    pub deferred: Vec<Event>,
    /// No message gets through.
    pub cut_off: bool,
    pub credential: Option<NodeCredential>,
    /// Number of the current connection.
    pub conn: Option<u64>,
    last_conn: u64,
    /// Arrival time of the last message: one connection delivers in order.
    last_arrival: u64,
    pub desired: Option<DesiredNode>,
    pub local: LocalNode,
    pub sent: Option<ObservedNode>,
    pub order: Option<TaskOrder>,
    /// Its disk's record of the attempt it has begun.
    pub journal: Option<AttemptRecord>,
    /// The shutdown request came while its task ran.
    pub interrupted: bool,
    /// Time when it last certainly reached the server.
    pub last_contact: u64,
    pub watches_lease: bool,
    pub ranks: Vec<Rank>,
}

#[derive(Clone)]
pub struct AttemptRecord {
    pub attempt: AttemptId,
    pub ended: Option<ObservedTask>,
}

impl SimAgent {
    pub fn new() -> Self {
        Self {
            incarnation: 0,
            alive: true,
            frozen: false,
            deferred: Vec::new(),
            cut_off: false,
            credential: None,
            conn: None,
            last_conn: 0,
            last_arrival: 0,
            desired: None,
            local: LocalNode::default(),
            sent: None,
            order: None,
            journal: None,
            interrupted: false,
            last_contact: 0,
            watches_lease: false,
            ranks: Vec::new(),
        }
    }

    pub fn is_alive(&self) -> bool {
        self.alive
    }

    pub fn is_incarnation(&self, incarnation: u64) -> bool {
        self.alive && self.incarnation == incarnation
    }
}

impl World {
    pub fn new_connection(&mut self, node: &NodeId) -> u64 {
        let agent = self.agents.get_mut(node).expect("it connects");
        agent.last_conn += 1;
        agent.last_conn
    }

    /// Delivery time of a message; never overtakes an earlier one.
    pub fn delivery_delay(&mut self, node: &NodeId) -> u64 {
        let slow = if self.rng.one_in(20) { 1_500 } else { 20 };
        let (delay, now) = (self.rng.between(0, slow), self.now);
        let Some(agent) = self.agents.get_mut(node) else { return delay };
        agent.last_arrival = agent.last_arrival.max(now + delay);
        agent.last_arrival - now
    }

    pub fn agent_joins(&mut self, node: &NodeId, epoch: u64, secret: String) {
        let agent = self.agents.get_mut(node).expect("it joins");
        let credential =
            NodeCredential { node: node.clone(), epoch, secret: Secret::new(secret), instance: String::new() };
        agent.credential = Some(credential);
        let incarnation = agent.incarnation;
        self.schedule(1, Event::Connect(node.clone(), incarnation));
        self.schedule(HEARTBEAT_MS, Event::Heartbeat(node.clone(), incarnation));
    }

    pub fn agent_connected(&mut self, node: &NodeId, conn: u64) {
        let now = self.now;
        let agent = self.agents.get_mut(node).expect("it connected");
        (agent.conn, agent.sent, agent.last_contact) = (Some(conn), None, now);
        self.reconcile(node);
    }

    pub fn send_heartbeat(&mut self, node: &NodeId, incarnation: u64) {
        if self.defer_if_frozen(node, || Event::Heartbeat(node.clone(), incarnation)) {
            return;
        }
        let Some(agent) = self.agents.get(node).filter(|agent| agent.is_incarnation(incarnation)) else { return };
        if let Some(conn) = agent.conn {
            let delay = self.delivery_delay(node);
            self.schedule(delay, Event::HeartbeatToServer(node.clone(), conn, self.now));
        }
        self.schedule(HEARTBEAT_MS, Event::Heartbeat(node.clone(), incarnation));
    }

    pub fn agent_receives(&mut self, node: &NodeId, conn: u64, order: ServerMessage) {
        if self.defer_if_frozen(node, || Event::ToAgent(node.clone(), conn, order.clone())) {
            return;
        }
        let Some(agent) = self.agents.get_mut(node).filter(|b| b.alive && b.conn == Some(conn) && !b.cut_off) else {
            return;
        };
        match order {
            ServerMessage::Desired(desired) => agent.desired = Some(*desired),
            // An agent that shuts down ignores it.
            ServerMessage::Fenced if agent.local.ending => {}
            ServerMessage::Fenced => return self.agent_fenced(node),
        }
        self.watch_lease(node);
        self.reconcile(node);
    }

    pub fn agent_detects_cut(&mut self, node: &NodeId, conn: u64) {
        if self.defer_if_frozen(node, || Event::AgentDetectsCut(node.clone(), conn)) {
            return;
        }
        let Some(agent) = self.agents.get_mut(node).filter(|agent| agent.alive && agent.conn == Some(conn)) else {
            return;
        };
        agent.conn = None;
        let (incarnation, delay) = (agent.incarnation, self.rng.between(1, 500));
        self.schedule(delay, Event::Connect(node.clone(), incarnation));
    }

    /// The server fenced the node: all its work ends at once, and the agent with it.
    pub fn agent_fenced(&mut self, node: &NodeId) {
        self.log(|| format!("{node} is fenced"));
        self.kill_ranks(node);
        self.erase_identity(node);
        self.agent_ends(node);
    }

    /// The agent is dead, for any reason; its guards kill its ranks a little later.
    pub fn agent_ends(&mut self, node: &NodeId) {
        let Some(agent) = self.agents.get_mut(node).filter(|agent| agent.alive) else { return };
        agent.alive = false;
        agent.deferred.clear();
        let (incarnation, conn, orderly) = (agent.incarnation, agent.conn.take(), agent.local.ending);
        self.log(|| format!("the agent of {node} has ended"));
        let guards = self.rng.between(0, 300);
        let server = self.rng.between(0, 200);
        // An orderly goodbye waits until it is delivered.
        let server = if orderly { server + self.delivery_delay(node) } else { server };
        self.schedule(guards, Event::GuardsKillRanks(node.clone(), incarnation));
        if let Some(conn) = conn {
            self.schedule(server, Event::ServerDetectsCut(node.clone(), conn));
        }
    }

    pub fn guards_kill_ranks(&mut self, node: &NodeId, incarnation: u64) {
        if self.agents.get(node).is_some_and(|agent| agent.incarnation == incarnation && !agent.alive) {
            self.kill_ranks(node);
        }
    }

    pub fn kill_ranks(&mut self, node: &NodeId) {
        if let Some(agent) = self.agents.get_mut(node) {
            agent.ranks.iter_mut().for_each(|rank| rank.alive = false);
        }
    }

    pub fn thaw(&mut self, node: &NodeId) {
        let Some(agent) = self.agents.get_mut(node) else { return };
        agent.frozen = false;
        for event in std::mem::take(&mut agent.deferred) {
            self.schedule(0, event);
        }
    }

    pub fn defer_if_frozen(&mut self, node: &NodeId, event: impl FnOnce() -> Event) -> bool {
        match self.agents.get_mut(node) {
            Some(agent) if agent.alive && agent.frozen => {
                agent.deferred.push(event());
                true
            }
            _ => false,
        }
    }

    /// Acts until only waiting is left, then reports changes to the server.
    pub fn reconcile(&mut self, node: &NodeId) {
        self.record_end(node);
        if self.agents.get(node).is_some_and(|agent| agent.local.ending) {
            return self.continue_shutdown(node);
        }
        while let Some(agent) = self.agents.get_mut(node).filter(|agent| agent.alive) {
            let Some(desired) = agent.desired.clone() else { break };
            let Some(action) = next_action(&desired, &agent.local) else { break };
            match action {
                Action::MountVolumes(volumes) => agent.local.volumes = Some(volumes.to_vec()),
                Action::Begin(order) => {
                    let attempt = order.attempt.clone();
                    agent.order = Some(order.clone());
                    agent.journal = Some(AttemptRecord { attempt: attempt.clone(), ended: None });
                    agent.local.task = Some(task(&attempt, TaskPhase::Preparing));
                    let delay = self.rng.between(5, 600);
                    self.schedule_task_event(node, delay, TaskEvent::Prepared(attempt));
                }
                Action::Decline(order, reason) => {
                    let failure = match reason {
                        DeclineReason::Stopped => None,
                        DeclineReason::Restarted | DeclineReason::NotReady => Some(failure(self.time())),
                    };
                    let agent = self.agents.get_mut(node).expect("it lives");
                    agent.local.task = Some(task(&order.attempt, TaskPhase::Ended { failure }));
                }
                Action::Run(_) | Action::RunAlone => {
                    let given = agent.local.task.as_mut().expect("only tasks run");
                    given.gang_given = true;
                    self.run_if_ready(node);
                }
                Action::Stop(grace) => self.stop(node, grace),
                Action::Clean => {
                    let task = agent.local.task.as_mut().expect("only tasks are cleaned");
                    task.cleaning = true;
                    let attempt = task.observed.attempt.clone();
                    let delay = self.rng.between(1, 50);
                    self.schedule_task_event(node, delay, TaskEvent::Cleaned(attempt));
                }
                Action::Retire => {
                    let retired = ObservedNode { retired: true, ..ObservedNode::default() };
                    self.report(node, retired);
                    self.log(|| format!("{node} retires"));
                    self.erase_identity(node);
                    return self.agent_ends(node);
                }
                #[allow(unreachable_patterns)]
                other => unreachable!("{other:?} is not part of this world"),
            }
        }
        if let Some(observed) =
            self.agents.get(node).filter(|agent| agent.alive).map(|agent| agent.local.observed(false))
        {
            self.report(node, observed);
        }
    }

    pub fn report(&mut self, node: &NodeId, observed: ObservedNode) {
        let Some(agent) = self.agents.get_mut(node) else { return };
        let Some(conn) = agent.conn.filter(|_| agent.sent.as_ref() != Some(&observed)) else { return };
        agent.sent = Some(observed.clone());
        let delay = self.delivery_delay(node);
        self.schedule(delay, Event::ToServer(node.clone(), conn, Box::new(observed)));
    }
}

fn task(attempt: &AttemptId, phase: TaskPhase) -> LocalTask {
    LocalTask::new(ObservedTask { attempt: attempt.clone(), phase, exits: Vec::new(), elastic: None })
}

pub fn failure(at: corro_model::Timestamp) -> TaskFailure {
    TaskFailure { exit_code: None, error: BatchAiError::new(AGENT_RESTARTED, "the agent was restarted"), at }
}
