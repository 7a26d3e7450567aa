//! The reconcile loop. Each pass reads the whole state and the nodes' observations, decides steps, commits them, publishes desired
//! states to nodes and starts agents through the provider. Commits, observations and a timer wake it; wake-ups carry no data. A
//! pass is safe to repeat, and a restart of the server takes the same path.
//!
//! Reading order: [`steps`] (the changes a pass can decide), [`pass_input`] and [`pass`] (a pass without I/O), [`dirty_tracking`]
//! (what the next pass must look at), [`nodes`], [`gang`], [`elastic`], `jobs`, `dependencies`, [`hosts`], [`scaling`], `garbage_collection` (decisions),
//! `desired_state` and [`publish`] (messages to nodes), `background_work` and `start_backoff` (slow work and retries).

mod background_work;
mod backoff;
mod dependencies;
mod desired_state;
pub mod dirty_tracking;
pub mod elastic;
pub mod gang;
pub(crate) mod garbage_collection;
pub mod hosts;
mod jobs;
pub mod nodes;
pub mod pass;
pub mod pass_input;
mod pass_span;
pub mod publish;
pub mod scaling;
mod start_backoff;
pub mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corro_model::batchai::VmPriority;
use corro_model::node::SharedDiskProbe;
use corro_model::vm_size;
use corro_model::{ApiError, NodeId, Timestamp};
use corro_shares::Shares;
use corro_store::{NodeRecord, Space, State, Timeline};
use tokio::sync::watch;

use crate::app::App;
use crate::gateway::{Gateway, NodeObservation};
use crate::provider::{NewNode, Provider};
use crate::scheduler_view::SchedulingConfig;
use background_work::BackgroundWork;
use backoff::Backoff;
use desired_state::DesiredStateBuilder;
use dirty_tracking::{DirtyTracker, changed_jobs, follow_up_of};
use pass_input::{GangMemory, PassInput, PassScope};
use pass_span::PassSpan;
use publish::{DesiredStatePublisher, GatewaySink};
use start_backoff::StartBackoff;
use steps::Step;

/// Interval of full passes without any wake-up: leases and time limits expire silently.
const FULL_PASS_INTERVAL: Duration = Duration::from_millis(500);

/// Longest pause after failed passes. Shorter than half of the shortest lease, so that no node seems silent because of it.
const MAX_FAILURE_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause before new work is tried again on a full disk.
const MAX_GROWTH_PAUSE: Duration = Duration::from_secs(5);

/// Interval of searches for processes and files that earlier runs of this server left behind.
const STRAY_SWEEP_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct ReconcileConfig {
    /// A node that is silent for longer than this is declared lost.
    pub lease: Duration,
    /// Run container jobs directly on the host when there is no container engine.
    pub containers_on_host: bool,
    /// The operator's choice of strict isolation. `None`: strict as soon as there is more than one principal.
    pub strict_isolation: Option<bool>,
    /// Redact the values of secrets in the output of jobs and setup tasks.
    pub masks_secrets: bool,
    /// Parent of the directories that the nodes of a job share.
    pub shared_temp: std::path::PathBuf,
    /// File by which nodes find out whether they share this machine's disk.
    pub shared_disk_probe: Option<SharedDiskProbe>,
    /// Scheduling policy and limits.
    pub scheduling: SchedulingConfig,
}

pub struct Reconciler {
    pub app: App,
    pub gateway: Gateway,
    pub provider: Arc<dyn Provider>,
    pub config: ReconcileConfig,
    memory: GangMemory,
    /// Last observation of every node.
    observations: BTreeMap<NodeId, NodeObservation>,
    publisher: DesiredStatePublisher,
    /// Removal of retired nodes, and of the files of deleted accounts.
    node_removals: BackgroundWork<NodeId>,
    account_removals: BackgroundWork<String>,
    /// Search for leftovers of earlier runs, and the time of the last one.
    stray_sweep: BackgroundWork<()>,
    last_sweep: Option<Instant>,
    start_backoff: StartBackoff,
    last_pass: Instant,
    last_full_pass: Option<Instant>,
    dirty: DirtyTracker,
    /// Backoff after passes whose commit failed.
    commit_backoff: Backoff,
    /// Backoff after commits that left out new work because the disk was full.
    growth_backoff: Backoff,
}

impl Reconciler {
    pub fn new(app: App, gateway: Gateway, provider: Arc<dyn Provider>, config: ReconcileConfig) -> Self {
        let (node_removals, account_removals) =
            (BackgroundWork::new(gateway.changed.clone()), BackgroundWork::with_backoff(gateway.changed.clone()));
        let stray_sweep = BackgroundWork::new(gateway.changed.clone());
        let dirty = DirtyTracker::new(app.snapshot());
        Self {
            app,
            gateway,
            provider,
            config,
            memory: GangMemory::default(),
            observations: BTreeMap::new(),
            publisher: DesiredStatePublisher::default(),
            node_removals,
            account_removals,
            stray_sweep,
            last_sweep: None,
            start_backoff: StartBackoff::default(),
            last_pass: Instant::now(),
            last_full_pass: None,
            dirty,
            commit_backoff: Backoff::with_max(MAX_FAILURE_PAUSE),
            growth_backoff: Backoff::with_max(MAX_GROWTH_PAUSE),
        }
    }

    /// Runs until `stop` turns true, then makes one last full pass to record the final observations.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut changes = self.app.store.changes();
        loop {
            changes.mark_unchanged();
            let stopping = *stop.borrow();
            let full = stopping || self.until_full_pass().is_zero();
            match self.pass(full).await {
                Ok(()) => {
                    if let Some(failures) = self.commit_backoff.succeed() {
                        tracing::info!(failures, "reconcile passes succeed again");
                    }
                }
                Err(error) => {
                    if self.commit_backoff.fail(Instant::now()) {
                        tracing::error!(%error, "a reconcile pass failed; it is retried (logged once until passes succeed again)");
                    }
                    self.dirty.require_full_pass();
                }
            }
            if stopping {
                return;
            }
            let pause = self.commit_backoff.remaining(Instant::now());
            if !pause.is_zero() {
                tokio::select! {
                    _ = async { let _ = stop.wait_for(|stop| *stop).await; } => {}
                    () = tokio::time::sleep(pause) => {}
                }
                continue;
            }
            let tick = self.until_full_pass();
            tokio::select! {
                _ = async { let _ = stop.wait_for(|stop| *stop).await; } => {}
                _ = changes.changed() => {}
                () = self.gateway.changed.notified() => {}
                () = tokio::time::sleep(tick) => {}
            }
        }
    }

    /// One pass over everything (`full`), or over what changed since the last.
    async fn pass(&mut self, full: bool) -> Result<(), ApiError> {
        self.reset_silence_after_stall();
        let changed_nodes = self.gateway.refresh(&mut self.observations, full);
        let (before, clock) = (self.app.snapshot(), self.app.timeline());
        let now = clock.now();
        let mut pass_span = PassSpan::begin(&self.app.telemetry.traces, full);
        if let Some(pass_span) = &pass_span {
            pass_span.record_rank_starts(&changed_nodes.nodes, &self.observations, &before, now);
        }
        let (gone, emptied) = (self.node_removals.take_finished().await, self.account_removals.take_finished().await);
        let jobs = self.dirty.changed_jobs(&before);
        let state_changed = self.dirty.has_changed(&before);
        let scope = match full {
            true => PassScope::Full,
            false => PassScope::Changed { nodes: &changed_nodes.nodes, jobs: &jobs, state: state_changed },
        };
        let input = PassInput {
            state: &before,
            observations: &self.observations,
            clock: &clock,
            uptime: self.gateway.uptime(),
            gone: &gone,
            emptied: &emptied,
            config: &self.config,
            provider: &*self.provider,
        };
        let memory = &mut self.memory;
        let mut decide = || pass::decide_scoped(&input, scope, memory);
        // A full pass takes milliseconds with many nodes; for an incremental one, handing the runtime's other tasks to another
        // thread would cost more than the pass itself.
        let (mut steps, mut goals) = if full { tokio::task::block_in_place(decide) } else { decide() };
        if full {
            steps.extend(self.start_backoff.give_up_steps(&before, &*self.provider));
            if !self.provider.creates_nodes() {
                let heard = |host: &str| self.app.fleet.hosts.is_alive(host);
                steps.extend(hosts::decide(&before, heard, &self.config.scheduling, now));
            }
        }
        if !self.growth_backoff.remaining(Instant::now()).is_zero() {
            steps.retain(|step| !step.starts_work());
        }
        if let Some(pass_span) = &mut pass_span {
            pass_span.record_steps(&steps);
        }
        let follow_up = follow_up_of(&steps, &before, &self.observations);
        let own_revision = before.revision + u64::from(!steps.is_empty());
        let committed = self.commit(steps, before.revision, now).await;

        // Desired states follow from the durable state only, so they are published even when the commit failed.
        let state = self.app.snapshot();
        let jobs = changed_jobs(&before, &state);
        let changed = PassScope::Changed { nodes: &BTreeSet::new(), jobs: &jobs, state: true };
        goals.extend(pass::goals_scoped(&state, changed, &self.observations, &clock, &mut self.memory));
        let state_moved = state_changed || state.revision != before.revision;
        self.publisher.record_changes(&changed_nodes, goals);
        let builder = DesiredStateBuilder::new(&self.app, &self.config, &*self.provider, &state);
        let mut sink = GatewaySink { builder, gateway: &self.gateway };
        self.publisher.publish(&mut sink, &state, &self.observations, full || state_moved);
        if full || state_moved || !changed_nodes.nodes.is_empty() {
            self.start_background_work(&state, &clock);
        }
        if full || state_moved {
            self.start_agents(&state).await;
        }
        // No other commit came before this pass's own, nor after it.
        let sole_writer = matches!(committed, Ok(fresh) if fresh) && state.revision == own_revision;
        self.dirty.finish_pass(before, state, follow_up, sole_writer);
        if full {
            self.app.fleet.provisioning_issues.update(nodes::waiting_for_agent(&self.app.snapshot()), &*self.provider);
            self.remove_orphans().await;
            self.last_full_pass = Some(Instant::now());
            self.app.telemetry.http_counters.record_pass(now);
        }
        if let Some(pass_span) = pass_span {
            pass_span.end(committed.as_ref().err());
        }
        committed.map(|_| ())
    }

    fn until_full_pass(&self) -> Duration {
        let last = self.last_full_pass.filter(|_| !self.dirty.needs_full_pass());
        last.map_or(Duration::ZERO, |last| FULL_PASS_INTERVAL.saturating_sub(last.elapsed()))
    }

    /// Commits the steps. `true` when they were applied to exactly the revision they were decided from.
    async fn commit(&mut self, steps: Vec<Step>, revision: u64, now: Timestamp) -> Result<bool, ApiError> {
        if steps.is_empty() {
            return Ok(true);
        }
        let starts_work = steps.iter().any(Step::starts_work);
        let commit = self.app.store.commit_relief(move |txn| {
            let fresh = txn.state().revision == revision;
            let full = txn.space() == Space::Reserve;
            let fitting = steps.iter().filter(|step| !(full && step.starts_work())).cloned().collect();
            steps::apply(txn, fitting, now);
            Ok::<_, ApiError>((fresh, full))
        });
        let (fresh, full) = commit.await?;
        if starts_work && full && self.growth_backoff.fail(Instant::now()) {
            tracing::warn!(
                "the disk is full: running jobs may end and nodes leave, but nothing new starts until there is space"
            );
        }
        if starts_work
            && !full
            && let Some(failures) = self.growth_backoff.succeed()
        {
            tracing::info!(failures, "there is space on the disk again: jobs and nodes start again");
        }
        Ok(fresh && !full)
    }

    /// After the server itself was suspended or starved, restarts the silence clocks: the nodes may have been sending.
    fn reset_silence_after_stall(&mut self) {
        if self.last_pass.elapsed() > self.config.lease / 2 {
            self.gateway.reset_silence();
        }
        self.last_pass = Instant::now();
    }

    /// Starts the removal of retired nodes and of deleted accounts' files. Their records are removed afterwards, so that a crash in
    /// between leads back here.
    fn start_background_work(&mut self, state: &State, clock: &Timeline) {
        for (node, polite) in nodes::leaving_nodes(state, &self.observations, clock) {
            let (provider, id) = (self.provider.clone(), node.clone());
            self.node_removals.start(node.clone(), move || provider.ensure_gone(&id, polite));
        }
        for account in garbage_collection::removable_accounts(state) {
            let (shares, name) = (self.app.storage.shares.clone(), account.clone());
            self.account_removals.start(account.clone(), move || remove_account(&shares, &name));
        }
    }

    /// Periodically ends processes of nodes that have no record: a crash can leave some at any moment.
    async fn remove_orphans(&mut self) {
        self.stray_sweep.take_finished().await;
        if self.last_sweep.is_none_or(|last_sweep| last_sweep.elapsed() >= STRAY_SWEEP_INTERVAL) {
            self.last_sweep = Some(Instant::now());
            let (provider, app) = (self.provider.clone(), self.app.clone());
            let known = move || app.snapshot().nodes.keys().cloned().collect();
            self.stray_sweep.start((), move || {
                provider.remove_orphans(&known);
                true
            });
        }
    }

    /// Starts agents for nodes that have none. Runs on a blocking thread, since starting processes blocks.
    async fn start_agents(&mut self, state: &State) {
        let due = self.start_backoff.due(state);
        if due.is_empty() {
            return;
        }
        let due: Vec<_> = due.into_iter().filter_map(|(node, record)| new_node(state, node, &record)).collect();
        let (provider, gateway) = (self.provider.clone(), self.gateway.clone());
        let start = move || {
            let missing = due.into_iter().filter(|node| provider.is_alive(&node.id) == Some(false));
            let start = |node: NewNode| {
                provider.start(&node, gateway.mint_token(&node.id));
                node.id
            };
            missing.map(start).collect::<Vec<_>>()
        };
        for node in tokio::task::spawn_blocking(start).await.unwrap_or_default() {
            self.start_backoff.record_start(&node);
        }
    }
}

fn new_node(state: &State, id: NodeId, record: &NodeRecord) -> Option<NewNode> {
    let cluster = state.clusters.get(&record.cluster)?;
    let size = vm_size::find(&cluster.spec.vm_size)?;
    let low_priority = cluster.spec.vm_priority == VmPriority::LowPriority;
    Some(NewNode { id, address: record.address.clone(), cluster: cluster.name.clone(), size, low_priority })
}

fn remove_account(shares: &Shares, name: &str) -> bool {
    match shares.delete_account(name) {
        Ok(removed) => {
            if let Some(error) = removed.leftover {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    name,
                    error,
                    "files of a deleted account are left; the next start of the server removes them"
                );
            }
            true
        }
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::error!(name, error, "the files of a deleted account cannot be removed; retrying with backoff");
            false
        }
    }
}
