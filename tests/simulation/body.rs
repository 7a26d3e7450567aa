//! Simulated machine with an agent: the agent's decisions are the real code; its ranks, disk and network are modelled. A killed
//! agent loses its memory and, a little later, its ranks; its disk survives. `lives` contains stop and restart.

use std::time::Duration;

use corro_agent::reconcile::{Action, DeclineReason, LocalNode, LocalTask, next_action};
use corro_model::batchai::BatchAiError;
use corro_model::layout::Role;
use corro_model::node::{
    AGENT_RESTARTED, DesiredNode, GangAddress, NodeCredential, ObservedNode, ObservedTask, RankExit, TaskFailure,
    TaskOrder, TaskPhase,
};
use corro_model::{AttemptId, NodeId, Secret};

use super::world::{Event, Line, Order, World};

pub const BEAT: u64 = 1_000;

pub struct Body {
    /// Incarnation number of the agent.
    pub life: u64,
    pub alive: bool,
    /// Frozen without dying; events are deferred meanwhile.
    pub stands_still: bool,
    pub kept: Vec<Event>,
    /// No message gets through.
    pub cut_off: bool,
    pub credential: Option<NodeCredential>,
    pub wire: Option<u64>,
    last_wire: u64,
    /// Arrival time of the last message: one connection delivers in order.
    arrives: u64,
    pub desired: Option<DesiredNode>,
    pub local: LocalNode,
    pub sent: Option<ObservedNode>,
    pub order: Option<TaskOrder>,
    /// Its disk's record of the attempt it has begun.
    pub disk: Option<Begun>,
    /// The shutdown request came while its task ran.
    pub interrupted: bool,
    /// Time when it last certainly reached the server.
    pub reached: u64,
    pub watches_lease: bool,
    pub ranks: Vec<Rank>,
}

#[derive(Clone)]
pub struct Begun {
    pub attempt: AttemptId,
    pub ended: Option<ObservedTask>,
}

/// A process.
pub struct Rank {
    pub attempt: AttemptId,
    pub rank: usize,
    written: u32,
    to_write: u32,
    fails: bool,
    pub alive: bool,
    reported: bool,
}

#[derive(Clone, Debug)]
pub enum Work {
    Prepared(AttemptId),
    Writes(AttemptId),
    Stopped(AttemptId),
    Cleaned(AttemptId),
}

impl Body {
    pub fn new() -> Self {
        Self {
            life: 0,
            alive: true,
            stands_still: false,
            kept: Vec::new(),
            cut_off: false,
            credential: None,
            wire: None,
            last_wire: 0,
            arrives: 0,
            desired: None,
            local: LocalNode::default(),
            sent: None,
            order: None,
            disk: None,
            interrupted: false,
            reached: 0,
            watches_lease: false,
            ranks: Vec::new(),
        }
    }

    pub fn lives(&self) -> bool {
        self.alive
    }

    pub fn is(&self, life: u64) -> bool {
        self.alive && self.life == life
    }
}

impl World {
    pub fn new_wire(&mut self, node: &NodeId) -> u64 {
        let body = self.bodies.get_mut(node).expect("it connects");
        body.last_wire += 1;
        body.last_wire
    }

    /// Delivery time of a message; never overtakes an earlier one.
    pub fn on_the_wire(&mut self, node: &NodeId) -> u64 {
        let slow = if self.rng.one_in(20) { 1_500 } else { 20 };
        let (delay, now) = (self.rng.between(0, slow), self.now);
        let Some(body) = self.bodies.get_mut(node) else { return delay };
        body.arrives = body.arrives.max(now + delay);
        body.arrives - now
    }

    pub fn body_joins(&mut self, node: &NodeId, epoch: u64, secret: String) {
        let body = self.bodies.get_mut(node).expect("it joins");
        let credential =
            NodeCredential { node: node.clone(), epoch, secret: Secret::new(secret), instance: String::new() };
        body.credential = Some(credential);
        let life = body.life;
        self.after(1, Event::Connect(node.clone(), life));
        self.after(BEAT, Event::Beat(node.clone(), life));
    }

    pub fn body_connected(&mut self, node: &NodeId, wire: u64) {
        let now = self.now;
        let body = self.bodies.get_mut(node).expect("it connected");
        (body.wire, body.sent, body.reached) = (Some(wire), None, now);
        self.settle(node);
    }

    pub fn beat(&mut self, node: &NodeId, life: u64) {
        if self.keep_for_later(node, || Event::Beat(node.clone(), life)) {
            return;
        }
        let Some(body) = self.bodies.get(node).filter(|body| body.is(life)) else { return };
        if let Some(wire) = body.wire {
            let delay = self.on_the_wire(node);
            self.after(delay, Event::BeatToServer(node.clone(), wire, self.now));
        }
        self.after(BEAT, Event::Beat(node.clone(), life));
    }

    pub fn agent_hears(&mut self, node: &NodeId, wire: u64, order: Order) {
        if self.keep_for_later(node, || Event::ToAgent(node.clone(), wire, order.clone())) {
            return;
        }
        let Some(body) = self.bodies.get_mut(node).filter(|b| b.alive && b.wire == Some(wire) && !b.cut_off) else {
            return;
        };
        match order {
            Order::Desired(desired) => body.desired = Some(*desired),
            // An agent that shuts down ignores it.
            Order::Fenced if body.local.ending => {}
            Order::Fenced => return self.body_fenced(node),
        }
        self.watch_lease(node);
        self.settle(node);
    }

    pub fn agent_notices(&mut self, node: &NodeId, wire: u64) {
        if self.keep_for_later(node, || Event::AgentNotices(node.clone(), wire)) {
            return;
        }
        let Some(body) = self.bodies.get_mut(node).filter(|body| body.alive && body.wire == Some(wire)) else { return };
        body.wire = None;
        let (life, delay) = (body.life, self.rng.between(1, 500));
        self.after(delay, Event::Connect(node.clone(), life));
    }

    /// The server fenced the node: all its work ends at once, and the agent with it.
    pub fn body_fenced(&mut self, node: &NodeId) {
        self.say(|| format!("{node} is fenced"));
        self.sweep(node);
        self.forget_itself(node);
        self.agent_ends(node);
    }

    /// The agent is dead, for any reason; its guards kill its ranks a little later.
    pub fn agent_ends(&mut self, node: &NodeId) {
        let Some(body) = self.bodies.get_mut(node).filter(|body| body.alive) else { return };
        body.alive = false;
        body.kept.clear();
        let (life, wire, orderly) = (body.life, body.wire.take(), body.local.ending);
        self.say(|| format!("the agent of {node} has ended"));
        let guards = self.rng.between(0, 300);
        let server = self.rng.between(0, 200);
        // An orderly goodbye waits until it is delivered.
        let server = if orderly { server + self.on_the_wire(node) } else { server };
        self.after(guards, Event::GuardsStrike(node.clone(), life));
        if let Some(wire) = wire {
            self.after(server, Event::ServerNotices(node.clone(), wire));
        }
    }

    pub fn guards_strike(&mut self, node: &NodeId, life: u64) {
        if self.bodies.get(node).is_some_and(|body| body.life == life && !body.alive) {
            self.sweep(node);
        }
    }

    pub fn sweep(&mut self, node: &NodeId) {
        if let Some(body) = self.bodies.get_mut(node) {
            body.ranks.iter_mut().for_each(|rank| rank.alive = false);
        }
    }

    pub fn stands_up(&mut self, node: &NodeId) {
        let Some(body) = self.bodies.get_mut(node) else { return };
        body.stands_still = false;
        for event in std::mem::take(&mut body.kept) {
            self.after(0, event);
        }
    }

    pub fn keep_for_later(&mut self, node: &NodeId, event: impl FnOnce() -> Event) -> bool {
        match self.bodies.get_mut(node) {
            Some(body) if body.alive && body.stands_still => {
                body.kept.push(event());
                true
            }
            _ => false,
        }
    }

    /// Acts until only waiting is left, then reports changes to the server.
    pub fn settle(&mut self, node: &NodeId) {
        self.remember_end(node);
        if self.bodies.get(node).is_some_and(|body| body.local.ending) {
            return self.go_on_ending(node);
        }
        while let Some(body) = self.bodies.get_mut(node).filter(|body| body.alive) {
            let Some(desired) = body.desired.clone() else { break };
            let Some(action) = next_action(&desired, &body.local) else { break };
            match action {
                Action::MountVolumes(volumes) => body.local.volumes = Some(volumes.to_vec()),
                Action::Begin(order) => {
                    let attempt = order.attempt.clone();
                    body.order = Some(order.clone());
                    body.disk = Some(Begun { attempt: attempt.clone(), ended: None });
                    body.local.task = Some(task(&attempt, TaskPhase::Preparing));
                    let delay = self.rng.between(5, 600);
                    self.work_later(node, delay, Work::Prepared(attempt));
                }
                Action::Decline(order, reason) => {
                    let failure = match reason {
                        DeclineReason::Stopped => None,
                        DeclineReason::Restarted | DeclineReason::NotReady => Some(failure(self.time())),
                    };
                    let body = self.bodies.get_mut(node).expect("it lives");
                    body.local.task = Some(task(&order.attempt, TaskPhase::Ended { failure }));
                }
                Action::Run(_) | Action::RunAlone => {
                    let given = body.local.task.as_mut().expect("only tasks run");
                    given.gang_given = true;
                    self.run_if_ready(node);
                }
                Action::Stop(grace) => self.stop(node, grace),
                Action::Clean => {
                    let task = body.local.task.as_mut().expect("only tasks are cleaned");
                    task.cleaning = true;
                    let attempt = task.observed.attempt.clone();
                    let delay = self.rng.between(1, 50);
                    self.work_later(node, delay, Work::Cleaned(attempt));
                }
                Action::Retire => {
                    let retired = ObservedNode { retired: true, ..ObservedNode::default() };
                    self.report(node, retired);
                    self.say(|| format!("{node} retires"));
                    self.forget_itself(node);
                    return self.agent_ends(node);
                }
                #[allow(unreachable_patterns)]
                other => unreachable!("{other:?} is not part of this world"),
            }
        }
        if let Some(observed) = self.bodies.get(node).filter(|body| body.alive).map(|body| body.local.observed(false)) {
            self.report(node, observed);
        }
    }

    pub fn report(&mut self, node: &NodeId, observed: ObservedNode) {
        let Some(body) = self.bodies.get_mut(node) else { return };
        let Some(wire) = body.wire.filter(|_| body.sent.as_ref() != Some(&observed)) else { return };
        body.sent = Some(observed.clone());
        let delay = self.on_the_wire(node);
        self.after(delay, Event::ToServer(node.clone(), wire, Box::new(observed)));
    }

    fn work_later(&mut self, node: &NodeId, delay: u64, work: Work) {
        let life = self.bodies[node].life;
        self.after(delay, Event::Work(node.clone(), life, work));
    }

    pub fn work(&mut self, node: &NodeId, life: u64, work: Work) {
        if self.keep_for_later(node, || Event::Work(node.clone(), life, work.clone())) {
            return;
        }
        let time = self.time();
        let Some(body) = self.bodies.get_mut(node).filter(|body| body.is(life)) else { return };
        let attempt = match &work {
            Work::Prepared(attempt) | Work::Writes(attempt) | Work::Stopped(attempt) | Work::Cleaned(attempt) => {
                attempt
            }
        };
        let Some(task) = body.local.task.as_mut().filter(|task| task.observed.attempt == *attempt) else { return };
        match work {
            Work::Prepared(_) if task.has_ended() => {}
            Work::Prepared(_) if task.stopping.is_some() => task.observed.phase = TaskPhase::Ended { failure: None },
            Work::Prepared(_) => {
                let master = body.order.as_ref().is_some_and(|order| order.is_master());
                let gang = GangAddress::new("127.0.0.4", 1, 2);
                task.observed.phase = TaskPhase::Prepared { gang: master.then_some(gang) };
                self.laws.prepared(&task.observed.attempt, node);
                self.run_if_ready(node);
            }
            Work::Writes(attempt) => self.rank_writes(node, &attempt),
            Work::Stopped(attempt) => {
                for rank in body.ranks.iter_mut().filter(|rank| rank.attempt == attempt && !rank.reported) {
                    (rank.alive, rank.reported) = (false, true);
                    task.observed.exits.push(exit(rank.rank, None, true, time));
                }
                if !task.has_ended() {
                    task.observed.phase = TaskPhase::Ended { failure: None };
                }
            }
            Work::Cleaned(attempt) => {
                body.disk.take_if(|begun| begun.attempt == attempt);
                body.local.task = None;
                body.local.last_cleaned = Some(attempt);
            }
        }
        self.settle(node);
    }

    fn run_if_ready(&mut self, node: &NodeId) {
        let Some(body) = self.bodies.get_mut(node) else { return };
        let Some(task) = body.local.task.as_mut() else { return };
        let prepared = matches!(task.observed.phase, TaskPhase::Prepared { .. });
        if !prepared || !task.gang_given || task.stopping.is_some() {
            return;
        }
        task.observed.phase = TaskPhase::Running;
        let attempt = task.observed.attempt.clone();
        let rank = body.order.as_ref().expect("a task has an order").host_idx;
        self.check_start(node, &attempt, rank);
        let (to_write, fails) = (self.rng.between(0, 12) as u32, self.rng.one_in(25));
        self.say(|| format!("rank {rank} of {attempt} starts on {node}"));
        let process =
            Rank { attempt: attempt.clone(), rank, written: 0, to_write, fails, alive: true, reported: false };
        self.bodies.get_mut(node).expect("it runs").ranks.push(process);
        let delay = self.rng.between(1, 200);
        self.work_later(node, delay, Work::Writes(attempt));
    }

    /// A rank writes its next line, or exits. The agent copies the line to the share.
    fn rank_writes(&mut self, node: &NodeId, attempt: &AttemptId) {
        let time = self.time();
        let body = self.bodies.get_mut(node).expect("it works");
        let Some(rank) = body.ranks.iter_mut().find(|rank| rank.attempt == *attempt && !rank.reported) else { return };
        let task = body.local.task.as_mut().expect("a rank has a task");
        if rank.alive && rank.written < rank.to_write {
            let line = Line { attempt: attempt.number, rank: rank.rank, number: rank.written };
            rank.written += 1;
            self.logs.entry(attempt.job.clone()).or_default().push(line);
            self.tally.lines += 1;
            let delay = self.rng.between(1, 400);
            return self.work_later(node, delay, Work::Writes(attempt.clone()));
        }
        let code = match (rank.alive, rank.fails) {
            (true, false) => Some(0),
            (true, true) => Some(3),
            // It was killed.
            (false, _) => None,
        };
        if code == Some(0) {
            self.laws.rank_done(attempt, rank.rank, rank.to_write);
        }
        (rank.alive, rank.reported) = (false, true);
        task.observed.exits.push(exit(rank.rank, code, false, time));
        task.observed.phase = TaskPhase::Ended { failure: None };
    }

    pub fn stop(&mut self, node: &NodeId, grace: Duration) {
        let body = self.bodies.get_mut(node).expect("it is told to stop");
        let task = body.local.task.as_mut().expect("only tasks are stopped");
        task.stopping = Some(grace);
        let attempt = task.observed.attempt.clone();
        // During preparation, the end of the preparation ends it.
        let delay = self.rng.between(1, (grace.as_millis() as u64).max(2));
        self.work_later(node, delay, Work::Stopped(attempt));
    }
}

fn task(attempt: &AttemptId, phase: TaskPhase) -> LocalTask {
    LocalTask::new(ObservedTask { attempt: attempt.clone(), phase, exits: Vec::new() })
}

pub fn failure(at: corro_model::Timestamp) -> TaskFailure {
    TaskFailure { exit_code: None, error: BatchAiError::new(AGENT_RESTARTED, "the agent was restarted"), at }
}

fn exit(rank: usize, code: Option<i32>, stopped: bool, at: corro_model::Timestamp) -> RankExit {
    let signal = if code.is_none() { Some(9) } else { None };
    let (role, stderr_tail, out_of_memory, out_of_processes) = (Role::Rank, String::new(), None, None);
    #[rustfmt::skip]
    let exit = RankExit {
        rank, role, index: rank, exit_code: code, signal, stopped, at, stderr_tail, out_of_memory, out_of_processes,
    };
    exit
}
