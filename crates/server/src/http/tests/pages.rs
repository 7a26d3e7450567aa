//! A page of jobs contains each job exactly as the job's own response, byte for byte, in every state.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use corro_model::batchai::{BatchAiError, Job, Page, ProvisioningState};
use corro_model::state::{JobEvent, NodeEvent, Termination, TransitionError};
use corro_model::{GroupKey, NodeId, Timestamp};
use corro_store::{JobRecord, NodeRecord, StoreError, Txn};
use http::header;
use http_body_util::BodyExt;
use serde_json::json;

use super::{TestServer, cluster, job};

/// One job per name, sorted.
const JOBS: [&str; 9] = [
    "deleting",
    "failed",
    "lost",
    "running",
    "stopping",
    "succeeded",
    "waits-behind",
    "waits-first",
    "waits-too-large",
];

#[tokio::test]
async fn a_page_consists_of_the_responses_for_its_jobs() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    test_server.request("PUT", &format!("{own}/clusters/d"), cluster()).await.is(202);
    for name in JOBS {
        // No job waits for the terminating one: its end is unknown.
        let mut wanted = job(&format!("{own}/clusters/{}", if name == "stopping" { "d" } else { "c" }));
        wanted["properties"]["nodeCount"] = json!(if name == "waits-too-large" { 3 } else { 1 });
        wanted["properties"]["environmentVariables"] = json!([{"name": "A", "value": "\"quoted\"\n\u{1F980}"}]);
        wanted["properties"]["secrets"] = json!([{"name": "S", "value": "918273"}]);
        wanted["properties"]["schedulingPriority"] = json!(if name == "waits-first" { "high" } else { "normal" });
        test_server.request("PUT", &format!("{own}/experiments/e/jobs/{name}"), wanted).await.is(202);
    }
    let steps = |txn: &mut Txn| Ok::<_, StoreError>(set_job_states(txn));
    test_server.app.store.commit(steps).await.expect("a commit").expect("every step is one that the state allows");

    let list = format!("{own}/experiments/e/jobs");
    let page = test_server.text(&list).await;
    let mut each = Vec::new();
    for name in JOBS {
        each.push(test_server.text(&format!("{list}/{name}")).await);
    }
    assert_eq!(page, format!(r#"{{"value":[{}]}}"#, each.join(",")));

    // Parsing and serializing again gives the same text: no unknown fields are written.
    let read: Page<Job> = serde_json::from_str(&page).expect("a page of jobs");
    assert_eq!(serde_json::to_string(&read).expect("plain data"), page);
    let status = |job: &Job| serde_json::to_value(&job.properties.status).expect("plain data");
    let states: Vec<_> = read.value.iter().map(|job| status(job)["executionState"].clone()).collect();
    let expected = ["failed", "failed", "queued", "running", "terminating", "succeeded", "queued", "queued", "queued"];
    assert_eq!(states, expected);
    let waiting = |job: &Job| job.properties.status.waiting.is_some() && job.properties.status.waiting_for.is_some();
    assert_eq!(read.value.iter().filter(|job| waiting(job)).count(), 4);
    assert_eq!(read.value.iter().map(|job| job.properties.status.lost_attempts.len()).sum::<usize>(), 1);
}

/// Brings each job into the state its name says, one after another on a node of its cluster. The nodes are busy in the end, so
/// that no response depends on the time.
fn set_job_states(txn: &mut Txn) -> Result<(), TransitionError> {
    let at = |seconds| Timestamp::from_millis(1_900_000_000_000).plus(Duration::from_secs(seconds));
    let workspace = GroupKey::new("g").workspace("w");
    let key = |name| workspace.experiment("e").job(name);
    let node = |cluster| NodeId::new(if cluster == "c" { 1 } else { 2 }, 1, at(0));
    for cluster in ["c", "d"] {
        let id = node(cluster);
        txn.put(id.clone(), NodeRecord::allocating(workspace.cluster(cluster), 1, String::new(), at(0)));
        txn.node_event(&id, NodeEvent::Joined, at(1))?;
        txn.node_event(&id, NodeEvent::Ready, at(2))?;
    }
    let place = |txn: &mut Txn, name, cluster, when| txn.place(&key(name), vec![node(cluster)], when);
    place(txn, "deleting", "c", at(3))?;
    let error = BatchAiError::new("JobFailed", "as a test wanted").with("rank", "0");
    txn.end_attempt(&key("deleting"), JobEvent::Failed { exit_code: Some(1), errors: vec![error], at: at(4) }, at(4))?;
    txn.update::<JobRecord>(&key("deleting"), |job| job.provisioning.set_state(ProvisioningState::Deleting, at(5)));
    txn.job_event(&key("failed"), JobEvent::TerminateRequested { cause: Termination::User, at: at(5) }, at(5))?;
    place(txn, "lost", "c", at(6))?;
    txn.requeue(&key("lost"), BatchAiError::new("NodeLost", "as a test wanted"), at(7))?;
    place(txn, "succeeded", "c", at(8))?;
    txn.end_attempt(&key("succeeded"), JobEvent::Succeeded { at: at(9) }, at(9))?;
    place(txn, "running", "c", at(10))?;
    place(txn, "stopping", "d", at(11))?;
    let stop = JobEvent::TerminateRequested { cause: Termination::User, at: at(12) };
    txn.job_event(&key("stopping"), stop, at(12))
}

impl TestServer {
    /// The raw body of a GET.
    async fn text(&self, path: &str) -> String {
        let request = Request::builder()
            .uri(format!("{path}?api-version=2018-05-01"))
            .header(header::HOST, "localhost")
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .body(Body::empty())
            .expect("a request");
        let body = self.api.handle(request).await.into_body().collect().await.expect("a whole body").to_bytes();
        String::from_utf8(body.to_vec()).expect("text")
    }
}
