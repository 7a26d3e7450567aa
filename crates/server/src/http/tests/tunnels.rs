//! Tunnels: who may open one, to which node, and which changes end it. No agent is connected; `tests/notebooks/ports.rs` has real ones.

use std::time::Duration;

use corro_model::state::{JobEvent, Termination};
use corro_model::{ApiError, GroupKey, JobKey, NodeId, Timestamp};
use corro_store::JobRecord;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{TestServer, job};
use crate::app::access::caller::ClientProgram;
use crate::app::jobs::tunnels::{AdmittedTunnel, TunnelEnd};
use crate::app::resources::lookup::JobPath;

const DEADLINE: Duration = Duration::from_secs(60);

struct RunningJob {
    test_server: TestServer,
    workspace: String,
    nodes: Vec<NodeId>,
    _stop: watch::Sender<bool>,
}

impl RunningJob {
    /// A server with the job `j` on two nodes, which checks open tunnels.
    async fn new() -> RunningJob {
        let test_server = TestServer::new().await;
        let workspace = test_server.create_workspace_with_cluster("g", "w").await;
        let path = format!("{workspace}/experiments/e/jobs/j");
        test_server.request("PUT", &path, job(&format!("{workspace}/clusters/c"))).await.is(202);
        let (stop, stopping) = watch::channel(false);
        tokio::spawn(test_server.app.fleet.tunnels.clone().run(test_server.app.clone(), stopping));
        let mut running = RunningJob { test_server, workspace, nodes: Vec::new(), _stop: stop };
        running.place(1).await;
        running
    }

    async fn place(&mut self, pool: u32) {
        let now = self.test_server.app.now();
        self.nodes = [1, 2].map(|idx| NodeId::new(pool, idx, now)).into();
        let nodes = self.nodes.clone();
        self.apply(|at| JobEvent::Placed { nodes, at }).await;
        let commit = self.test_server.app.store.commit(|txn| {
            txn.update::<JobRecord>(&job_key(), |job| job.attempts += 1);
            Ok::<_, ApiError>(())
        });
        commit.await.expect("another attempt");
    }

    /// Applies a job event as the reconciler would.
    async fn apply(&self, event: impl FnOnce(Timestamp) -> JobEvent) {
        let now = self.test_server.app.now();
        let (key, event) = (job_key(), event(now));
        let commit = self.test_server.app.store.commit(move |txn| {
            txn.job_event(&key, event, now).expect("it can happen");
            Ok::<_, ApiError>(())
        });
        commit.await.expect("it is noted");
    }

    fn admit(&self, token: &str, node: Option<&str>) -> Result<AdmittedTunnel, ApiError> {
        let caller = self.test_server.app.authenticate(token).expect("a caller");
        let name = |name: &str| name.to_owned();
        let path = JobPath { group: name("g"), workspace: name("w"), experiment: name("e"), job: name("J") };
        self.test_server.app.acting_as(caller, "127.0.0.1", ClientProgram::Other).admit_tunnel(&path, node)
    }
}

fn job_key() -> JobKey {
    GroupKey::new("g").workspace("w").experiment("e").job("j")
}

async fn end_of(tunnel: AdmittedTunnel) -> TunnelEnd {
    let (ended, _registration) = tunnel.permit.split();
    timeout(DEADLINE, ended).await.expect("it ends")
}

#[tokio::test]
async fn a_tunnel_leads_to_a_node_of_the_running_attempt_and_ends_with_it() {
    let mut running = RunningJob::new().await;
    let token = running.test_server.token.clone();
    let first = running.admit(&token, None).expect("it runs");
    assert_eq!((&first.node, first.attempt.number), (&running.nodes[0], 1));
    let second = running.admit(&token, Some(running.nodes[1].as_str())).expect("it runs there");
    assert_eq!(second.node, running.nodes[1]);
    let other = NodeId::new(9, 9, running.test_server.app.now());
    let refused = running.admit(&token, Some(other.as_str())).err().expect("another job's");
    assert_eq!((refused.status, refused.code.as_str()), (404, "NodeNotFound"));
    // The attempt ends, and another begins on other nodes.
    running.apply(|_| JobEvent::Requeued).await;
    assert_eq!(end_of(first).await, TunnelEnd::Job("the job is queued".to_owned()));
    let refused = running.admit(&token, None).err().expect("it does not run");
    assert_eq!((refused.status, refused.code.as_str()), (409, "JobNotRunning"));
    running.place(2).await;
    assert!(matches!(end_of(second).await, TunnelEnd::Job(_)), "the old attempt's");
    let third = running.admit(&token, None).expect("it runs again");
    assert_eq!((&third.node, third.attempt.number), (&running.nodes[0], 2));
    assert_eq!(running.test_server.app.fleet.tunnels.n_open(), 1);
    running.apply(|at| JobEvent::TerminateRequested { cause: Termination::User, at }).await;
    running.apply(|at| JobEvent::Failed { exit_code: None, errors: Vec::new(), at }).await;
    assert_eq!(end_of(third).await, TunnelEnd::Job("the job has failed".to_owned()));
    assert_eq!(running.test_server.app.fleet.tunnels.n_open(), 0);
}

#[tokio::test]
async fn a_tunnel_ends_with_the_login_that_opened_it() {
    let running = RunningJob::new().await;
    let test_server = &running.test_server;
    let token = test_server.principal("alice", "Contributor", &[&running.workspace]).await;
    let own = running.admit(&test_server.token, None).expect("the administrator's");
    let principals = format!("{}/providers/Corro/principals", test_server.subscription());
    let revoked = running.admit(&token, None).expect("alice's");
    test_server.request("POST", &format!("{principals}/alice/revokeTokens"), Value::Null).await.is(200);
    assert_eq!(end_of(revoked).await, TunnelEnd::Login("the login that opened it is no longer valid"));
    let (ended, registration) = own.permit.split();
    // Ticks of the check pass.
    assert!(timeout(Duration::from_millis(1500), ended).await.is_err(), "another login's stays");
    drop(registration);
}

#[tokio::test]
async fn a_request_is_checked_before_it_is_upgraded() {
    let running = RunningJob::new().await;
    let test_server = &running.test_server;
    let reader = test_server.principal("reader", "Reader", &[&running.workspace]).await;
    let path = |target: &str| format!("{}/experiments/e/jobs/j/tunnels/{target}", running.workspace);
    test_server.request_as(&reader, "GET", &path("80"), Value::Null).await.refused(403, "AuthorizationFailed");
    test_server.request("GET", &path("80"), Value::Null).await.refused(400, "UpgradeRequired");
    test_server.request("POST", &path("80"), json!({})).await.is(405);
}
