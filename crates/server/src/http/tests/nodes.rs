//! Single nodes: listing, preemption and processes, by role.

use corro_model::batchai::RankStats;
use corro_model::gpu::GpuReading;
use corro_model::node::{FromRecording, TaskStats, ToNode};
use corro_model::{GroupKey, NodeId};
use corro_store::{NodeRecord, StoreError};
use serde_json::{Value, json};

use super::{TestServer, cluster};

#[tokio::test]
async fn readers_list_nodes_and_contributors_preempt_them() {
    let test_server = TestServer::new().await;
    let (own, other) = (
        test_server.create_workspace_with_cluster("g", "w").await,
        test_server.create_workspace_with_cluster("h", "w").await,
    );
    let mut low = cluster();
    low["properties"]["vmPriority"] = json!("lowpriority");
    test_server.request("PUT", &format!("{own}/clusters/low"), low).await.is(202);
    let (now, ids) = (test_server.app.now(), [1, 2, 3].map(|pool| NodeId::new(pool, 1, test_server.app.now())));
    let clusters =
        [("g", "low"), ("g", "c"), ("h", "c")].map(|(group, name)| GroupKey::new(group).workspace("w").cluster(name));
    let made = ids.clone();
    let commit = test_server.app.store.commit(move |txn| {
        for (id, cluster) in made.into_iter().zip(clusters) {
            txn.put(id, NodeRecord::allocating(cluster, 1, "127.0.0.4".to_owned(), now));
        }
        Ok::<_, StoreError>(())
    });
    commit.await.expect("three nodes");

    let list = format!("{}/providers/Corro/nodes", test_server.subscription());
    let reader = test_server.principal("reader", "Reader", &[&own]).await;
    let seen = test_server.request_as(&reader, "GET", &list, Value::Null).await.is(200).body;
    let of = |field: &str| -> Vec<Value> {
        seen["value"].as_array().expect("a list").iter().map(|node| node[field].clone()).collect()
    };
    assert_eq!((of("cluster"), of("resourceGroup")), (vec![json!("low"), json!("c")], vec![json!("g"), json!("g")]));
    assert_eq!(
        (of("vmPriority"), of("state")),
        (vec![json!("lowpriority"), json!("dedicated")], vec![json!("allocating"), json!("allocating")])
    );

    let path = |at: &str, cluster: &str, node: &NodeId| format!("{at}/clusters/{cluster}/nodes/{node}/preempt");
    let mine = path(&own, "low", &ids[0]);
    test_server.request_as(&reader, "POST", &mine, json!({})).await.refused(403, "AuthorizationFailed");
    let contributor = test_server.principal("contributor", "Contributor", &[&own]).await;
    let preempt = |path: String, body: Value| {
        let (test_server, contributor) = (&test_server, &contributor);
        async move { test_server.request_as(contributor, "POST", &path, body).await }
    };
    preempt(path(&other, "c", &ids[2]), json!({})).await.refused(403, "AuthorizationFailed");
    let response = preempt(mine.clone(), json!({"graceSeconds": -1})).await;
    assert!(response.status == 400, "{response:?}");
    let response = preempt(path(&own, "c", &ids[1]), json!({})).await.refused(409, "NodeNotPreemptible");
    assert!(
        response.contains("belongs to the dedicated cluster c") && response.contains("resize the cluster"),
        "{response}"
    );
    // A node of another cluster is not found in this one.
    preempt(path(&own, "low", &ids[1]), json!({})).await.refused(404, "NodeNotFound");
    let preempted_node = preempt(mine.clone(), json!({"graceSeconds": 2.5})).await.is(200).body;
    assert_eq!(
        (&preempted_node["preempted"]["graceMs"], &preempted_node["preempted"]["cause"]),
        (&json!(2500), &json!("asked"))
    );
    // A second preemption has no effect.
    assert_eq!(preempt(mine, json!({"graceSeconds": 9})).await.is(200).body["preempted"], preempted_node["preempted"]);
    let lines = test_server.app.history(corro_model::history::HistoryFilter::newest(100)).await.expect("a history");
    assert_eq!(lines.iter().filter(|line| line.what == "node.preempted").count(), 1);
}

#[tokio::test]
async fn processes_need_nodes_and_connected_agents() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    let path = format!("{own}/experiments/e/jobs/j");
    test_server.request("PUT", &path, super::job(&format!("{own}/clusters/c"))).await.is(202);
    let response =
        test_server.request("GET", &format!("{path}/processes"), Value::Null).await.refused(409, "JobNotRunning");
    assert!(response.starts_with("The job j is queued: it has no processes now"), "{response}");
    // A polling page gets no error.
    let response = test_server.request("GET", &format!("{path}/processes?orNone=true"), Value::Null).await.is(200).body;
    assert_eq!(response, json!({"attempt": 0, "nodes": []}));
    let node = place_job(&test_server).await;
    let response = test_server.request("GET", &format!("{path}/processes"), Value::Null).await.is(200).body;
    assert_eq!(response, json!({"attempt": 1, "nodes": [{"nodeId": node, "answered": false, "processes": []}]}));

    // Nodes record a timeline; it is assembled when all have sent theirs.
    let (timeline, wanted) = (format!("{path}/timeline"), |seconds: f64| json!({"seconds": seconds}));
    test_server.request("GET", &timeline, Value::Null).await.refused(404, "TimelineNotFound");
    test_server.request("POST", &timeline, wanted(61.0)).await.is(400);
    let (_line, mut requests) = test_server.app.fleet.process_stats.attach(&node);
    assert_eq!(test_server.request("POST", &timeline, wanted(0.5)).await.is(200).body["state"], "recording");
    test_server.request("POST", &timeline, wanted(0.5)).await.refused(409, "TimelineIsRecording");
    let Some(ToNode::Record { number, millis: 500, .. }) = requests.recv().await else { panic!("not told to record") };
    let began = json!({"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": 7}});
    let events =
        [began, json!({"name": "ALLREDUCE", "ph": "B", "ts": 1, "pid": 1}), json!({"ph": "E", "ts": 5, "pid": 1})];
    for rank in [Some((3, json!(events).to_string())), None] {
        test_server.app.fleet.timelines.record(&node, FromRecording { number, rank });
    }
    let done = loop {
        let response = test_server.request("GET", &timeline, Value::Null).await.is(200).body;
        if response["state"] == "done" {
            break response;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((&done["ranks"], &done["dropped"], &done["silent"]), (&json!(1), &json!(0), &Value::Null));
    let spans = done["traceEvents"].as_array().expect("events").iter().filter(|event| event["ph"] == "X");
    let expected = json!({"name": "ALLREDUCE", "ph": "X", "ts": 1, "dur": 4, "pid": 3, "tid": 1});
    assert_eq!(spans.collect::<Vec<_>>(), [&expected]);
}

#[tokio::test]
async fn a_running_job_without_a_share_is_explained_by_what_its_nodes_report() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    let path = format!("{own}/experiments/e/jobs/j");
    test_server.request("PUT", &path, super::job(&format!("{own}/clusters/c"))).await.is(202);
    let node = place_job(&test_server).await;
    let (_line, mut requests) = test_server.app.fleet.process_stats.attach(&node);
    let attempt = {
        let snapshot = test_server.app.snapshot();
        snapshot.jobs.get(&GroupKey::new("g").workspace("w").experiment("e").job("j")).expect("a job").attempt()
    };
    let (stats, on) = (test_server.app.fleet.process_stats.clone(), node.clone());
    let agent = tokio::spawn(async move {
        while let Some(ToNode::Look) = requests.recv().await {
            let process = RankStats { rank: Some(0), quiet_for_ms: Some(12_345), ..RankStats::default() };
            let lost = GpuReading { gpu: 1, lost: true, ..GpuReading::default() };
            stats.record(
                &node,
                TaskStats { attempt: Some(attempt.clone()), processes: vec![process], gpus: vec![lost] },
            );
        }
    });
    let lost = format!(
        "GPU 1 of node {on} is no longer found by the driver. Processes that use it fail or hang; the operator has to reset \
         the GPU or reboot the machine."
    );
    let said = test_server.request("GET", &format!("{path}/why"), Value::Null).await.is(200).body;
    let sentences: Vec<&str> = said["sentences"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(
        sentences[sentences.len() - 3..],
        [
            "Its output is written to $AZ_BATCHAI_JOB_TEMP/x on its nodes, which is not a share: to follow and keep it, \
             mount a share and set stdOutErrPathPrefix to a directory on it.",
            lost.as_str(),
            "Its processes have written no output for 12 s.",
        ]
    );
    agent.abort();
}

/// Runs the job `j` of the experiment `e` on a new node.
async fn place_job(test_server: &TestServer) -> NodeId {
    let (now, node) = (test_server.app.now(), NodeId::new(1, 1, test_server.app.now()));
    let (key, id) = (GroupKey::new("g").workspace("w").experiment("e").job("j"), node.clone());
    let commit = test_server.app.store.commit(move |txn| {
        let cluster = GroupKey::new("g").workspace("w").cluster("c");
        txn.put(id.clone(), NodeRecord::allocating(cluster, 1, String::new(), now));
        for event in [corro_model::state::NodeEvent::Joined, corro_model::state::NodeEvent::Ready] {
            txn.node_event(&id, event, now).expect("it becomes idle");
        }
        txn.place(&key, vec![id], now).expect("it is idle");
        Ok::<_, StoreError>(())
    });
    commit.await.expect("it runs");
    node
}
