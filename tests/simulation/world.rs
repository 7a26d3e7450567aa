//! Simulation state: durable data, live processes, and the event queue. Time jumps from event to event.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::sync::Arc;

use corro_model::node::{DesiredNode, ObservedNode};
use corro_model::{NodeId, Timestamp};
use corro_store::State;

use super::body::{Body, Work};
use super::faults::Fault;
use super::laws::Laws;
use super::people::{Follower, Wish};
use super::server::Server;
use corro_test_support::rng::SplitMix64;

/// Faults are injected until this time, in milliseconds; then everything is repaired and must become idle.
pub const TROUBLE: u64 = 20_000;
/// Limit of virtual time, in milliseconds: unfinished work then is a failure.
const END_OF_DAYS: u64 = 600_000;

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
    pub bodies: BTreeMap<NodeId, Body>,
    /// The share: the log of each job (by guid), by line.
    pub logs: BTreeMap<String, Vec<Line>>,
    pub followers: Vec<Follower>,
    pub laws: Laws,
    pub tally: Tally,
    seed: u64,
    aloud: bool,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    next_event: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
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
    Beat(NodeId, u64),
    /// Sent over the connection with this number; lost when it is cut.
    ToServer(NodeId, u64, Box<ObservedNode>),
    /// A heartbeat, sent at this time, and its response.
    BeatToServer(NodeId, u64, u64),
    Answer(NodeId, u64, u64),
    /// Checks whether the agent has reached the server within its lease.
    Lease(NodeId, u64),
    /// The agent is restarted after this incarnation has ended.
    AgentStarts(NodeId, u64),
    ToAgent(NodeId, u64, Order),
    /// Each side detects a cut connection in its own time.
    ServerNotices(NodeId, u64),
    AgentNotices(NodeId, u64),
    Work(NodeId, u64, Work),
    /// The guards of a dead agent kill its processes.
    GuardsStrike(NodeId, u64),
    /// The provider ensures that nothing of a node is left.
    EnsureGone(NodeId, bool),
    Fault(Fault),
    Wish(Wish),
    Follow(usize),
}

#[derive(Clone, Debug)]
pub enum Order {
    Desired(Box<DesiredNode>),
    Fenced,
}

impl World {
    pub fn new(seed: u64, aloud: bool) -> Self {
        let mut world = Self {
            now: 0,
            rng: SplitMix64::new(seed),
            disk: Arc::default(),
            joined: false,
            server: None,
            bodies: BTreeMap::new(),
            logs: BTreeMap::new(),
            followers: Vec::new(),
            laws: Laws::default(),
            tally: Tally::default(),
            seed,
            aloud,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            next_event: 0,
        };
        world.joined = world.rng.one_in(3);
        world.furnish();
        world.plan_wishes();
        world.plan_faults();
        world.server_starts();
        world
    }

    pub fn run(mut self) -> Tally {
        while let Some(Reverse((at, id))) = self.queue.pop() {
            self.now = at;
            let event = self.events.remove(&id).expect("queued events are kept");
            self.happen(event);
            if at > TROUBLE && self.is_at_rest() {
                break;
            }
            assert!(at < END_OF_DAYS, "seed {}: these jobs never end: {:?}", self.seed, self.unfinished());
        }
        self.check_at_rest();
        self.tally.runs = 1;
        self.tally
    }

    pub fn after(&mut self, milliseconds: u64, event: Event) {
        let id = self.next_event;
        self.next_event += 1;
        self.queue.push(Reverse((self.now + milliseconds, id)));
        self.events.insert(id, event);
    }

    pub fn time(&self) -> Timestamp {
        Timestamp::from_millis(1_500_000_000_000 + self.now as i64)
    }

    pub fn say(&self, words: impl FnOnce() -> String) {
        if self.aloud {
            println!("{:>8} ms  {}", self.now, words());
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Pass => self.pass(),
            Event::ServerStarts => self.server_starts(),
            Event::Join(node) => self.join(&node),
            Event::Connect(node, life) => self.connect(&node, life),
            Event::Beat(node, life) => self.beat(&node, life),
            Event::ToServer(node, wire, observed) => self.server_hears(&node, wire, *observed),
            Event::BeatToServer(node, wire, sent) => self.server_hears_beat(&node, wire, sent),
            Event::ToAgent(node, wire, order) => self.agent_hears(&node, wire, order),
            Event::Answer(node, wire, sent) => self.agent_is_answered(&node, wire, sent),
            Event::Lease(node, life) => self.check_lease(&node, life),
            Event::AgentStarts(node, life) => self.agent_starts(&node, life),
            Event::ServerNotices(node, wire) => self.server_notices(&node, wire),
            Event::AgentNotices(node, wire) => self.agent_notices(&node, wire),
            Event::Work(node, life, work) => self.work(&node, life, work),
            Event::GuardsStrike(node, life) => self.guards_strike(&node, life),
            Event::EnsureGone(node, polite) => self.ensure_gone(&node, polite),
            Event::Fault(fault) => self.fail(fault),
            Event::Wish(wish) => self.wish(wish),
            Event::Follow(i) => self.follow(i),
        }
    }
}

/// Event counts over all runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub runs: u64,
    pub jobs: u64,
    pub succeeded: u64,
    pub requeued: u64,
    /// Requeues caused by preemption.
    pub preempted: u64,
    pub nodes_lost: u64,
    pub crashes: u64,
    /// Agents that came back.
    pub restarts: u64,
    /// Incremental passes.
    pub narrow: u64,
    pub lines: u64,
}

impl std::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), |a, b| Self {
            runs: a.runs + b.runs,
            jobs: a.jobs + b.jobs,
            succeeded: a.succeeded + b.succeeded,
            requeued: a.requeued + b.requeued,
            preempted: a.preempted + b.preempted,
            nodes_lost: a.nodes_lost + b.nodes_lost,
            crashes: a.crashes + b.crashes,
            restarts: a.restarts + b.restarts,
            narrow: a.narrow + b.narrow,
            lines: a.lines + b.lines,
        })
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { jobs, succeeded, requeued, preempted, nodes_lost, crashes, restarts, narrow, lines, .. } = self;
        write!(f, "{jobs} jobs ({succeeded} succeeded, requeued {requeued} times, {preempted} of them preempted), ")?;
        write!(f, "{nodes_lost} nodes lost, ")?;
        write!(f, "{crashes} crashes of servers and agents, {restarts} agents came back, {narrow} narrow passes, ")?;
        write!(f, "{lines} lines of logs")
    }
}
