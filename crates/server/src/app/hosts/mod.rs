//! Machines that joined: shown to readers of the subscription, and taken out of service by its owners. What follows from that
//! is decided by the reconcilers; what hosts say and hear goes through the gateway.

pub mod capacity;
pub mod join_tokens;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use corro_model::host::{Host, HostNode, HostState};
use corro_model::{ApiError, NodeId, Timestamp};
use corro_store::{Drain, HostRecord, NodeRecord, State, Txn};

use self::capacity::{free, misfit, nodes_on};
use crate::app::App;

/// What is known of hosts beside their records; shared by all clones.
#[derive(Clone, Default)]
pub struct Hosts(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    front: Option<Front>,
    /// When each was last heard since this server started.
    heard: HashMap<String, (Instant, Timestamp)>,
}

/// How machines reach this server, and whose certificate they believe then.
#[derive(Clone, Debug)]
pub struct Front {
    pub url: String,
    pub ca_fingerprint: Option<String>,
}

/// A host that was not heard for so long counts as silent; hosts speak every second.
pub const SILENT_AFTER: Duration = Duration::from_secs(10);

impl Hosts {
    /// From now on machines may join.
    pub fn welcome(&self, front: Front) {
        self.lock().front = Some(front);
    }

    /// `None` where machines cannot join.
    pub fn front(&self) -> Option<Front> {
        self.lock().front.clone()
    }

    pub fn hear(&self, host: &str, now: Timestamp) {
        self.lock().heard.insert(host.to_owned(), (Instant::now(), now));
    }

    pub fn forget(&self, host: &str) {
        self.lock().heard.remove(host);
    }

    pub fn is_heard(&self, host: &str) -> bool {
        self.lock().heard.get(host).is_some_and(|(at, _)| at.elapsed() < SILENT_AFTER)
    }

    fn last_heard(&self, host: &str) -> Option<Timestamp> {
        self.lock().heard.get(host).map(|(_, at)| *at)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().expect("no one panics while holding the hosts")
    }
}

impl App {
    /// In the order of their names.
    pub fn list_hosts(&self) -> Vec<Host> {
        let snapshot = self.snapshot();
        snapshot.hosts.iter().map(|(key, record)| self.host_answer(&snapshot, key, record)).collect()
    }

    pub fn host(&self, name: &str) -> Result<Host, ApiError> {
        let snapshot = self.snapshot();
        let (key, record) = find(&snapshot, name)?;
        Ok(self.host_answer(&snapshot, &key, &record))
    }

    pub async fn cordon_host(&self, name: String, cordoned: bool) -> Result<Host, ApiError> {
        self.change_host(name, move |record| {
            if !cordoned && record.removing {
                let message = format!("The host {} is being removed: that cannot be taken back", record.name);
                return Err(ApiError::conflict("HostBeingRemoved", message));
            }
            record.cordoned = cordoned;
            record.draining = record.draining.filter(|_| cordoned);
            Ok(())
        })
        .await
    }

    pub async fn drain_host(&self, name: String, now: bool) -> Result<Host, ApiError> {
        self.change_host(name, move |record| {
            record.cordoned = true;
            // Once it was to be now, it is.
            if now || record.draining.is_none() {
                record.draining = Some(if now { Drain::Now } else { Drain::InTurn });
            }
            Ok(())
        })
        .await
    }

    /// One that carries nodes is not removed by accident. `false` when there is none.
    pub async fn remove_host(&self, name: String, now: bool) -> Result<bool, ApiError> {
        let app = self.clone();
        let commit = self.store.commit_relief(move |txn| {
            let Ok((key, record)) = find(txn.state(), &name) else { return Ok(false) };
            let carried = nodes_on(txn.state(), &key).count();
            if carried > 0 && !now && !record.removing {
                let message = format!(
                    "The host {} carries {carried} of the nodes of clusters: drain it first ('corro host drain {}'), or remove it with --now, which sends their jobs back to the queue",
                    record.name, record.name
                );
                return Err(ApiError::conflict("HostInUse", message));
            }
            if carried == 0 {
                txn.remove::<HostRecord>(&key);
                app.fleet.hosts.forget(&key);
            } else {
                txn.update::<HostRecord>(&key, |record| {
                    (record.cordoned, record.draining, record.removing) = (true, Some(Drain::Now), true);
                });
            }
            Ok::<_, ApiError>(true)
        });
        commit.await
    }

    async fn change_host(
        &self,
        name: String,
        change: impl FnOnce(&mut HostRecord) -> Result<(), ApiError> + Send + 'static,
    ) -> Result<Host, ApiError> {
        let app = self.clone();
        let commit = self.store.commit(move |txn: &mut Txn| {
            let (key, mut record) = find(txn.state(), &name)?;
            change(&mut record)?;
            txn.put(key.clone(), record.clone());
            Ok::<_, ApiError>(app.host_answer(txn.state(), &key, &record))
        });
        commit.await
    }

    fn host_answer(&self, state: &State, key: &str, record: &HostRecord) -> Host {
        let node = |(id, node): (&NodeId, &Arc<NodeRecord>)| {
            let cluster = state.clusters.get(&node.cluster);
            HostNode {
                node_id: id.clone(),
                cluster: cluster.map(|cluster| cluster.name.clone()).unwrap_or_default(),
                vm_size: cluster.map(|cluster| cluster.spec.vm_size.clone()).unwrap_or_default(),
                state: node.state().name().to_owned(),
            }
        };
        let nodes: Vec<HostNode> = nodes_on(state, key).map(node).collect();
        let heard = self.fleet.hosts.is_heard(key);
        let host_state = match () {
            () if record.removing => HostState::Removing,
            () if !heard => HostState::Silent,
            () if record.draining.is_some() && !nodes.is_empty() => HostState::Draining,
            () if record.draining.is_some() => HostState::Drained,
            () if record.cordoned => HostState::Cordoned,
            () => HostState::Ready,
        };
        let free = free(state, key, record);
        let note = (host_state == HostState::Ready && nodes.is_empty()).then(|| misfit(state, &free)).flatten();
        Host {
            name: record.name.clone(),
            state: host_state,
            inventory: record.inventory.clone(),
            free,
            joined: record.joined,
            last_heard: self.fleet.hosts.last_heard(key).unwrap_or(record.heard),
            nodes,
            note,
        }
    }
}

pub fn key_of(name: &str) -> String {
    name.to_ascii_lowercase()
}

fn find(state: &State, name: &str) -> Result<(String, HostRecord), ApiError> {
    let key = key_of(name);
    match state.hosts.get(&key) {
        Some(record) => Ok((key, HostRecord::clone(record))),
        None => {
            let message = format!("There is no host named '{}': see 'corro host list'", name.escape_debug());
            Err(ApiError::new(404, "HostNotFound", message))
        }
    }
}
