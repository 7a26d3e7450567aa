//! The loops that make what is asked for true, as one pass that is repeated: look at the whole state and at what nodes
//! report, decide steps, commit them, tell nodes and the provider. Woken without data by commits and observations, and
//! by a timer. Safe to repeat; a restart takes the same path as an ordinary day.
//!
//! Reading order: [`steps`] (what can be decided), [`round`] (a pass without I/O), [`nodes`], [`gang`] and [`jobs`],
//! [`scaling`], [`deletion`] (who decides), [`orders`] (what nodes are told), [`chores`] and [`starts`] (slow work and its repetition).

mod chores;
mod deletion;
pub mod gang;
mod jobs;
mod nodes;
mod orders;
pub mod round;
pub mod scaling;
mod starts;
mod steps;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corro_model::node::{DesiredNode, Goal};
use corro_model::{ApiError, JobKey, NodeId, Timestamp};
use corro_shares::Shares;
use corro_store::State;
use tokio::sync::watch;

use crate::app::App;
use crate::gateway::{Gateway, Sighting};
use crate::provider::Provider;
use chores::Chores;
use round::{Addresses, Scene};
use starts::Starts;
use steps::Step;

/// Even without news the world is looked at this often: leases and limits run out silently.
const TICK: Duration = Duration::from_millis(500);

#[derive(Clone, Debug)]
pub struct ReconcileConfig {
    /// A node that is silent for longer is lost.
    pub lease: Duration,
    /// Container jobs may run on the host.
    pub containers_on_host: bool,
    /// Where the directories shared by the nodes of a job lie.
    pub shared_temp: std::path::PathBuf,
}

pub struct Reconciler {
    pub app: App,
    pub gateway: Gateway,
    pub provider: Arc<dyn Provider>,
    pub config: ReconcileConfig,
    addresses: Addresses,
    /// Removing what is left of nodes and of accounts.
    leaving: Chores<NodeId>,
    emptying: Chores<String>,
    starts: Starts,
    last_pass: Instant,
}

impl Reconciler {
    pub fn new(app: App, gateway: Gateway, provider: Arc<dyn Provider>, config: ReconcileConfig) -> Self {
        let (leaving, emptying) = (Chores::new(gateway.news.clone()), Chores::new(gateway.news.clone()));
        let (addresses, starts, last_pass) = (Addresses::new(), Starts::default(), Instant::now());
        Self { app, gateway, provider, config, addresses, leaving, emptying, starts, last_pass }
    }

    /// Runs until `stop` turns true; what was heard by then is still written down.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut changes = self.app.store.changes();
        loop {
            changes.mark_unchanged();
            if let Err(error) = self.pass().await {
                tracing::error!(%error, "a reconcile pass failed; it is repeated");
            }
            if *stop.borrow() {
                return;
            }
            tokio::select! {
                _ = async { let _ = stop.wait_for(|stop| *stop).await; } => {}
                _ = changes.changed() => {}
                () = self.gateway.news.notified() => {}
                () = tokio::time::sleep(TICK) => {}
            }
        }
    }

    async fn pass(&mut self) -> Result<(), ApiError> {
        self.forgive_own_absence();
        let (state, now) = (self.app.snapshot(), self.app.now());
        let sightings = self.gateway.sightings();
        let (gone, emptied) = (self.leaving.done().await, self.emptying.done().await);
        let uptime = self.gateway.uptime();
        let (config, provider) = (&self.config, &*self.provider);
        let scene = Scene {
            state: &state,
            sightings: &sightings,
            now,
            uptime,
            gone: &gone,
            emptied: &emptied,
            config,
            provider,
        };
        let mut steps = tokio::task::block_in_place(|| round::decide(&scene, &mut self.addresses));
        steps.extend(self.starts.given_up(&state));
        let committed = self.commit(steps, now).await;

        // What nodes are told follows from the state that is durable, never from a wish; so it is told even when a
        // commit failed.
        let state = self.app.snapshot();
        let sightings = self.gateway.sightings();
        let goals = round::goals(&state, &sightings, self.app.now(), &mut self.addresses);
        self.tell_nodes(&state, &goals);
        self.gateway.forget_tokens(|node| state.nodes.contains_key(node));
        self.begin_chores(&state, &sightings, now);
        self.start_agents(&state).await;
        committed
    }

    async fn commit(&self, steps: Vec<Step>, now: Timestamp) -> Result<(), ApiError> {
        if steps.is_empty() {
            return Ok(());
        }
        let commit = self.app.store.commit(move |txn| {
            steps::apply(txn, steps, now);
            Ok::<_, ApiError>(())
        });
        commit.await
    }

    /// A server that was stopped or starved for long has heard nobody: that is not the nodes' silence.
    fn forgive_own_absence(&mut self) {
        if self.last_pass.elapsed() > self.config.lease / 2 {
            self.gateway.forgive();
        }
        self.last_pass = Instant::now();
    }

    fn tell_nodes(&self, state: &State, goals: &HashMap<JobKey, Goal>) {
        for (id, sighting) in self.gateway.sightings() {
            match state.nodes.get(&id) {
                Some(record) if record.epoch == sighting.epoch => {
                    if let Some(desired) = orders::desired(&self.app, &self.config, state, record, goals) {
                        let lease = (!self.provider.ends_silent_nodes()).then_some(self.config.lease);
                        let lease_ms = lease.map(|lease| lease.as_millis() as u64);
                        self.gateway.publish(&id, DesiredNode { lease_ms, ..desired });
                    }
                }
                Some(_) => self.gateway.fence(&id, "the node was silent for too long and was declared lost"),
                None => self.gateway.fence(&id, "the node was removed from its cluster"),
            }
        }
    }

    /// Whatever must go is removed in the background; its record goes afterwards, so that a crash in between leads back
    /// here.
    fn begin_chores(&mut self, state: &State, sightings: &BTreeMap<NodeId, Sighting>, now: Timestamp) {
        for (node, polite) in nodes::leaving(state, sightings, now) {
            let (provider, id) = (self.provider.clone(), node.clone());
            self.leaving.begin(node.clone(), move || provider.ensure_gone(&id, polite));
        }
        for account in deletion::abandoned_accounts(state) {
            let (shares, name) = (self.app.shares.clone(), account.clone());
            self.emptying.begin(account.clone(), move || remove_account(&shares, &name));
        }
    }

    /// Agents for nodes that wait for one. Starting processes blocks, so it happens on a thread for that.
    async fn start_agents(&mut self, state: &State) {
        for (node, record) in self.starts.due(state) {
            let (provider, address) = (self.provider.clone(), record.address.clone());
            let (gateway, id) = (self.gateway.clone(), node.clone());
            let start = move || match provider.is_alive(&id) {
                Some(false) => {
                    provider.start(&id, &address, gateway.mint_token(&id));
                    true
                }
                _ => false,
            };
            if tokio::task::spawn_blocking(start).await.unwrap_or(false) {
                self.starts.begun(&node);
            }
        }
    }
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
            tracing::error!(name, error, "an account's files cannot be removed; it is tried again");
            false
        }
    }
}
