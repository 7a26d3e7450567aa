//! Stop and restart of agents: asked to stop, restarted with the state on their disks, or cut off from the server for longer
//! than their lease.

use corro_agent::reconcile::{LocalNode, LocalTask, UNWANTED_GRACE, ended_by_stop};
use corro_model::NodeId;
use corro_model::node::{ObservedTask, TaskPhase};

use super::agent::{HEARTBEAT_MS, failure};
use super::world::{Event, World};

impl World {
    /// Like `Driver::on_shutdown`: notifies the server, stops running work, then sends the last report.
    pub fn shut_down_agent(&mut self, node: &NodeId) {
        let Some(agent) = self.agents.get_mut(node).filter(|agent| agent.alive && agent.credential.is_some()) else {
            return self.agent_ends(node);
        };
        if agent.frozen || agent.local.ending {
            return;
        }
        agent.local.ending = true;
        agent.interrupted = agent.local.task.as_ref().is_some_and(|task| !task.has_ended());
        let (interrupted, observed) = (agent.interrupted, agent.local.observed(false));
        self.report(node, observed);
        if interrupted {
            self.stop(node, UNWANTED_GRACE);
        }
        self.reconcile(node);
    }

    /// Ends with the task. An agent that shuts down begins no new work.
    pub fn continue_shutdown(&mut self, node: &NodeId) {
        let time = self.time();
        let Some(agent) = self.agents.get_mut(node).filter(|agent| agent.alive) else { return };
        if let Some(task) = &mut agent.local.task {
            if !task.has_ended() {
                return;
            }
            if agent.interrupted && ended_by_stop(&task.observed) {
                task.observed.phase = TaskPhase::Ended { failure: Some(failure(time)) };
            }
        }
        let last_report = agent.local.observed(false);
        self.record_end(node);
        self.report(node, last_report);
        self.agent_ends(node);
    }

    pub fn record_end(&mut self, node: &NodeId) {
        let Some(agent) = self.agents.get_mut(node).filter(|agent| agent.alive) else { return };
        if let (Some(begun), Some(task)) = (&mut agent.journal, &agent.local.task)
            && task.has_ended()
            && begun.attempt == task.observed.attempt
        {
            begun.ended = Some(task.observed.clone());
        }
    }

    /// The node is gone: its agent could only join as another.
    pub fn erase_identity(&mut self, node: &NodeId) {
        if let Some(agent) = self.agents.get_mut(node) {
            (agent.credential, agent.journal) = (None, None);
        }
    }

    pub fn schedule_restart(&mut self, node: &NodeId, pause: u64) {
        let incarnation = self.agents[node].incarnation;
        self.schedule(pause, Event::AgentStarts(node.clone(), incarnation));
    }

    /// Like `take_over` and `Driver::new`: leftovers of an earlier incarnation are killed, and the end of its task is reported.
    pub fn agent_starts(&mut self, node: &NodeId, incarnation: u64) {
        let (now, time) = (self.now, self.time());
        let Some(agent) =
            self.agents.get_mut(node).filter(|agent| agent.incarnation == incarnation && agent.credential.is_some())
        else {
            return;
        };
        if agent.alive {
            // Two agents cannot share a directory: this one waits until the other has exited.
            if agent.local.ending {
                self.schedule_restart(node, 100);
            }
            return;
        }
        (agent.incarnation, agent.alive, agent.frozen) = (incarnation + 1, true, false);
        (agent.desired, agent.sent, agent.order, agent.conn) = (None, None, None, None);
        (agent.interrupted, agent.watches_lease, agent.last_contact) = (false, false, now);
        let interrupted = |attempt| ObservedTask {
            attempt,
            phase: TaskPhase::Ended { failure: Some(failure(time)) },
            exits: Vec::new(),
            elastic: None,
        };
        let begun = agent.journal.clone();
        let task = begun.map(|begun| begun.ended.unwrap_or_else(|| interrupted(begun.attempt)));
        agent.local = LocalNode { task: task.map(LocalTask::new), ..LocalNode::default() };
        self.kill_ranks(node);
        self.stats.restarts += 1;
        self.log(|| format!("the agent of {node} starts again"));
        self.schedule(1, Event::Connect(node.clone(), incarnation + 1));
        self.schedule(HEARTBEAT_MS, Event::Heartbeat(node.clone(), incarnation + 1));
    }

    pub fn agent_receives_ack(&mut self, node: &NodeId, conn: u64, sent: u64) {
        if self.defer_if_frozen(node, || Event::HeartbeatAck(node.clone(), conn, sent)) {
            return;
        }
        if let Some(agent) = self.agents.get_mut(node).filter(|b| b.alive && b.conn == Some(conn) && !b.cut_off) {
            agent.last_contact = agent.last_contact.max(sent);
        }
    }

    /// Checks the lease from the moment the agent knows of it.
    pub fn watch_lease(&mut self, node: &NodeId) {
        let now = self.now;
        let Some(agent) = self.agents.get_mut(node).filter(|agent| agent.alive && !agent.watches_lease) else { return };
        if let Some(lease) = agent.desired.as_ref().and_then(|desired| desired.lease_ms) {
            agent.watches_lease = true;
            let (incarnation, over) = (agent.incarnation, agent.last_contact + lease * 2 / 3);
            self.schedule(over.saturating_sub(now), Event::Lease(node.clone(), incarnation));
        }
    }

    /// Ends all work before the server gives the node up.
    pub fn check_lease(&mut self, node: &NodeId, incarnation: u64) {
        if self.defer_if_frozen(node, || Event::Lease(node.clone(), incarnation)) {
            return;
        }
        let now = self.now;
        let Some(agent) =
            self.agents.get_mut(node).filter(|agent| agent.is_incarnation(incarnation) && !agent.local.ending)
        else {
            return;
        };
        let lease = agent.desired.as_ref().and_then(|desired| desired.lease_ms).unwrap_or_default();
        if agent.last_contact + lease * 2 / 3 <= now {
            self.log(|| format!("{node} has lost the server"));
            return self.agent_fenced(node);
        }
        agent.watches_lease = false;
        self.watch_lease(node);
    }
}
