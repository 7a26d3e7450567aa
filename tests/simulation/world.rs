//! Simulation state: durable data, live processes, and the event queue. Time jumps from event to event.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::sync::Arc;

use corro_model::node::{DesiredNode, ObservedNode};
use corro_model::{NodeId, Timestamp};
use corro_store::State;

use super::agent::SimAgent;
use super::faults::Fault;
use super::invariants::Invariants;
use super::server::Server;
use super::tasks::TaskEvent;
use super::users::{Follower, UserAction};
use corro_test_support::rng::SplitMix64;

/// Faults are injected until this time, in milliseconds; then everything is repaired and must become idle.
pub const FAULT_PERIOD_MS: u64 = 20_000;
/// Limit of virtual time, in milliseconds: unfinished work then is a failure.
const MAX_VIRTUAL_MS: u64 = 600_000;

pub struct World {
    pub now: u64,
    pub rng: SplitMix64,
    /// Content of the server's disk.
    pub disk: Arc<State>,
    /// Nodes are machines that joined by themselves: the server can neither see whether one is alive nor kill it.
    pub joined: bool,
    /// The server's memory; `None` while it is down.
    pub server: Option<Server>,
    /// Machines with an agent, live or dead.
    pub agents: BTreeMap<NodeId, SimAgent>,
    /// The share: the log of each job (by guid), by line.
    pub logs: BTreeMap<String, Vec<LogLine>>,
    pub followers: Vec<Follower>,
    pub invariants: Invariants,
    pub stats: Stats,
    seed: u64,
    verbose: bool,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    next_event: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogLine {
    pub attempt: u32,
    pub rank: usize,
    pub number: u32,
}

#[derive(Clone, Debug)]
pub enum Event {
    /// An incremental or a full pass of the server.
    Pass,
    ServerStarts,
    /// An agent joins with its one-time token.
    Join(NodeId),
    /// An agent tries to reach the server.
    Connect(NodeId, u64),
    Heartbeat(NodeId, u64),
    /// Sent over the connection with this number; lost when it is cut.
    ToServer(NodeId, u64, Box<ObservedNode>),
    /// A heartbeat, sent at this time, and its response.
    HeartbeatToServer(NodeId, u64, u64),
    HeartbeatAck(NodeId, u64, u64),
    /// Checks whether the agent has reached the server within its lease.
    Lease(NodeId, u64),
    /// The agent is restarted after this incarnation has ended.
    AgentStarts(NodeId, u64),
    ToAgent(NodeId, u64, ServerMessage),
    /// Each side detects a cut connection in its own time.
    ServerDetectsCut(NodeId, u64),
    AgentDetectsCut(NodeId, u64),
    Task(NodeId, u64, TaskEvent),
    /// The guards of a dead agent kill its processes.
    GuardsKillRanks(NodeId, u64),
    /// The provider ensures that nothing of a node is left.
    EnsureGone(NodeId, bool),
    Fault(Fault),
    User(UserAction),
    Follow(usize),
}

#[derive(Clone, Debug)]
pub enum ServerMessage {
    Desired(Box<DesiredNode>),
    Fenced,
}

impl World {
    pub fn new(seed: u64, verbose: bool) -> Self {
        let mut world = Self {
            now: 0,
            rng: SplitMix64::new(seed),
            disk: Arc::default(),
            joined: false,
            server: None,
            agents: BTreeMap::new(),
            logs: BTreeMap::new(),
            followers: Vec::new(),
            invariants: Invariants::default(),
            stats: Stats::default(),
            seed,
            verbose,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            next_event: 0,
        };
        world.joined = world.rng.one_in(3);
        world.create_cluster();
        world.schedule_user_actions();
        world.schedule_faults();
        world.server_starts();
        world
    }

    pub fn run(mut self) -> Stats {
        while let Some(Reverse((at, id))) = self.queue.pop() {
            self.now = at;
            let event = self.events.remove(&id).expect("queued events are kept");
            self.dispatch(event);
            if at > FAULT_PERIOD_MS && self.is_idle() {
                break;
            }
            assert!(at < MAX_VIRTUAL_MS, "seed {}: these jobs never end: {:?}", self.seed, self.unfinished());
        }
        self.check_idle();
        self.stats.runs = 1;
        self.stats
    }

    pub fn schedule(&mut self, milliseconds: u64, event: Event) {
        let id = self.next_event;
        self.next_event += 1;
        self.queue.push(Reverse((self.now + milliseconds, id)));
        self.events.insert(id, event);
    }

    pub fn time(&self) -> Timestamp {
        Timestamp::from_millis(1_500_000_000_000 + self.now as i64)
    }

    pub fn log(&self, message: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>8} ms  {}", self.now, message());
        }
    }

    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Pass => self.pass(),
            Event::ServerStarts => self.server_starts(),
            Event::Join(node) => self.join(&node),
            Event::Connect(node, incarnation) => self.connect(&node, incarnation),
            Event::Heartbeat(node, incarnation) => self.send_heartbeat(&node, incarnation),
            Event::ToServer(node, conn, observed) => self.server_receives(&node, conn, *observed),
            Event::HeartbeatToServer(node, conn, sent) => self.server_receives_heartbeat(&node, conn, sent),
            Event::ToAgent(node, conn, order) => self.agent_receives(&node, conn, order),
            Event::HeartbeatAck(node, conn, sent) => self.agent_receives_ack(&node, conn, sent),
            Event::Lease(node, incarnation) => self.check_lease(&node, incarnation),
            Event::AgentStarts(node, incarnation) => self.agent_starts(&node, incarnation),
            Event::ServerDetectsCut(node, conn) => self.server_detects_cut(&node, conn),
            Event::AgentDetectsCut(node, conn) => self.agent_detects_cut(&node, conn),
            Event::Task(node, incarnation, event) => self.on_task_event(&node, incarnation, event),
            Event::GuardsKillRanks(node, incarnation) => self.guards_kill_ranks(&node, incarnation),
            Event::EnsureGone(node, polite) => self.ensure_gone(&node, polite),
            Event::Fault(fault) => self.inject(fault),
            Event::User(action) => self.on_user_action(action),
            Event::Follow(i) => self.follow(i),
        }
    }
}

/// Event counts over all runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    pub runs: u64,
    pub jobs: u64,
    pub succeeded: u64,
    pub requeued: u64,
    /// Requeues caused by preemption.
    pub preempted: u64,
    /// Requeues caused by a failing program.
    pub retried: u64,
    /// Jobs that started after their dependencies.
    pub dependents: u64,
    pub nodes_lost: u64,
    pub crashes: u64,
    /// Agents that came back.
    pub restarts: u64,
    /// Incremental passes.
    pub incremental: u64,
    pub lines: u64,
}

impl std::iter::Sum for Stats {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |a, b| Self {
            runs: a.runs + b.runs,
            jobs: a.jobs + b.jobs,
            succeeded: a.succeeded + b.succeeded,
            requeued: a.requeued + b.requeued,
            preempted: a.preempted + b.preempted,
            retried: a.retried + b.retried,
            dependents: a.dependents + b.dependents,
            nodes_lost: a.nodes_lost + b.nodes_lost,
            crashes: a.crashes + b.crashes,
            restarts: a.restarts + b.restarts,
            incremental: a.incremental + b.incremental,
            lines: a.lines + b.lines,
        })
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            jobs,
            succeeded,
            requeued,
            preempted,
            retried,
            dependents,
            nodes_lost,
            crashes,
            restarts,
            incremental,
            lines,
            ..
        } = self;
        write!(
            f,
            "{jobs} jobs ({succeeded} succeeded, requeued {requeued} times, {preempted} of them preempted and {retried} failed), "
        )?;
        write!(f, "{dependents} jobs started after others, ")?;
        write!(f, "{nodes_lost} nodes lost, ")?;
        write!(
            f,
            "{crashes} crashes of servers and agents, {restarts} agents came back, {incremental} incremental passes, "
        )?;
        write!(f, "{lines} lines of logs")
    }
}
