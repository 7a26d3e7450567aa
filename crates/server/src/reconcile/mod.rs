//! The loops that make what is asked for true, as one pass that is repeated: look at the whole state and at what nodes
//! report, decide steps, commit them, tell nodes and the provider. Woken without data by commits and observations, and
//! by a timer. Safe to repeat; a restart takes the same path as an ordinary day.
//!
//! Reading order: [`steps`] (what can be decided), [`nodes`], [`gang`] and [`jobs`], [`scaling`], [`deletion`] (who
//! decides), [`orders`] (what nodes are told).

mod deletion;
pub mod gang;
mod jobs;
mod nodes;
mod orders;
mod scaling;
mod steps;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use corro_model::node::{GangAddress, Goal};
use corro_model::{ApiError, AttemptId, JobKey, NodeId};
use corro_sched::Plan;
use corro_store::State;
use tokio::sync::watch;

use crate::app::App;
use crate::gateway::Gateway;
use crate::provider::Provider;
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
    /// Where running gangs meet: told by the master before it runs, needed until the last node runs.
    addresses: HashMap<AttemptId, GangAddress>,
}

impl Reconciler {
    pub fn new(app: App, gateway: Gateway, provider: Arc<dyn Provider>, config: ReconcileConfig) -> Self {
        Self { app, gateway, provider, config, addresses: HashMap::new() }
    }

    /// Runs until `stop` turns true.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut changes = self.app.store.changes();
        loop {
            changes.mark_unchanged();
            if let Err(error) = self.pass().await {
                tracing::error!(%error, "a reconcile pass failed; it is repeated");
            }
            tokio::select! {
                _ = async { let _ = stop.wait_for(|stop| *stop).await; } => return,
                _ = changes.changed() => {}
                () = self.gateway.news.notified() => {}
                () = tokio::time::sleep(TICK) => {}
            }
        }
    }

    async fn pass(&mut self) -> Result<(), ApiError> {
        let (state, now) = (self.app.snapshot(), self.app.now());
        let sightings = self.gateway.sightings();
        let plan = corro_sched::plan(&scaling::view(&state));

        let uptime = self.gateway.uptime();
        // Asking the provider may look at processes and files.
        let mut steps = tokio::task::block_in_place(|| {
            nodes::decide(&state, &sightings, uptime, now, &self.config, &*self.provider)
        });
        let (job_steps, _) = self.jobs(&state, &sightings, &plan);
        steps.extend(job_steps);
        steps.extend(scaling::decide(&state, &plan));
        steps.extend(deletion::decide(&state, now));
        self.remove_files(&steps).await?;
        if !steps.is_empty() {
            let commit = self.app.store.commit(move |txn| {
                steps::apply(txn, steps, now);
                Ok::<_, ApiError>(())
            });
            commit.await?;
        }

        // What nodes are told follows from the state that was just made durable, never from a wish.
        let state = self.app.snapshot();
        let sightings = self.gateway.sightings();
        let plan = corro_sched::plan(&scaling::view(&state));
        let (_, goals) = self.jobs(&state, &sightings, &plan);
        self.tell_nodes(&state, &goals);
        self.drive_provider(&state).await;
        Ok(())
    }

    /// Steps for running jobs, and the goal of each that goes on.
    fn jobs(
        &mut self,
        state: &State,
        sightings: &std::collections::BTreeMap<NodeId, crate::gateway::Sighting>,
        plan: &Plan,
    ) -> (Vec<Step>, HashMap<JobKey, Goal>) {
        jobs::decide(state, sightings, plan, self.app.now(), &mut self.addresses)
    }

    fn tell_nodes(&self, state: &State, goals: &HashMap<JobKey, Goal>) {
        for (id, sighting) in self.gateway.sightings() {
            match state.nodes.get(&id) {
                Some(record) if record.epoch == sighting.epoch => {
                    if let Some(desired) = orders::desired(&self.app, &self.config, state, record, goals) {
                        self.gateway.publish(&id, desired);
                    }
                }
                Some(_) => self.gateway.fence(&id, "the node was silent for too long and was declared lost"),
                None => self.gateway.fence(&id, "the node was removed from its cluster"),
            }
        }
    }

    /// Agents for nodes that wait for one. Starting processes blocks, so it happens on a thread for that.
    async fn drive_provider(&self, state: &State) {
        let waiting: Vec<(NodeId, String)> = nodes::waiting_for_agent(state)
            .filter(|(id, _)| self.provider.is_alive(id) == Some(false))
            .map(|(id, record)| (id.clone(), record.address.clone()))
            .collect();
        for (node, address) in waiting {
            let token = self.gateway.mint_token(&node);
            let provider = self.provider.clone();
            let _ = tokio::task::spawn_blocking(move || provider.start(&node, &address, token)).await;
        }
    }

    /// Files of accounts that are about to be forgotten go first, so that a crash in between leaves a record that leads
    /// back here.
    async fn remove_files(&self, steps: &[Step]) -> Result<(), ApiError> {
        let accounts: Vec<String> = steps
            .iter()
            .filter_map(|step| match step {
                Step::RemoveAccount(name) => Some(name.clone()),
                _ => None,
            })
            .collect();
        for account in accounts {
            let shares = self.app.shares.clone();
            let removed = tokio::task::spawn_blocking(move || shares.delete_account(&account)).await;
            match removed {
                Ok(Ok(removed)) => {
                    if let Some(error) = removed.left_behind {
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            "an account left files behind; the next start removes them"
                        );
                    }
                }
                Ok(Err(error)) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "an account's files cannot be removed");
                    return Err(ApiError::new(500, "InternalError", "An account's files cannot be removed"));
                }
                Err(_) => return Err(ApiError::new(500, "InternalError", "Removing an account's files was cut short")),
            }
        }
        Ok(())
    }
}
