//! Lifecycle of the node's task: begin or decline an order, stop it, record its end in the journal, and clean up after it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use corro_model::node::{ElasticWorld, ObservedTask, TaskOrder, TaskPhase};

use super::Driver;
use crate::events::{Event, Reporter};
use crate::limits::AppliedLimits;
use crate::node::reconcile::{DeclineReason, LocalNode, LocalTask};
use crate::output::execution_log::ExecutionLog;
use crate::state::attempt_journal::AttemptRecord;
use crate::task::Task;
use crate::task::control::TaskControl;
use crate::task_errors;

/// How long the agent waits for a task when it ends. Processes that survive SIGKILL must not keep it from ending.
const TASK_END_TIMEOUT: Duration = Duration::from_secs(30);

impl Driver {
    pub(super) fn begin(&mut self, order: &TaskOrder) {
        let record = AttemptRecord::new(order);
        if let Err(error) = self.context.journal.write_begin(&record) {
            // Without the journal a crash could run the attempt twice.
            let failure = self.storage_failure(&error);
            return self.set_task(order, TaskPhase::Ended { failure: Some(failure) });
        }
        self.record = Some(record);
        self.set_task(order, TaskPhase::Preparing);
        self.task_began = Some(Instant::now());
        let (control, receiver) = watch::channel(TaskControl::default());
        self.control = control;
        let task = Task {
            context: self.context.clone(),
            order: Arc::new(order.clone()),
            cluster_volumes: self.local.volumes.clone().unwrap_or_default().into(),
            control: receiver,
            reporter: Reporter { attempt: order.attempt.clone(), events: self.sender.clone() },
            log: ExecutionLog::new(),
            rendezvous: None,
            counters: None,
            applied_limits: AppliedLimits::default(),
            container: None,
            remote_exec: None,
            ports: None,
            was_killed: false,
        };
        self.work.spawn(task.run());
    }

    pub(super) fn decline(&mut self, order: &TaskOrder, reason: DeclineReason) {
        let failure = match reason {
            DeclineReason::Stopped => None,
            DeclineReason::Restarted => Some(task_errors::agent_restarted(&self.context.node)),
            DeclineReason::NotReady => self.local.problem().cloned().map(task_errors::failed),
        };
        self.set_task(order, TaskPhase::Ended { failure });
    }

    fn set_task(&mut self, order: &TaskOrder, phase: TaskPhase) {
        let observed = ObservedTask { attempt: order.attempt.clone(), phase, exits: Vec::new(), elastic: None };
        self.local.task = Some(LocalTask::new(observed));
        (self.task_began, self.task_expected_end) = (None, None);
    }

    /// Passes the server's decisions on to the task, and remembers them for a server that is restarted.
    pub(super) fn update_world(&mut self, world: &Arc<ElasticWorld>) {
        self.control.send_modify(|control| control.world = Some(Arc::clone(world)));
        if let Some(task) = &mut self.local.task {
            task.world = Some(Arc::clone(world));
            task.observed.elastic.get_or_insert_default().world = Some((**world).clone());
        }
    }

    pub(super) fn stop(&mut self, grace: Duration) {
        self.control.send_modify(|control| control.stop = Some(grace));
        self.local.task.iter_mut().for_each(|task| task.stopping = Some(grace));
    }

    pub(super) fn clean(&mut self) {
        let Some(task) = &mut self.local.task else { return };
        task.cleaning = true;
        self.control.send_modify(|control| control.gang_ended = true);
        let attempt = task.observed.attempt.clone();
        let (record, context, events) = (self.record.take(), self.context.clone(), self.sender.clone());
        self.work.spawn(async move {
            let cleaned = spawn_blocking(move || match record {
                Some(record) => {
                    // Leftovers are removed when the next job starts; the attempt itself is over.
                    let cleaned = record.remove_directories(&context.directories);
                    context.journal.clear().and(cleaned)
                }
                None => Ok(()),
            });
            if let Ok(Err(error)) = cleaned.await {
                tracing::warn!(%error, %attempt, "not all of a job's directories could be removed");
            }
            let _ = events.send(Event::Cleaned(attempt)).await;
        });
    }

    /// Stops the running task, if there is one, and waits for its end.
    pub(super) async fn end_task(&mut self, grace: Duration) {
        let running = |local: &LocalNode| local.task.as_ref().is_some_and(|task| !task.has_ended());
        if !running(&self.local) {
            return;
        }
        self.stop(grace);
        let ended = timeout(TASK_END_TIMEOUT, async {
            while running(&self.local) {
                tokio::select! {
                    Some(event) = self.events.recv() => drop(self.on_event(event)),
                    Some(joined) = self.work.join_next(), if !self.work.is_empty() => self.on_work_done(joined),
                }
            }
        });
        if ended.await.is_err() {
            tracing::warn!("a task did not end in time and is left to its guards");
        }
    }

    pub(super) fn journal_end(&mut self) {
        if let (Some(record), Some(task)) = (&mut self.record, &self.local.task) {
            record.ended = Some(task.observed.clone());
            if let Err(error) = self.context.journal.write_end(&task.observed) {
                tracing::warn!(%error, "cannot write the end of a task to the journal");
            }
        }
    }
}
