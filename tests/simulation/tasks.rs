//! Simulated tasks of an agent: preparation, ranks that write lines and exit, stop and cleanup.

use std::time::Duration;

use corro_model::layout::Role;
use corro_model::node::{GangAddress, RankExit, TaskPhase};
use corro_model::{AttemptId, NodeId};

use super::world::{Event, LogLine, World};

/// Process of a rank.
pub struct Rank {
    pub attempt: AttemptId,
    pub rank: usize,
    written: u32,
    to_write: u32,
    fails: bool,
    pub alive: bool,
    reported: bool,
}

/// Steps of a task, that each take some time.
#[derive(Clone, Debug)]
pub enum TaskEvent {
    Prepared(AttemptId),
    Writes(AttemptId),
    Stopped(AttemptId),
    Cleaned(AttemptId),
}

impl World {
    pub fn schedule_task_event(&mut self, node: &NodeId, delay: u64, event: TaskEvent) {
        let incarnation = self.agents[node].incarnation;
        self.schedule(delay, Event::Task(node.clone(), incarnation, event));
    }

    pub fn on_task_event(&mut self, node: &NodeId, incarnation: u64, event: TaskEvent) {
        if self.defer_if_frozen(node, || Event::Task(node.clone(), incarnation, event.clone())) {
            return;
        }
        let time = self.time();
        let Some(agent) = self.agents.get_mut(node).filter(|agent| agent.is_incarnation(incarnation)) else { return };
        let attempt = match &event {
            TaskEvent::Prepared(attempt)
            | TaskEvent::Writes(attempt)
            | TaskEvent::Stopped(attempt)
            | TaskEvent::Cleaned(attempt) => attempt,
        };
        let Some(task) = agent.local.task.as_mut().filter(|task| task.observed.attempt == *attempt) else { return };
        match event {
            TaskEvent::Prepared(_) if task.has_ended() => {}
            TaskEvent::Prepared(_) if task.stopping.is_some() => {
                task.observed.phase = TaskPhase::Ended { failure: None }
            }
            TaskEvent::Prepared(_) => {
                let master = agent.order.as_ref().is_some_and(|order| order.is_master());
                let gang = GangAddress::new("127.0.0.4", 1, 2);
                task.observed.phase = TaskPhase::Prepared { gang: master.then_some(gang) };
                self.invariants.prepared(&task.observed.attempt, node);
                self.run_if_ready(node);
            }
            TaskEvent::Writes(attempt) => self.rank_writes(node, &attempt),
            TaskEvent::Stopped(attempt) => {
                for rank in agent.ranks.iter_mut().filter(|rank| rank.attempt == attempt && !rank.reported) {
                    (rank.alive, rank.reported) = (false, true);
                    task.observed.exits.push(exit(rank.rank, None, true, time));
                }
                if !task.has_ended() {
                    task.observed.phase = TaskPhase::Ended { failure: None };
                }
            }
            TaskEvent::Cleaned(attempt) => {
                agent.journal.take_if(|begun| begun.attempt == attempt);
                agent.local.task = None;
                agent.local.last_cleaned = Some(attempt);
            }
        }
        self.reconcile(node);
    }

    pub fn run_if_ready(&mut self, node: &NodeId) {
        let Some(agent) = self.agents.get_mut(node) else { return };
        let Some(task) = agent.local.task.as_mut() else { return };
        let prepared = matches!(task.observed.phase, TaskPhase::Prepared { .. });
        if !prepared || !task.gang_given || task.stopping.is_some() {
            return;
        }
        task.observed.phase = TaskPhase::Running;
        let attempt = task.observed.attempt.clone();
        let rank = agent.order.as_ref().expect("a task has an order").host_idx;
        self.check_start(node, &attempt, rank);
        let (to_write, fails) = (self.rng.between(0, 12) as u32, self.rng.one_in(25));
        self.log(|| format!("rank {rank} of {attempt} starts on {node}"));
        let process =
            Rank { attempt: attempt.clone(), rank, written: 0, to_write, fails, alive: true, reported: false };
        self.agents.get_mut(node).expect("it runs").ranks.push(process);
        let delay = self.rng.between(1, 200);
        self.schedule_task_event(node, delay, TaskEvent::Writes(attempt));
    }

    /// A rank writes its next line, or exits. The agent copies the line to the share.
    fn rank_writes(&mut self, node: &NodeId, attempt: &AttemptId) {
        let time = self.time();
        let agent = self.agents.get_mut(node).expect("it works");
        let Some(rank) = agent.ranks.iter_mut().find(|rank| rank.attempt == *attempt && !rank.reported) else { return };
        let task = agent.local.task.as_mut().expect("a rank has a task");
        if rank.alive && rank.written < rank.to_write {
            let line = LogLine { attempt: attempt.number, rank: rank.rank, number: rank.written };
            rank.written += 1;
            self.logs.entry(attempt.job.clone()).or_default().push(line);
            self.stats.lines += 1;
            let delay = self.rng.between(1, 400);
            return self.schedule_task_event(node, delay, TaskEvent::Writes(attempt.clone()));
        }
        let code = match (rank.alive, rank.fails) {
            (true, false) => Some(0),
            (true, true) => Some(3),
            // It was killed.
            (false, _) => None,
        };
        if code == Some(0) {
            self.invariants.rank_done(attempt, rank.rank, rank.to_write);
        }
        (rank.alive, rank.reported) = (false, true);
        task.observed.exits.push(exit(rank.rank, code, false, time));
        task.observed.phase = TaskPhase::Ended { failure: None };
    }

    pub fn stop(&mut self, node: &NodeId, grace: Duration) {
        let agent = self.agents.get_mut(node).expect("it is asked to stop");
        let task = agent.local.task.as_mut().expect("only tasks are stopped");
        task.stopping = Some(grace);
        let attempt = task.observed.attempt.clone();
        // During preparation, the end of the preparation ends it.
        let delay = self.rng.between(1, (grace.as_millis() as u64).max(2));
        self.schedule_task_event(node, delay, TaskEvent::Stopped(attempt));
    }
}

fn exit(rank: usize, code: Option<i32>, stopped: bool, at: corro_model::Timestamp) -> RankExit {
    let signal = if code.is_none() { Some(9) } else { None };
    let (role, stderr_tail, out_of_memory, out_of_processes) = (Role::Rank, String::new(), None, None);
    #[rustfmt::skip]
    let exit = RankExit {
        rank, role, index: rank, exit_code: code, signal, stopped, at, stderr_tail, out_of_memory, out_of_processes,
        gpu_errors: Vec::new(),
    };
    exit
}
