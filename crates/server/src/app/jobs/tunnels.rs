//! Rules of tunnels to nodes of running jobs: which node, how many at once, and when one must end. A tunnel ends with the
//! attempt that it was opened for, with the login that opened it, and with that login's right.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use corro_model::rbac::{Right, Scope, allows};
use corro_model::{ApiError, AttemptId, JobKey, NodeId};
use corro_store::State;
use tokio::sync::{oneshot, watch};
use tokio::time::MissedTickBehavior;

use crate::app::App;
use crate::app::access::caller::scope_of_key;
use crate::app::resources::lookup::{JobPath, find_job};

const MAX_PER_JOB: usize = 64;
const MAX_PER_PRINCIPAL: usize = 128;
const MAX_TUNNELS: usize = 512;
/// Interval at which expiry of logins is checked. Other ends take effect with their commit.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Open tunnels. Clones share them.
#[derive(Clone, Default)]
pub struct Tunnels(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    next_number: u64,
    open: HashMap<u64, OpenTunnel>,
}

struct OpenTunnel {
    job: JobKey,
    attempt: AttemptId,
    node: NodeId,
    principal: String,
    /// Id of the credential that opened it.
    credential: String,
    /// `None` once it was broken off.
    broken: Option<oneshot::Sender<TunnelEnd>>,
}

/// Why a tunnel must end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TunnelEnd {
    /// The attempt no longer runs on the node.
    Job(String),
    /// The login may not use it any longer.
    Login(&'static str),
}

/// A tunnel that may be opened. It counts until it is dropped.
pub struct AdmittedTunnel {
    pub node: NodeId,
    pub attempt: AttemptId,
    pub permit: TunnelPermit,
}

/// The place of a tunnel in the table.
pub struct TunnelPermit {
    registration: TunnelRegistration,
    broken: oneshot::Receiver<TunnelEnd>,
}

/// Removes a tunnel from the table when dropped.
pub struct TunnelRegistration {
    tunnels: Tunnels,
    number: u64,
}

impl TunnelPermit {
    /// A future that resolves when the tunnel must end, and the registration.
    pub fn split(self) -> (impl Future<Output = TunnelEnd>, TunnelRegistration) {
        let TunnelPermit { registration, broken } = self;
        // The sender is in the table as long as the registration.
        (
            async move { broken.await.unwrap_or_else(|_| TunnelEnd::Job("the tunnel was removed".to_owned())) },
            registration,
        )
    }
}

impl Drop for TunnelRegistration {
    fn drop(&mut self) {
        self.tunnels.lock().open.remove(&self.number);
    }
}

impl App {
    /// Admits a tunnel of the caller to a node of a running job: the given one, or the first.
    pub fn admit_tunnel(&self, path: &JobPath, node: Option<&str>) -> Result<AdmittedTunnel, ApiError> {
        let (key, job) = find_job(&self.snapshot(), path)?;
        let nodes = job.state().nodes();
        let Some(first) = nodes.first() else {
            let state = job.state().predicate();
            let message = format!("The job {} {state}: only a running job has ports. See 'corro job why'", job.name);
            return Err(ApiError::conflict("JobNotRunning", message));
        };
        let node = match node {
            None => first,
            Some(id) => nodes.iter().find(|node| node.as_str() == id).ok_or_else(|| {
                let message = format!("The job {} does not run on a node '{id}'", job.name);
                ApiError::new(404, "NodeNotFound", message).about("node")
            })?,
        };
        let caller = &self.request.caller;
        let attempt = job.attempt();
        let (broken_sender, broken) = oneshot::channel();
        let tunnel = OpenTunnel {
            job: key,
            attempt: attempt.clone(),
            node: node.clone(),
            principal: caller.id.clone(),
            credential: caller.credential.clone(),
            broken: Some(broken_sender),
        };
        let registration = self.fleet.tunnels.register(tunnel)?;
        Ok(AdmittedTunnel { node: node.clone(), attempt, permit: TunnelPermit { registration, broken } })
    }
}

impl Tunnels {
    /// Number of open tunnels.
    #[cfg(test)]
    pub fn n_open(&self) -> usize {
        self.lock().open.len()
    }

    fn register(&self, tunnel: OpenTunnel) -> Result<TunnelRegistration, ApiError> {
        let mut table = self.lock();
        let count = |of: &dyn Fn(&OpenTunnel) -> bool| table.open.values().filter(|open| of(open)).count();
        let limits = [
            (count(&|open| open.job == tunnel.job), MAX_PER_JOB, "to this job"),
            (count(&|open| open.principal == tunnel.principal), MAX_PER_PRINCIPAL, "of this login"),
            (table.open.len(), MAX_TUNNELS, "of this server"),
        ];
        if let Some((_, limit, of)) = limits.into_iter().find(|(open, limit, _)| open >= limit) {
            let message = format!("{limit} connections {of} are open, which is the limit: close some");
            return Err(ApiError::new(429, "TooManyTunnels", message));
        }
        let number = table.next_number;
        table.next_number += 1;
        table.open.insert(number, tunnel);
        Ok(TunnelRegistration { tunnels: self.clone(), number })
    }

    /// Breaks off tunnels that must end, until the server stops.
    pub async fn run(self, app: App, mut stop: watch::Receiver<bool>) {
        let mut changes = app.store.changes();
        let mut ticks = tokio::time::interval(CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                _ = ticks.tick() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            self.break_off_ended(&app.snapshot(), |credential| app.is_credential_valid(credential));
        }
    }

    fn break_off_ended(&self, state: &State, is_credential_valid: impl Fn(&str) -> bool) {
        for tunnel in self.lock().open.values_mut() {
            let end = job_end(state, tunnel).map(TunnelEnd::Job);
            let end = end.or_else(|| login_end(state, tunnel, &is_credential_valid).map(TunnelEnd::Login));
            if let Some((end, broken)) = end.and_then(|end| Some((end, tunnel.broken.take()?))) {
                let _ = broken.send(end);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().expect("never poisoned: nothing panics while it is locked")
    }
}

/// Why the attempt of a tunnel no longer runs on its node, if so.
fn job_end(state: &State, tunnel: &OpenTunnel) -> Option<String> {
    let Some(job) = state.jobs.get(&tunnel.job) else { return Some("the job was deleted".to_owned()) };
    let runs = job.attempt() == tunnel.attempt && job.state().nodes().contains(&tunnel.node);
    match job.state().nodes() {
        _ if runs => None,
        [] => Some(format!("the job {}", job.state().predicate())),
        _ => Some("the job was started again".to_owned()),
    }
}

/// Why the login of a tunnel may no longer use it, if so.
fn login_end(state: &State, tunnel: &OpenTunnel, is_credential_valid: impl Fn(&str) -> bool) -> Option<&'static str> {
    if !is_credential_valid(&tunnel.credential) {
        return Some("the login that opened it is no longer valid");
    }
    let scope: Scope = scope_of_key(&tunnel.job.to_string());
    let principal = state.principals.get(&tunnel.principal);
    let is_allowed = principal.is_some_and(|principal| allows(&principal.assignments, Right::Write, &scope));
    (!is_allowed).then_some("the login that opened it has lost the right to do so")
}

#[cfg(test)]
mod tests {
    use corro_model::{GroupKey, Timestamp};

    use super::*;

    fn tunnel(job: &str, principal: usize) -> OpenTunnel {
        OpenTunnel {
            job: GroupKey::new("g").workspace("w").experiment("e").job(job),
            attempt: AttemptId { job: job.to_owned(), number: 1 },
            node: NodeId::new(1, 1, Timestamp::from_millis(0)),
            principal: format!("p{principal}"),
            credential: String::new(),
            broken: None,
        }
    }

    #[test]
    fn connections_are_limited_by_job_by_login_and_in_total() {
        let tunnels = Tunnels::default();
        let refused = |job: &str, principal| tunnels.register(tunnel(job, principal)).err().map(|error| error.message);
        let mut open = Vec::new();
        let mut fill = |job: &str, principal, n| {
            open.extend((0..n).map(|_| tunnels.register(tunnel(job, principal)).expect("there is room")));
        };
        fill("one", 0, MAX_PER_JOB);
        assert_eq!(
            refused("one", 1).expect("full"),
            "64 connections to this job are open, which is the limit: close some"
        );
        fill("two", 0, MAX_PER_PRINCIPAL - MAX_PER_JOB);
        assert!(refused("three", 0).expect("full").contains("128 connections of this login"));
        for principal in 1..MAX_TUNNELS / MAX_PER_PRINCIPAL {
            for part in 0..2 {
                fill(&format!("job-{principal}-{part}"), principal, MAX_PER_JOB);
            }
        }
        assert!(refused("four", 99).expect("full").contains("512 connections of this server"));
        open.pop();
        assert_eq!(refused("four", 99), None);
        open.clear();
        assert_eq!(tunnels.n_open(), 0);
    }
}
