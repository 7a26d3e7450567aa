//! Invariants checked after every event, and at the end of a run. A violation panics with the observed state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use corro_model::state::{JobState, NodeState};
use corro_model::{AttemptId, JobKey, NodeId};
use corro_server::reconcile::scaling::NODE_PREEMPTED;
use corro_store::{JobRecord, State};

use super::world::{LogLine, World};

#[derive(Default)]
pub struct Invariants {
    /// Jobs whose submission was acknowledged: these must end.
    pub acknowledged: BTreeSet<JobKey>,
    /// First terminal state of each.
    ended: BTreeMap<JobKey, JobState>,
    /// Nodes that were declared lost.
    lost: BTreeSet<NodeId>,
    /// Nodes that have prepared an attempt.
    prepared: BTreeSet<(AttemptId, NodeId)>,
    /// Lines written by each rank that exited with 0.
    done: BTreeMap<(AttemptId, usize), u32>,
    /// Jobs that each job waits for.
    dependencies: BTreeMap<JobKey, Vec<JobKey>>,
    /// Agent incarnations per node that the server has seen.
    incarnations: BTreeMap<NodeId, u64>,
}

impl Invariants {
    pub fn prepared(&mut self, attempt: &AttemptId, node: &NodeId) {
        self.prepared.insert((attempt.clone(), node.clone()));
    }

    pub fn submitted_after(&mut self, job: &JobKey, dependencies: &[JobKey]) {
        self.dependencies.insert(job.clone(), dependencies.to_vec());
    }

    pub fn connected(&mut self, node: &NodeId, incarnation: u64) {
        self.incarnations.insert(node.clone(), incarnation + 1);
    }

    pub fn rank_done(&mut self, attempt: &AttemptId, rank: usize, lines: u32) {
        self.done.insert((attempt.clone(), rank), lines);
    }
}

impl World {
    /// Writes to the disk; every write goes through here.
    pub fn commit(&mut self, after: State) {
        let before = std::mem::replace(&mut self.disk, Arc::new(after));
        self.check_nodes();
        let jobs: Vec<_> = self.disk.jobs.iter().map(|(key, job)| (key.clone(), job.clone())).collect();
        for (key, job) in jobs {
            let old = before.jobs.get(&key).filter(|old| !Arc::ptr_eq(old, &job));
            if let Some(old) = old {
                self.check_change(&key, old, &job);
            }
        }
        for (id, node) in &self.disk.nodes {
            if matches!(node.state(), NodeState::Unusable { lost: true, .. }) && self.invariants.lost.insert(id.clone())
            {
                self.stats.nodes_lost += 1;
            }
        }
    }

    /// No node is in two jobs, and a gang has all its nodes or none.
    fn check_nodes(&self) {
        let mut taken: BTreeMap<&NodeId, &JobKey> = BTreeMap::new();
        for (key, job) in &self.disk.jobs {
            let nodes = job.state().nodes();
            let wanted = job.spec.node_count as usize;
            assert!(nodes.is_empty() || nodes.len() == wanted, "{key} has {} of {wanted} nodes", nodes.len());
            for node in nodes {
                let other = taken.insert(node, key);
                assert!(other.is_none(), "node {node} is in {key} and in {other:?}");
            }
        }
        for (id, node) in &self.disk.nodes {
            if let NodeState::Running { job, attempt } = node.state() {
                let record =
                    self.disk.jobs.get(job).unwrap_or_else(|| panic!("{id} is busy with {job}, which is gone"));
                assert!(record.state().nodes().contains(id), "{id} is busy with {job}, which does not know it");
                assert_eq!(record.attempt(), *attempt, "{id} is busy with another attempt at {job}");
            }
        }
    }

    fn check_change(&mut self, key: &JobKey, old: &JobRecord, new: &JobRecord) {
        assert!(!old.state().is_terminal() || old.state() == new.state(), "{key} changed after its end");
        let was_placed = !old.state().nodes().is_empty();
        if new.attempts > old.attempts {
            self.check_dependencies_met(key, new);
        }
        // The next attempt may begin in the same commit.
        if was_placed && (new.state().nodes().is_empty() || new.attempts > old.attempts) {
            // The attempt is over: none of its ranks may still run, anywhere.
            let attempt = old.attempt();
            for (node, agent) in &self.agents {
                let left = agent.ranks.iter().find(|rank| rank.alive && rank.attempt == attempt);
                assert!(left.is_none(), "{attempt} has ended and still runs on {node}");
            }
            self.stats.requeued += u64::from(!new.state().is_terminal());
            let last = new.lost_attempts.get(old.lost_attempts.len());
            self.stats.preempted += u64::from(last.is_some_and(|lost| lost.reason.code == NODE_PREEMPTED));
            self.stats.retried += u64::from(new.failed_attempts() - old.failed_attempts());
            self.check_retries(key, new);
            self.check_failed_attempts(key, new);
            self.check_losses(key, new);
            self.check_done_not_repeated(key, old, new);
        }
        if new.state().is_terminal() && !old.state().is_terminal() {
            let state = new.state().clone();
            self.check_dependency_failure(key, &state);
            if matches!(state, JobState::Succeeded { .. }) {
                self.stats.succeeded += 1;
                self.check_log_complete(key, new);
            }
            assert!(self.record_terminal_state(key, state).is_none(), "{key} ended twice");
        }
    }

    /// Three lost nodes end a job, and no other fault of its nodes does.
    fn check_retries(&self, key: &JobKey, job: &JobRecord) {
        let lost = job.lost_attempts.iter().filter(|lost| lost.reason.code == "NodeLost").count();
        assert!(lost < 3, "{key} lost {lost} nodes and is tried again");
        if let JobState::Failed { errors, .. } = job.state()
            && errors.iter().any(|error| error.code == "NodeLost")
        {
            assert_eq!(lost, 2, "{key} is given up after {lost} lost nodes and another one: {:?}", job.lost_attempts);
        }
    }

    /// A failing program is run again as often as the job asks for, and never more often.
    fn check_failed_attempts(&self, key: &JobKey, job: &JobRecord) {
        let (failed, most) = (job.failed_attempts(), job.spec.constraints.max_retry_count);
        let recorded = job.lost_attempts.iter().filter(|attempt| attempt.exit_code.is_some()).count();
        assert_eq!(recorded, failed as usize, "failed attempts of {key}: {:?}", job.lost_attempts);
        assert!(failed <= most, "{key} was retried {failed} times, more than {most}");
        if let JobState::Failed { started, ended, errors, .. } = job.state()
            && errors.iter().any(|error| error.code == "JobFailed")
            && ended.since(*started) < job.spec.constraints.max_wall_clock_time.0
        {
            assert_eq!(failed, most, "{key} is given up: {:?}", job.lost_attempts);
        }
    }

    /// A job is placed after all its dependencies have succeeded.
    fn check_dependencies_met(&mut self, key: &JobKey, job: &JobRecord) {
        let dependencies = self.invariants.dependencies.get(key).map(Vec::as_slice).unwrap_or_default();
        for dependency in dependencies {
            let state = self.disk.jobs[dependency].state();
            assert!(
                matches!(state, JobState::Succeeded { .. }),
                "{key} is placed, and {dependency} is {}",
                state.name()
            );
        }
        self.stats.dependents += u64::from(job.attempts == 1 && !dependencies.is_empty());
    }

    /// Only a dependency that did not succeed fails a job that waits for it.
    fn check_dependency_failure(&self, key: &JobKey, state: &JobState) {
        let JobState::Failed { errors, .. } = state else { return };
        if errors.iter().any(|error| error.code == "DependencyFailed") {
            let failed = |dependency: &&JobKey| matches!(self.disk.jobs[*dependency].state(), JobState::Failed { .. });
            assert!(self.invariants.dependencies[key].iter().any(|key| failed(&key)), "{key} failed: {errors:?}");
        }
    }

    /// One agent incarnation costs a job at most one attempt: an agent that lost a job is not given it again.
    fn check_losses(&self, key: &JobKey, job: &JobRecord) {
        let mut losses: BTreeMap<&str, u64> = BTreeMap::new();
        let lost_attempts = job.lost_attempts.iter().filter(|attempt| attempt.exit_code.is_none());
        let details = lost_attempts.flat_map(|lost| &lost.reason.details);
        for node in details.filter(|detail| detail.name == "Node") {
            *losses.entry(&node.value).or_default() += 1;
        }
        for (node, losses) in losses {
            let incarnations = self
                .invariants
                .incarnations
                .iter()
                .find(|(id, _)| id.as_str() == node)
                .map_or(0, |(_, incarnations)| *incarnations);
            assert!(
                losses <= incarnations.max(1),
                "{key} was lost {losses} times by {node}, whose agent lived {incarnations} times"
            );
        }
    }

    /// Finished work is not repeated: a job of one node whose rank reported success to this server does not run again, whatever
    /// happens to its agent.
    fn check_done_not_repeated(&self, key: &JobKey, old: &JobRecord, new: &JobRecord) {
        let (attempt, requeued) = (old.attempt(), new.lost_attempts.len() > old.lost_attempts.len());
        let heard = self.server.as_ref().is_some_and(|server| server.reported_done.contains(&attempt));
        let repeated = requeued && heard && old.spec.node_count == 1;
        assert!(!repeated, "{attempt} of {key} was done, and is to run again: {:?}", new.lost_attempts.last());
    }

    fn record_terminal_state(&mut self, key: &JobKey, state: JobState) -> Option<JobState> {
        self.invariants.ended.insert(key.clone(), state)
    }

    /// For a succeeded job, every rank of its last attempt has exited with 0, with every line in the log.
    fn check_log_complete(&self, key: &JobKey, job: &JobRecord) {
        let attempt = job.attempt();
        let log = self.logs.get(&job.guid).map(Vec::as_slice).unwrap_or_default();
        for rank in 0..job.spec.node_count as usize {
            let lines = self.invariants.done.get(&(attempt.clone(), rank));
            let lines = *lines.unwrap_or_else(|| panic!("{key} succeeded, but its rank {rank} did not"));
            let found = log.iter().filter(|line| line.attempt == attempt.number && line.rank == rank).count();
            assert_eq!(found, lines as usize, "lines of rank {rank} in the log of {key} when it was declared ended");
        }
    }

    /// Before a rank starts: its attempt is the current one, the whole gang is prepared, nothing else runs here, and no other
    /// attempt of this job runs anywhere.
    pub fn check_start(&self, node: &NodeId, attempt: &AttemptId, rank: usize) {
        let (key, job) = self
            .disk
            .jobs
            .iter()
            .find(|(_, job)| job.guid == attempt.job)
            .unwrap_or_else(|| panic!("{attempt} starts on {node}, but its job is gone"));
        assert_eq!(job.attempt(), *attempt, "an old attempt at {key} starts on {node}");
        assert!(!job.state().nodes().is_empty(), "rank {rank} of {key} starts on {node}, but the job holds no nodes");
        for other in job.state().nodes() {
            let ready = self.invariants.prepared.contains(&(attempt.clone(), other.clone()));
            assert!(ready, "rank {rank} of {key} starts on {node}, but {other} never was prepared");
        }
        for (place, agent) in &self.agents {
            for running in agent.ranks.iter().filter(|running| running.alive) {
                assert!(place != node, "{attempt} starts on {node}, where {} still runs", running.attempt);
                let same_job = running.attempt.job == attempt.job;
                assert!(!same_job || running.attempt == *attempt, "{key} runs twice at once: on {place} and {node}");
            }
        }
    }

    /// A node that was given up only ever receives the fence order.
    pub fn check_order(&self, node: &NodeId) {
        assert!(!self.invariants.lost.contains(node), "{node} was declared lost and is given orders");
    }

    pub fn unfinished(&self) -> Vec<&JobKey> {
        let ended = |key: &&JobKey| self.disk.jobs.get(*key).is_some_and(|job| job.state().is_terminal());
        self.invariants.acknowledged.iter().filter(|key| !ended(key)).collect()
    }

    pub fn is_idle(&self) -> bool {
        self.unfinished().is_empty() && self.followers.iter().all(|follower| follower.done)
    }

    pub fn check_idle(&mut self) {
        assert_eq!(self.unfinished(), Vec::<&JobKey>::new(), "acknowledged, and never ended");
        for job in self.disk.jobs.values() {
            let log = self.logs.get(&job.guid).map(Vec::as_slice).unwrap_or_default();
            let distinct: BTreeSet<&LogLine> = log.iter().collect();
            assert_eq!(distinct.len(), log.len(), "{} has a line twice", job.name);
        }
        for follower in &self.followers {
            let guid = &self.disk.jobs[&follower.job].guid;
            let log = self.logs.get(guid).map(Vec::as_slice).unwrap_or_default();
            assert_eq!(follower.read, log, "who followed {} has other lines than its log", follower.job);
        }
        self.stats.jobs = self.invariants.acknowledged.len() as u64;
    }
}
