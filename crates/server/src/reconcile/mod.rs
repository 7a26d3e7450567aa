//! The loops that make what is asked for true, as one pass that is repeated: look at the whole state and at what nodes
//! report, decide steps, commit them, tell nodes and the provider. Woken without data by commits and observations, and
//! by a timer. Safe to repeat; a restart takes the same path as an ordinary day.
//!
//! Reading order: [`steps`] (what can be decided), [`round`] (a pass without I/O), [`attention`] (where the next one looks),
//! [`nodes`], [`gang`] and [`jobs`], [`scaling`], [`deletion`] (who decides), [`orders`] and [`tellings`] (what nodes are told, and when), [`chores`] and [`starts`] (slow work and its repetition).

pub mod attention;
mod backoff;
mod chores;
pub(crate) mod deletion;
pub mod gang;
pub mod hosts;
mod jobs;
mod nodes;
mod orders;
pub mod round;
pub mod scaling;
mod starts;
pub(crate) mod steps;
pub mod tellings;
mod traced;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corro_model::batchai::VmPriority;
use corro_model::node::Landmark;
use corro_model::vm_size;
use corro_model::{ApiError, NodeId, Timestamp};
use corro_shares::Shares;
use corro_store::{NodeRecord, Space, State, Timeline};
use tokio::sync::watch;

use crate::app::App;
use crate::gateway::{Gateway, Sighting};
use crate::provider::{NewNode, Provider};
use attention::{Attention, changed_jobs, left_by};
use backoff::Backoff;
use chores::Chores;
use orders::Orders;
use round::{Addresses, Focus, Scene};
use starts::Starts;
use steps::Step;
use tellings::{Messenger, Tellings};
use traced::Traced;

/// Even without news the world is looked at this often: leases and limits run out silently.
const TICK: Duration = Duration::from_millis(500);

/// Shorter than half of the shortest lease, so that no node seems to have been unheard for long.
const MAX_FAILURE_PAUSE: Duration = Duration::from_secs(1);
const MAX_GROWTH_PAUSE: Duration = Duration::from_secs(5);

/// Between two looks for what earlier runs of this server left.
const SWEEP: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct ReconcileConfig {
    /// A node that is silent for longer is lost.
    pub lease: Duration,
    /// Container jobs may run on the host.
    pub containers_on_host: bool,
    /// Whether jobs must be isolated, where the operator chose; else they must be once there is more than one principal.
    pub strict_isolation: Option<bool>,
    /// Values of secrets are blanked in what jobs and setup tasks write.
    pub masks_secrets: bool,
    /// Where the directories shared by the nodes of a job lie.
    pub shared_temp: std::path::PathBuf,
    /// Shows nodes whether they see this machine's directories.
    pub landmark: Option<Landmark>,
    /// How nodes are given to clusters and taken back.
    pub rules: scaling::Rules,
}

pub struct Reconciler {
    pub app: App,
    pub gateway: Gateway,
    pub provider: Arc<dyn Provider>,
    pub config: ReconcileConfig,
    addresses: Addresses,
    /// What was last seen of every node.
    sightings: BTreeMap<NodeId, Sighting>,
    tellings: Tellings,
    /// Removing what is left of nodes and of accounts.
    leaving: Chores<NodeId>,
    emptying: Chores<String>,
    /// Ending what earlier runs of this server left, and when it was last begun.
    sweeping: Chores<()>,
    swept: Option<Instant>,
    starts: Starts,
    last_pass: Instant,
    last_whole: Option<Instant>,
    attention: Attention,
    /// After passes whose commit failed.
    failing: Backoff,
    /// After commits from which what adds something was left out, as the disk is full.
    growing: Backoff,
}

impl Reconciler {
    pub fn new(app: App, gateway: Gateway, provider: Arc<dyn Provider>, config: ReconcileConfig) -> Self {
        let (leaving, emptying) = (Chores::new(gateway.news.clone()), Chores::backing_off(gateway.news.clone()));
        let sweeping = Chores::new(gateway.news.clone());
        let attention = Attention::new(app.snapshot());
        Self {
            app,
            gateway,
            provider,
            config,
            addresses: Addresses::new(),
            sightings: BTreeMap::new(),
            tellings: Tellings::default(),
            leaving,
            emptying,
            sweeping,
            swept: None,
            starts: Starts::default(),
            last_pass: Instant::now(),
            last_whole: None,
            attention,
            failing: Backoff::up_to(MAX_FAILURE_PAUSE),
            growing: Backoff::up_to(MAX_GROWTH_PAUSE),
        }
    }

    /// Runs until `stop` turns true; what was heard by then is still written down.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut changes = self.app.store.changes();
        loop {
            changes.mark_unchanged();
            let stopping = *stop.borrow();
            let whole = stopping || self.until_whole().is_zero();
            match self.pass(whole).await {
                Ok(()) => {
                    if let Some(failures) = self.failing.succeed() {
                        tracing::info!(failures, "reconcile passes succeed again");
                    }
                }
                Err(error) => {
                    if self.failing.fail(Instant::now()) {
                        tracing::error!(%error, "a reconcile pass failed; it is repeated, and told once");
                    }
                    self.attention.start_over();
                }
            }
            if stopping {
                return;
            }
            let pause = self.failing.remaining(Instant::now());
            if !pause.is_zero() {
                tokio::select! {
                    _ = async { let _ = stop.wait_for(|stop| *stop).await; } => {}
                    () = tokio::time::sleep(pause) => {}
                }
                continue;
            }
            let tick = self.until_whole();
            tokio::select! {
                _ = async { let _ = stop.wait_for(|stop| *stop).await; } => {}
                _ = changes.changed() => {}
                () = self.gateway.news.notified() => {}
                () = tokio::time::sleep(tick) => {}
            }
        }
    }

    /// Looks at everything (`whole`), or only where something is new.
    async fn pass(&mut self, whole: bool) -> Result<(), ApiError> {
        self.forgive_own_absence();
        let news = self.gateway.refresh(&mut self.sightings, whole);
        let (before, clock) = (self.app.snapshot(), self.app.timeline());
        let now = clock.now();
        let mut traced = Traced::begin(&self.app.traces, whole);
        if let Some(traced) = &traced {
            traced.note_tasks(&news.nodes, &self.sightings, &before, now);
        }
        let (gone, emptied) = (self.leaving.done().await, self.emptying.done().await);
        let jobs = self.attention.changed_jobs(&before);
        let state_changed = self.attention.has_changed(&before);
        let focus = match whole {
            true => Focus::Everything,
            false => Focus::New { nodes: &news.nodes, jobs: &jobs, state: state_changed },
        };
        let scene = Scene {
            state: &before,
            sightings: &self.sightings,
            clock: &clock,
            uptime: self.gateway.uptime(),
            gone: &gone,
            emptied: &emptied,
            config: &self.config,
            provider: &*self.provider,
        };
        let addresses = &mut self.addresses;
        let mut look = || round::decide_in(&scene, focus, addresses);
        // A look at everything takes milliseconds where there are many nodes; to have another thread take over meanwhile
        // costs more than a narrow one.
        let (mut steps, mut goals) = if whole { tokio::task::block_in_place(look) } else { look() };
        if whole {
            steps.extend(self.starts.given_up(&before, &*self.provider));
            if !self.provider.makes_nodes() {
                let heard = |host: &str| self.app.hosts.is_heard(host);
                steps.extend(hosts::decide(&before, heard, &self.config.rules, now));
            }
        }
        if !self.growing.remaining(Instant::now()).is_zero() {
            steps.retain(|step| !step.adds());
        }
        if let Some(traced) = &mut traced {
            traced.decided(&steps);
        }
        let left = left_by(&steps, &before, &self.sightings);
        let own = before.revision + u64::from(!steps.is_empty());
        let committed = self.commit(steps, before.revision, now).await;

        // What nodes are told follows from the state that is durable, never from a wish; so it is told even when a
        // commit failed.
        let state = self.app.snapshot();
        let jobs = changed_jobs(&before, &state);
        let changed = Focus::New { nodes: &BTreeSet::new(), jobs: &jobs, state: true };
        goals.extend(round::goals_in(&state, changed, &self.sightings, &clock, &mut self.addresses));
        let moved = state_changed || state.revision != before.revision;
        self.tellings.note(&news, goals);
        let orders = Orders::new(&self.app, &self.config, &*self.provider, &state);
        let mut messenger = Messenger { orders, gateway: &self.gateway };
        self.tellings.tell(&mut messenger, &state, &self.sightings, whole || moved);
        if whole || moved || !news.nodes.is_empty() {
            self.begin_chores(&state, &clock);
        }
        if whole || moved {
            self.start_agents(&state).await;
        }
        // Nobody else's commit came before ours, nor after it.
        let alone = matches!(committed, Ok(fresh) if fresh) && state.revision == own;
        self.attention.turn(before, state, left, alone);
        if whole {
            self.app.missing.tell(nodes::waiting_for_agent(&self.app.snapshot()), &*self.provider);
            self.end_strays().await;
            self.last_whole = Some(Instant::now());
            self.app.numbers.passed(now);
        }
        if let Some(traced) = traced {
            traced.end(committed.as_ref().err());
        }
        committed.map(|_| ())
    }

    fn until_whole(&self) -> Duration {
        let last = self.last_whole.filter(|_| !self.attention.wants_everything());
        last.map_or(Duration::ZERO, |last| TICK.saturating_sub(last.elapsed()))
    }

    /// Were the steps applied to the very state, of this revision, that they were decided from?
    async fn commit(&mut self, steps: Vec<Step>, revision: u64, now: Timestamp) -> Result<bool, ApiError> {
        if steps.is_empty() {
            return Ok(true);
        }
        let adds = steps.iter().any(Step::adds);
        let commit = self.app.store.commit_relief(move |txn| {
            let fresh = txn.state().revision == revision;
            let full = txn.space() == Space::Reserve;
            let fitting = steps.iter().filter(|step| !(full && step.adds())).cloned().collect();
            steps::apply(txn, fitting, now);
            Ok::<_, ApiError>((fresh, full))
        });
        let (fresh, full) = commit.await?;
        if adds && full && self.growing.fail(Instant::now()) {
            tracing::warn!("the disk is full: jobs end and nodes leave, but none are started until there is space");
        }
        if adds
            && !full
            && let Some(failures) = self.growing.succeed()
        {
            tracing::info!(failures, "there is space on the disk: jobs and nodes are started again");
        }
        Ok(fresh && !full)
    }

    /// A server that was stopped or starved for long has heard nobody: that is not the nodes' silence.
    fn forgive_own_absence(&mut self) {
        if self.last_pass.elapsed() > self.config.lease / 2 {
            self.gateway.forgive();
        }
        self.last_pass = Instant::now();
    }

    /// Whatever must go is removed in the background; its record goes afterwards, so that a crash in between leads back
    /// here.
    fn begin_chores(&mut self, state: &State, clock: &Timeline) {
        for (node, polite) in nodes::leaving(state, &self.sightings, clock) {
            let (provider, id) = (self.provider.clone(), node.clone());
            self.leaving.begin(node.clone(), move || provider.ensure_gone(&id, polite));
        }
        for account in deletion::abandoned_accounts(state) {
            let (shares, name) = (self.app.shares.clone(), account.clone());
            self.emptying.begin(account.clone(), move || remove_account(&shares, &name));
        }
    }

    /// What nobody knows any more is looked for now and then: a crash can leave it at any moment.
    async fn end_strays(&mut self) {
        self.sweeping.done().await;
        if self.swept.is_none_or(|swept| swept.elapsed() >= SWEEP) {
            self.swept = Some(Instant::now());
            let (provider, app) = (self.provider.clone(), self.app.clone());
            let known = move || app.snapshot().nodes.keys().cloned().collect();
            self.sweeping.begin((), move || {
                provider.end_strays(&known);
                true
            });
        }
    }

    /// Agents for nodes that wait for one. Starting processes blocks, so it happens on a thread for that.
    async fn start_agents(&mut self, state: &State) {
        let due = self.starts.due(state);
        if due.is_empty() {
            return;
        }
        let due: Vec<_> = due.into_iter().filter_map(|(node, record)| wanted(state, node, &record)).collect();
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
            self.starts.begun(&node);
        }
    }
}

fn wanted(state: &State, id: NodeId, record: &NodeRecord) -> Option<NewNode> {
    let cluster = state.clusters.get(&record.cluster)?;
    let size = vm_size::find(&cluster.spec.vm_size)?;
    let low_priority = cluster.spec.vm_priority == VmPriority::LowPriority;
    Some(NewNode { id, address: record.address.clone(), cluster: cluster.name.clone(), size, low_priority })
}

fn remove_account(shares: &Shares, name: &str) -> bool {
    match shares.delete_account(name) {
        Ok(removed) => {
            if let Some(error) = removed.left_behind {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(name, error, "an account left files behind; the next start removes them");
            }
            true
        }
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::error!(name, error, "an account's files cannot be removed; it is tried again, ever less often");
            false
        }
    }
}
