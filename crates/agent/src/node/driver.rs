//! Carries out the actions that `reconcile` decides, one event at a time. Owns the running task, the setup task, the
//! SSH server and the cleaner: nothing of a node outlives its driver. Makes no decisions about jobs.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use corro_base::error_chain;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet, spawn_blocking};
use tokio::time::Instant;

use corro_model::AttemptId;
use corro_model::node::{
    DesiredNode, Login, ObservedElastic, ObservedNode, ObservedTask, SharedDiskProbe, TaskFailure, TaskPhase, Volume,
};

use crate::AgentEnd;
use crate::events::Event;
use crate::node::reconcile::{Action, LocalNode, LocalTask, UNWANTED_GRACE, ended_by_stop, next_action};
use crate::node::setup::{SetupProgress, SetupTask};
use crate::ssh_server::{self, SshServer};
use crate::state::attempt_journal::{AttemptJournal, AttemptRecord};
use crate::state::lease::Lease;
use crate::state::observation::Observation;
use crate::storage::mounts;
use crate::task::control::TaskControl;
use crate::task::node_context::NodeContext;
use crate::task_errors;

mod task_lifecycle;

/// The node's control loop and everything that it owns.
#[derive(Debug)]
pub struct Driver {
    context: NodeContext,
    desired: Option<Arc<DesiredNode>>,
    local: LocalNode,
    /// Journal record of the current task: what it leaves on the disk.
    record: Option<AttemptRecord>,
    control: watch::Sender<TaskControl>,
    work: JoinSet<()>,
    ssh_server: Option<SshServer>,
    setup: Option<SetupTask>,
    /// The server's probe file, and whether this machine sees it.
    probe: Option<(SharedDiskProbe, bool)>,
    /// When this agent began the current task.
    task_began: Option<Instant>,
    /// Estimated end of the current task.
    task_expected_end: Option<Instant>,
    observed: watch::Sender<Observation>,
    lease: Lease,
    sender: mpsc::Sender<Event>,
    events: mpsc::Receiver<Event>,
}

impl Driver {
    /// A driver that continues after an earlier agent: nothing is running, and the end of that agent's task is still to
    /// be reported.
    pub fn new(
        context: NodeContext,
        record: Option<AttemptRecord>,
        observed: watch::Sender<Observation>,
        reached: watch::Receiver<Instant>,
        (sender, events): (mpsc::Sender<Event>, mpsc::Receiver<Event>),
    ) -> Driver {
        let interrupted = |record: &AttemptRecord| ObservedTask {
            attempt: record.attempt.clone(),
            phase: TaskPhase::Ended { failure: Some(task_errors::agent_restarted(&context.node)) },
            exits: Vec::new(),
            elastic: None,
        };
        let task = record.as_ref().map(|record| record.ended.clone().unwrap_or_else(|| interrupted(record)));
        let local = LocalNode { task: task.map(LocalTask::new), ..LocalNode::default() };
        let (control, _) = watch::channel(TaskControl::default());
        let work = JoinSet::new();
        let (desired, ssh_server, setup, probe) = (None, None, None, None);
        let (task_began, task_expected_end) = (None, None);
        let lease = Lease::new(reached, context.config.guard.clone(), context.lease_expiry.clone());
        #[rustfmt::skip]
        let driver = Driver {
            context, desired, local, record, control, work, ssh_server, setup, probe, task_began, task_expected_end, observed, lease,
            sender, events,
        };
        driver.publish();
        driver
    }

    /// Runs until the node is retired or fenced, or `shutdown` resolves.
    pub async fn drive(mut self, mut shutdown: Pin<&mut impl Future<Output = ()>>) -> AgentEnd {
        loop {
            if let Some(length) = self.lease.expired() {
                return self.on_lease_over(length).await;
            }
            // Handles all pending events before reporting, so that they go into one report.
            while let Ok(event) = self.events.try_recv() {
                if let Some(reason) = self.on_event(event) {
                    return self.on_fenced(reason).await;
                }
            }
            if let Some(end) = self.apply_actions().await {
                return end;
            }
            tokio::select! {
                Some(event) = self.events.recv() => {
                    if let Some(reason) = self.on_event(event) {
                        return self.on_fenced(reason).await;
                    }
                }
                Some(joined) = self.work.join_next(), if !self.work.is_empty() => self.on_work_done(joined),
                length = self.lease.wait_expired() => return self.on_lease_over(length).await,
                () = &mut shutdown => return self.on_shutdown().await,
            }
        }
    }

    /// Executes actions until there are none; returns the end if one of them is final.
    async fn apply_actions(&mut self) -> Option<AgentEnd> {
        if let Some(desired) = self.desired.clone() {
            while let Some(action) = next_action(&desired, &self.local) {
                match action {
                    Action::MountVolumes(volumes) => self.mount(volumes).await,
                    Action::SetUp(order) => {
                        self.local.setup = SetupProgress::Running;
                        self.setup = Some(SetupTask::start(&self.context, order, self.sender.clone()));
                    }
                    Action::SetLogin(login) => self.set_login(login).await,
                    Action::Begin(order) => self.begin(order),
                    Action::Decline(order, reason) => self.decline(order, reason),
                    Action::Run(gang) => {
                        self.control.send_modify(|control| control.gang = Some(gang.clone()));
                        self.local.task.iter_mut().for_each(|task| task.gang_given = true);
                    }
                    Action::RunAlone => {
                        self.control.send_modify(|control| control.alone = true);
                        self.local.task.iter_mut().for_each(|task| task.gang_given = true);
                    }
                    Action::UpdateWorld(world) => self.update_world(world),
                    Action::Stop(grace) => self.stop(grace),
                    Action::Clean => self.clean(),
                    Action::Retire => return Some(self.retire().await),
                }
            }
        }
        self.publish();
        None
    }

    /// Handles an event; returns the reason if the node is fenced.
    fn on_event(&mut self, event: Event) -> Option<String> {
        match event {
            Event::Desired(desired) => {
                let desired = if self.can_see_server_dirs(desired.shared_disk_probe.as_ref()) {
                    *desired
                } else {
                    desired.from_elsewhere()
                };
                self.lease.set(desired.lease_ms.map(Duration::from_millis));
                self.context.strict_cluster.store(desired.strict_isolation, Ordering::Relaxed);
                self.desired = Some(Arc::new(desired));
            }
            Event::Fenced(reason) => return Some(reason),
            Event::Phase(attempt, phase) => self.on_phase(&attempt, phase),
            Event::Exited(attempt, exit) => {
                if let Some(task) = self.task_for(&attempt) {
                    task.observed.exits.push(exit);
                }
            }
            Event::Elastic(attempt, observed) => {
                if let Some(task) = self.task_for(&attempt) {
                    let world = task.world.as_deref().cloned();
                    task.observed.elastic = Some(Box::new(ObservedElastic { world, ..*observed }));
                }
            }
            Event::ExpectedEnd(attempt, at) => {
                if self.task_for(&attempt).is_some() {
                    self.task_expected_end = Some(at);
                }
            }
            Event::Stuck(error) => self.local.stuck = Some(*error),
            Event::SetUp(result) => {
                self.setup = None;
                self.local.setup = match result {
                    Ok(()) => SetupProgress::Done,
                    Err(error) => SetupProgress::Failed(*error),
                };
            }
            Event::Cleaned(attempt) => {
                if self.task_for(&attempt).is_some() {
                    self.local.task = None;
                    self.local.last_cleaned = Some(attempt);
                }
            }
        }
        None
    }

    /// Whether this machine sees the server's directories. A server without a probe is of a version that ran its
    /// nodes on its own machine only.
    fn can_see_server_dirs(&mut self, probe: Option<&SharedDiskProbe>) -> bool {
        if self.context.config.remote_shares {
            return false;
        }
        let Some(probe) = probe else { return true };
        if let Some((known, is_visible)) = &self.probe
            && known == probe
        {
            return *is_visible;
        }
        let is_visible = std::fs::read_to_string(&probe.file).is_ok_and(|content| content == probe.content);
        if !is_visible {
            tracing::info!("this machine does not see the server's directories: volumes are mounted over the network");
        }
        self.probe = Some((probe.clone(), is_visible));
        is_visible
    }

    fn on_phase(&mut self, attempt: &AttemptId, phase: TaskPhase) {
        let Some(task) = self.task_for(attempt) else { return };
        task.observed.phase = phase;
        if task.has_ended() {
            self.journal_end();
        }
    }

    /// Task and cleaner report their end by events; only a panic is handled here.
    fn on_work_done(&mut self, joined: Result<(), JoinError>) {
        if joined.is_ok() {
            return;
        }
        let failure = task_errors::agent_panicked(&self.context.node);
        match &mut self.local.task {
            Some(task) if task.cleaning => self.local.task = None,
            Some(task) if !task.has_ended() => {
                task.observed.phase = TaskPhase::Ended { failure: Some(failure) };
                self.journal_end();
            }
            _ => {}
        }
    }

    async fn on_lease_over(&mut self, length: Duration) -> AgentEnd {
        self.on_fenced(format!("the server was not reached within the lease of {} s", length.as_secs_f32())).await
    }

    async fn on_fenced(&mut self, reason: String) -> AgentEnd {
        self.context.fuse_mounts.processes.set_final_deadline();
        self.end_all_but_task().await;
        self.end_task(Duration::ZERO).await;
        self.end_mounts().await;
        self.record = None;
        // The shared directory stays, since the job may continue elsewhere.
        self.run_on_disk(|context| context.directories.clean().and(AttemptJournal::remove(context.directories.root())))
            .await;
        AgentEnd::Fenced { reason }
    }

    async fn on_shutdown(&mut self) -> AgentEnd {
        // Published first, so that the server gives this node no new job meanwhile.
        self.local.ending = true;
        self.publish();
        self.end_all_but_task().await;
        let interrupted = self.local.task.as_ref().is_some_and(|task| !task.has_ended());
        self.end_task(UNWANTED_GRACE).await;
        // A task that ended for a reason of its own keeps it; a task that did not end is not reported as ended.
        if interrupted && let Some(task) = self.local.task.as_mut().filter(|task| ended_by_stop(&task.observed)) {
            let failure = task_errors::agent_restarted(&self.context.node);
            task.observed.phase = TaskPhase::Ended { failure: Some(failure) };
            self.journal_end();
        }
        self.publish();
        AgentEnd::Stopped
    }

    async fn retire(&mut self) -> AgentEnd {
        self.end_all_but_task().await;
        self.end_mounts().await;
        self.run_on_disk(|context| {
            let root = context.directories.root();
            ssh_server::forget_host_key(root)?;
            context.directories.remove().and(AttemptJournal::remove(root))
        })
        .await;
        let node = ObservedNode { retired: true, ..ObservedNode::default() };
        self.observed.send_replace(Observation { node, ..Observation::default() });
        AgentEnd::Retired
    }

    async fn mount(&mut self, volumes: &[Volume]) {
        let (context, wanted) = (self.context.clone(), volumes.to_vec());
        let old = self.local.volumes.take().unwrap_or_default();
        // A mount command may take long.
        let mounting = spawn_blocking(move || {
            let (root, path) = (context.directories.mounts()?, context.directories.mount_root());
            for old in old.iter().filter(|old| !wanted.contains(old)) {
                if let Err(error) = mounts::unmount(&root, &path, old, context.mount_context()) {
                    tracing::warn!(%error, volume = old.label, "a volume could not be unmounted");
                }
            }
            Ok(wanted.iter().try_for_each(|volume| {
                let mounted = mounts::mount(&root, &path, volume, context.mount_context());
                mounted.map(drop).map_err(|failure| failure.error)
            }))
        });
        let result = mounting.await.unwrap_or_else(|broken| Err(io::Error::other(broken)));
        self.local.problem = match result {
            Ok(mounted) => mounted.err(),
            Err(error) => Some(self.storage_failure(&error).error),
        };
        self.context.cluster_volumes.set(volumes);
        self.local.volumes = Some(volumes.to_vec());
    }

    /// Starts or stops the SSH server. A failure is no reason to refuse jobs.
    async fn set_login(&mut self, login: Option<&Login>) {
        self.close_ssh_server().await;
        self.local.login = login.cloned();
        let Some(login) = login else { return };
        match SshServer::open(&self.context, login).await {
            Ok(ssh_server) => {
                tracing::info!(
                    address = ssh_server.endpoint.address,
                    port = ssh_server.endpoint.port,
                    "the SSH server is listening"
                );
                self.local.ssh_endpoint = Some(ssh_server.endpoint.clone());
                self.ssh_server = Some(ssh_server);
            }
            Err(error) => tracing::warn!(error = error_chain::join(&error), "the SSH server could not be started"),
        }
    }

    async fn close_ssh_server(&mut self) {
        self.local.ssh_endpoint = None;
        if let Some(ssh_server) = self.ssh_server.take() {
            ssh_server.close().await;
        }
    }

    /// Ends everything but the task, which may need time.
    async fn end_all_but_task(&mut self) {
        self.close_ssh_server().await;
        if let Some(setup) = self.setup.take() {
            setup.cancel().await;
        }
    }

    /// Ends the FUSE mounts before they are unmounted in other ways: their supervisors would mount them again.
    async fn end_mounts(&self) {
        let fuse_mounts = Arc::clone(&self.context.fuse_mounts);
        let _ = spawn_blocking(move || fuse_mounts.processes.unmount_all()).await;
    }

    async fn run_on_disk(&self, work: impl FnOnce(&NodeContext) -> io::Result<()> + Send + 'static) {
        let context = self.context.clone();
        if let Ok(Err(error)) = spawn_blocking(move || work(&context)).await {
            tracing::warn!(%error, "not all of the node's directories could be removed");
        }
    }

    fn storage_failure(&self, error: &io::Error) -> TaskFailure {
        task_errors::node_storage(&self.context.node, self.context.directories.root(), error)
    }

    fn task_for(&mut self, attempt: &AttemptId) -> Option<&mut LocalTask> {
        self.local.task.as_mut().filter(|task| task.observed.attempt == *attempt)
    }

    fn publish(&self) {
        let wants_setup = self.desired.as_ref().is_some_and(|desired| desired.setup.is_some());
        let address = Some(self.context.address.to_string());
        let node = ObservedNode { address, ..self.local.observed(wants_setup) };
        let now = Observation { node, task_began: self.task_began, task_expected_end: self.task_expected_end };
        self.observed.send_if_modified(|last| {
            let changed = *last != now;
            *last = now;
            changed
        });
    }
}
