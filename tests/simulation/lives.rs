//! Stop and restart of agents: asked to stop, restarted with the state on their disks, or cut off from the server for longer
//! than their lease.

use corro_agent::reconcile::{LocalNode, LocalTask, UNWANTED_GRACE, ended_by_stop};
use corro_model::NodeId;
use corro_model::node::{ObservedTask, TaskPhase};

use super::body::{BEAT, failure};
use super::world::{Event, World};

impl World {
    /// Like `Driver::on_shutdown`: notifies the server, stops running work, then sends the last report.
    pub fn agent_told_to_end(&mut self, node: &NodeId) {
        let Some(body) = self.bodies.get_mut(node).filter(|body| body.alive && body.credential.is_some()) else {
            return self.agent_ends(node);
        };
        if body.stands_still || body.local.ending {
            return;
        }
        body.local.ending = true;
        body.interrupted = body.local.task.as_ref().is_some_and(|task| !task.has_ended());
        let (interrupted, observed) = (body.interrupted, body.local.observed(false));
        self.report(node, observed);
        if interrupted {
            self.stop(node, UNWANTED_GRACE);
        }
        self.settle(node);
    }

    /// Ends with the task. An agent that shuts down begins no new work.
    pub fn go_on_ending(&mut self, node: &NodeId) {
        let time = self.time();
        let Some(body) = self.bodies.get_mut(node).filter(|body| body.alive) else { return };
        if let Some(task) = &mut body.local.task {
            if !task.has_ended() {
                return;
            }
            if body.interrupted && ended_by_stop(&task.observed) {
                task.observed.phase = TaskPhase::Ended { failure: Some(failure(time)) };
            }
        }
        let last_word = body.local.observed(false);
        self.remember_end(node);
        self.report(node, last_word);
        self.agent_ends(node);
    }

    pub fn remember_end(&mut self, node: &NodeId) {
        let Some(body) = self.bodies.get_mut(node).filter(|body| body.alive) else { return };
        if let (Some(begun), Some(task)) = (&mut body.disk, &body.local.task)
            && task.has_ended()
            && begun.attempt == task.observed.attempt
        {
            begun.ended = Some(task.observed.clone());
        }
    }

    /// The node is gone: its agent could only join as another.
    pub fn forget_itself(&mut self, node: &NodeId) {
        if let Some(body) = self.bodies.get_mut(node) {
            (body.credential, body.disk) = (None, None);
        }
    }

    pub fn start_again_after(&mut self, node: &NodeId, pause: u64) {
        let life = self.bodies[node].life;
        self.after(pause, Event::AgentStarts(node.clone(), life));
    }

    /// Like `take_over` and `Driver::new`: leftovers of an earlier incarnation are killed, and the end of its task is reported.
    pub fn agent_starts(&mut self, node: &NodeId, life: u64) {
        let (now, time) = (self.now, self.time());
        let Some(body) = self.bodies.get_mut(node).filter(|body| body.life == life && body.credential.is_some()) else {
            return;
        };
        if body.alive {
            // Two agents cannot share a directory: this one waits until the other has exited.
            if body.local.ending {
                self.start_again_after(node, 100);
            }
            return;
        }
        (body.life, body.alive, body.stands_still) = (life + 1, true, false);
        (body.desired, body.sent, body.order, body.wire) = (None, None, None, None);
        (body.interrupted, body.watches_lease, body.reached) = (false, false, now);
        let interrupted = |attempt| ObservedTask {
            attempt,
            phase: TaskPhase::Ended { failure: Some(failure(time)) },
            exits: Vec::new(),
        };
        let begun = body.disk.clone();
        let task = begun.map(|begun| begun.ended.unwrap_or_else(|| interrupted(begun.attempt)));
        body.local = LocalNode { task: task.map(LocalTask::new), ..LocalNode::default() };
        self.sweep(node);
        self.tally.restarts += 1;
        self.say(|| format!("the agent of {node} starts again"));
        self.after(1, Event::Connect(node.clone(), life + 1));
        self.after(BEAT, Event::Beat(node.clone(), life + 1));
    }

    pub fn agent_is_answered(&mut self, node: &NodeId, wire: u64, sent: u64) {
        if self.keep_for_later(node, || Event::Answer(node.clone(), wire, sent)) {
            return;
        }
        if let Some(body) = self.bodies.get_mut(node).filter(|b| b.alive && b.wire == Some(wire) && !b.cut_off) {
            body.reached = body.reached.max(sent);
        }
    }

    /// Checks the lease from the moment the agent knows of it.
    pub fn watch_lease(&mut self, node: &NodeId) {
        let now = self.now;
        let Some(body) = self.bodies.get_mut(node).filter(|body| body.alive && !body.watches_lease) else { return };
        if let Some(lease) = body.desired.as_ref().and_then(|desired| desired.lease_ms) {
            body.watches_lease = true;
            let (life, over) = (body.life, body.reached + lease * 2 / 3);
            self.after(over.saturating_sub(now), Event::Lease(node.clone(), life));
        }
    }

    /// Ends all work before the server gives the node up.
    pub fn check_lease(&mut self, node: &NodeId, life: u64) {
        if self.keep_for_later(node, || Event::Lease(node.clone(), life)) {
            return;
        }
        let now = self.now;
        let Some(body) = self.bodies.get_mut(node).filter(|body| body.is(life) && !body.local.ending) else { return };
        let lease = body.desired.as_ref().and_then(|desired| desired.lease_ms).unwrap_or_default();
        if body.reached + lease * 2 / 3 <= now {
            self.say(|| format!("{node} has lost the server"));
            return self.body_fenced(node);
        }
        body.watches_lease = false;
        self.watch_lease(node);
    }
}
