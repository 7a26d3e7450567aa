//! Trials whose output lies on a share are compared and stopped. Nodes and the progress of jobs are written into the store.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use corro_model::state::NodeEvent;
use corro_model::{GroupKey, JobKey, NodeId, Timestamp};
use corro_store::NodeRecord;
use serde_json::{Value, json};

use super::*;
use crate::http::tests::{TestServer, job};

const NOW: Timestamp = Timestamp::from_millis(1_900_000_000_000);

fn key(name: &str) -> JobKey {
    GroupKey::new("g").workspace("w").experiment("e").job(name)
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// A server with the jobs of a sweep, all running.
struct Sweep {
    server: TestServer,
    experiment: String,
    cluster: String,
}

impl Sweep {
    async fn start(n_trials: u32) -> Sweep {
        let server = TestServer::new().await;
        let own = server.create_workspace_with_cluster("g", "w").await;
        server.account("g", "someaccount").await;
        server.app.storage.shares.create_share("someaccount", "logs").expect("a share");
        let sweep = Sweep { server, experiment: format!("{own}/experiments/e"), cluster: format!("{own}/clusters/c") };
        for trial in 1..=n_trials {
            sweep.submit(&format!("s-{trial:03}"), sweep.spec(trial, n_trials)).await;
            sweep.place(trial, &format!("s-{trial:03}")).await;
        }
        sweep
    }

    fn spec(&self, trial: u32, n_trials: u32) -> Value {
        let mut wanted = job(&self.cluster);
        wanted["properties"]["stdOutErrPathPrefix"] = json!("$AZ_BATCHAI_JOB_MOUNT_ROOT/logs");
        wanted["properties"]["mountVolumes"] = json!({"azureFileShares": [{
            "accountName": "someaccount", "azureFileUrl": "https://someaccount.file.core.windows.net/logs",
            "relativeMountPath": "logs", "credentials": {"accountKey": "x"}}]});
        wanted["properties"]["sweep"] = json!({
            "name": "S", "trial": trial, "trialCount": n_trials, "space": ["lr=0..1"], "parameters": [{"name": "lr", "value": "1"}],
            "metric": "val_acc", "stopping": {"kind": "asha"},
        });
        wanted
    }

    async fn submit(&self, name: &str, spec: Value) {
        self.server.request("PUT", &format!("{}/jobs/{name}", self.experiment), spec).await.is(202);
    }

    /// Runs a job on a node of its own.
    async fn place(&self, node: u32, name: &str) {
        let (id, job) = (NodeId::new(1, node, NOW), key(name));
        let placed = self.server.app.store.commit(move |txn| {
            let cluster = GroupKey::new("g").workspace("w").cluster("c");
            txn.put(id.clone(), NodeRecord::allocating(cluster, node, String::new(), NOW));
            txn.node_event(&id, NodeEvent::Joined, NOW).expect("it was allocating");
            txn.node_event(&id, NodeEvent::Ready, NOW).expect("it was preparing");
            txn.place(&job, vec![id], NOW).expect("the node is idle");
            Ok::<_, ApiError>(())
        });
        placed.await.expect("committed");
    }

    async fn properties(&self, name: &str) -> Value {
        let shown = self.server.request("GET", &format!("{}/jobs/{name}", self.experiment), Value::Null).await.is(200);
        shown.body["properties"].clone()
    }

    /// Writes the metric of a trial: one value for each epoch.
    async fn write_log(&self, name: &str, metric: &str, values: &[f64]) {
        let segment = self.properties(name).await["jobOutputDirectoryPathSegment"].as_str().expect("a path").to_owned();
        let share: PathBuf = self.server.app.storage.shares.host_path("someaccount", "logs").expect("a path");
        let directory = share.join(segment).join("stdouterr");
        fs::create_dir_all(&directory).expect("a directory");
        let lines = values
            .iter()
            .zip(1..)
            .map(|(value, epoch)| json!({"corro": {"epoch": epoch, metric: value}}).to_string() + "\n");
        fs::write(directory.join("stdout.txt"), lines.collect::<String>()).expect("written");
    }

    /// What is decided with curves that are read from their beginning, as after a restart.
    fn decide(&self) -> Vec<(String, String)> {
        self.decide_with(&mut TrialCurves::default())
            .into_iter()
            .map(|stop| (stop.job.to_string(), stop.reason))
            .collect()
    }

    fn decide_with(&self, curves: &mut TrialCurves) -> Vec<TrialStop> {
        decide(&self.server.app, curves, deadline())
    }
}

#[tokio::test]
async fn poor_trials_are_stopped_and_say_why() {
    let sweep = Sweep::start(4).await;
    let mut curves = TrialCurves::default();
    assert_eq!(sweep.decide_with(&mut curves), []);
    for (trial, value) in [("s-001", 0.5), ("s-002", 0.25)] {
        sweep.write_log(trial, "val_acc", &[value, value]).await;
    }
    // Two of four trials have a value, and a third is needed. Another metric is none.
    sweep.write_log("s-003", "val_loss", &[0.1, 0.1]).await;
    assert_eq!(sweep.decide(), []);

    sweep.write_log("s-004", "val_acc", &[0.123456]).await;
    let reason = |value| format!("stopped by the sweep S: val_acc {value} at epoch 1 is not the best of 3 trials");
    let expected = [("g/w/e/s-002", "0.25"), ("g/w/e/s-004", "0.1235")];
    let expected = expected.map(|(job, value)| (job.to_owned(), reason(value)));
    assert_eq!(sweep.decide(), expected);

    let stops = sweep.decide_with(&mut TrialCurves::default());
    stop_trials(&sweep.server.app, stops.clone()).await.expect("committed");
    // Once more changes nothing, and nothing more is to be stopped.
    stop_trials(&sweep.server.app, stops).await.expect("committed");
    assert_eq!(sweep.decide(), []);
    let mut states = Vec::new();
    for trial in 1..=4 {
        states.push(sweep.properties(&format!("s-{trial:03}")).await["executionState"].clone());
    }
    assert_eq!(states, ["running", "terminating", "running", "terminating"]);
    let end = JobEvent::Failed { exit_code: Some(143), errors: vec![], at: NOW };
    let ended = sweep.server.app.store.commit(move |txn| {
        txn.end_attempt(&key("s-002"), end, NOW).expect("it was terminating");
        Ok::<_, ApiError>(())
    });
    ended.await.expect("committed");
    let info = sweep.properties("s-002").await["executionInfo"].clone();
    assert_eq!((&info["errors"][0]["code"], &info["exitCode"]), (&json!("StoppedEarly"), &Value::Null));
    assert_eq!(info["errors"][0]["message"], reason("0.25"));

    // A stopped trial counts at the rungs that it reached, also when it is read again.
    sweep.write_log("s-003", "val_acc", &[0.3]).await;
    let third = [("g/w/e/s-003".to_owned(), reason("0.3").replace("3 trials", "4 trials"))];
    assert_eq!(sweep.decide(), third);
}

#[tokio::test]
async fn only_trials_of_the_sweep_are_compared() {
    let sweep = Sweep::start(2).await;
    // Names that begin alike: a job of no sweep, and a trial of another.
    let mut plain = sweep.spec(1, 1);
    plain["properties"].as_object_mut().expect("an object").remove("sweep");
    let mut other = sweep.spec(1, 1);
    other["properties"]["sweep"]["name"] = json!("s-002");
    sweep.submit("s-9", plain).await;
    sweep.submit("s-002-001", other).await;
    for (node, name, value) in [(3, "s-9", 0.9), (4, "s-002-001", 0.8)] {
        sweep.place(node, name).await;
        sweep.write_log(name, "val_acc", &[value]).await;
    }
    for (name, value) in [("s-001", 0.5), ("s-002", 0.25)] {
        sweep.write_log(name, "val_acc", &[value]).await;
    }
    assert_eq!(sweep.decide(), []);
    let mut misnamed = sweep.spec(3, 3);
    misnamed["properties"]["sweep"]["name"] = json!("t");
    let path = format!("{}/jobs/s-003", sweep.experiment);
    sweep.server.request("PUT", &path, misnamed).await.refused(400, "InvalidPropertyValue");
}
