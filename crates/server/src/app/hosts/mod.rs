//! Hosts: machines that joined the server. Readers of the subscription list them, its owners cordon, drain and remove
//! them. The reconciler acts on these marks; the gateway receives heartbeats.

pub mod capacity;
pub mod join_tokens;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use corro_model::gpu::{self, GpuReading};
use corro_model::host::{Host, HostNode, HostState};
use corro_model::{ApiError, NodeId, Timestamp};
use corro_store::{Drain, HostRecord, NodeRecord, State, Txn};

use self::capacity::{free_capacity, nodes_on_host, too_small_note};
use crate::app::App;

/// In-memory state of hosts beside their records. Clones share it.
#[derive(Clone, Default)]
pub struct Hosts(Arc<Mutex<Registry>>);

#[derive(Default)]
struct Registry {
    join_endpoint: Option<JoinEndpoint>,
    /// Last heartbeat of each host since this server started.
    heartbeats: HashMap<String, Heartbeat>,
}

struct Heartbeat {
    at: Instant,
    time: Timestamp,
    gpus: Vec<GpuReading>,
}

/// URL at which hosts join, and the fingerprint of the CA that they must trust.
#[derive(Clone, Debug)]
pub struct JoinEndpoint {
    pub url: String,
    pub ca_fingerprint: Option<String>,
}

/// A host without a heartbeat for this long counts as silent. Hosts send one every second.
pub const SILENT_AFTER: Duration = Duration::from_secs(10);

impl Hosts {
    /// Allows hosts to join.
    pub fn enable_join(&self, join_endpoint: JoinEndpoint) {
        self.lock().join_endpoint = Some(join_endpoint);
    }

    /// `None` if hosts cannot join this server.
    pub fn join_endpoint(&self) -> Option<JoinEndpoint> {
        self.lock().join_endpoint.clone()
    }

    /// Records a report and the state of the host's GPUs in it.
    pub fn record_heartbeat(&self, host: &str, now: Timestamp, gpus: Vec<GpuReading>) {
        let heartbeat = Heartbeat { at: Instant::now(), time: now, gpus: gpu::bounded(gpus) };
        self.lock().heartbeats.insert(host.to_owned(), heartbeat);
    }

    pub fn remove(&self, host: &str) {
        self.lock().heartbeats.remove(host);
    }

    pub fn is_alive(&self, host: &str) -> bool {
        self.lock().heartbeats.get(host).is_some_and(Heartbeat::is_recent)
    }

    fn last_heartbeat(&self, host: &str) -> Option<Timestamp> {
        self.lock().heartbeats.get(host).map(|heartbeat| heartbeat.time)
    }

    /// State of the GPUs of a host that reports.
    fn gpus(&self, host: &str) -> Vec<GpuReading> {
        let registry = self.lock();
        let recent = registry.heartbeats.get(host).filter(|heartbeat| heartbeat.is_recent());
        recent.map_or_else(Vec::new, |heartbeat| heartbeat.gpus.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().expect("no one panics while holding the hosts")
    }
}

impl Heartbeat {
    fn is_recent(&self) -> bool {
        self.at.elapsed() < SILENT_AFTER
    }
}

impl App {
    /// Lists the hosts, ordered by name.
    pub fn list_hosts(&self) -> Vec<Host> {
        let snapshot = self.snapshot();
        snapshot.hosts.iter().map(|(key, record)| self.host_response(&snapshot, key, record)).collect()
    }

    pub fn host(&self, name: &str) -> Result<Host, ApiError> {
        let snapshot = self.snapshot();
        let (key, record) = find_host(&snapshot, name)?;
        Ok(self.host_response(&snapshot, &key, &record))
    }

    pub async fn cordon_host(&self, name: String, cordoned: bool) -> Result<Host, ApiError> {
        self.change_host(name, move |record| {
            if !cordoned && record.removing {
                let message = format!("The host {} is being removed: this cannot be undone", record.name);
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
            // An immediate drain cannot be weakened to a gradual one.
            if now || record.draining.is_none() {
                record.draining = Some(if now { Drain::Now } else { Drain::InTurn });
            }
            Ok(())
        })
        .await
    }

    /// Removes a host. A host that carries nodes is removed only with `now`. Returns `false` if there is no such host.
    pub async fn remove_host(&self, name: String, now: bool) -> Result<bool, ApiError> {
        let app = self.clone();
        let commit = self.store.commit_relief(move |txn| {
            let Ok((key, record)) = find_host(txn.state(), &name) else { return Ok(false) };
            let carried = nodes_on_host(txn.state(), &key).count();
            if carried > 0 && !now && !record.removing {
                let message = format!(
                    "The host {} runs {carried} of the clusters' nodes: drain it first ('corro host drain {}'), or remove it with --now, which sends their jobs back to the queue",
                    record.name, record.name
                );
                return Err(ApiError::conflict("HostInUse", message));
            }
            if carried == 0 {
                txn.remove::<HostRecord>(&key);
                app.fleet.hosts.remove(&key);
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
            let (key, mut record) = find_host(txn.state(), &name)?;
            change(&mut record)?;
            txn.put(key.clone(), record.clone());
            Ok::<_, ApiError>(app.host_response(txn.state(), &key, &record))
        });
        commit.await
    }

    fn host_response(&self, state: &State, key: &str, record: &HostRecord) -> Host {
        let node = |(id, node): (&NodeId, &Arc<NodeRecord>)| {
            let cluster = state.clusters.get(&node.cluster);
            HostNode {
                node_id: id.clone(),
                cluster: cluster.map(|cluster| cluster.name.clone()).unwrap_or_default(),
                vm_size: cluster.map(|cluster| cluster.spec.vm_size.clone()).unwrap_or_default(),
                state: node.state().name().to_owned(),
            }
        };
        let nodes: Vec<HostNode> = nodes_on_host(state, key).map(node).collect();
        let is_alive = self.fleet.hosts.is_alive(key);
        let host_state = match () {
            () if record.removing => HostState::Removing,
            () if !is_alive => HostState::Silent,
            () if record.draining.is_some() && !nodes.is_empty() => HostState::Draining,
            () if record.draining.is_some() => HostState::Drained,
            () if record.cordoned => HostState::Cordoned,
            () => HostState::Ready,
        };
        let free = free_capacity(state, key, record);
        let note = (host_state == HostState::Ready && nodes.is_empty()).then(|| too_small_note(state, &free)).flatten();
        Host {
            name: record.name.clone(),
            state: host_state,
            inventory: record.inventory.clone(),
            free,
            joined: record.joined,
            last_heard: self.fleet.hosts.last_heartbeat(key).unwrap_or(record.heard),
            nodes,
            gpu_readings: self.fleet.hosts.gpus(key),
            note,
        }
    }
}

pub fn host_key(name: &str) -> String {
    name.to_ascii_lowercase()
}

fn find_host(state: &State, name: &str) -> Result<(String, HostRecord), ApiError> {
    let key = host_key(name);
    match state.hosts.get(&key) {
        Some(record) => Ok((key, HostRecord::clone(record))),
        None => {
            let message = format!("There is no host named '{}': see 'corro host list'", name.escape_debug());
            Err(ApiError::new(404, "HostNotFound", message))
        }
    }
}
