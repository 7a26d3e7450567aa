//! History: automatic entries, their actor, filters, and that it is never ahead of the state.

use corro_model::batchai::{BatchAiError, Provisioning, ProvisioningState};
use corro_model::history::{HistoryEntry, HistoryFilter};
use corro_model::state::{JobEvent, NodeEvent, TransitionError};
use corro_model::{ApiError, ClusterKey, GroupKey, JobKey, NodeId, Timestamp};
use corro_store::{GroupRecord, JobRecord, NewJob, NodeRecord, Store, Txn};
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp::from_millis(1_000);

fn open() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().expect("a temp dir");
    let store = Store::open(&dir.path().join("corro.db")).expect("opens");
    (dir, store)
}

fn cluster() -> ClusterKey {
    GroupKey::new("g").workspace("w").cluster("c")
}

fn job(name: &str) -> JobKey {
    GroupKey::new("g").workspace("w").experiment("e").job(name)
}

fn node() -> NodeId {
    NodeId::new(1, 1, NOW)
}

fn submit(txn: &mut Txn, name: &str) {
    let spec = json!({"nodeCount": 1, "stdOutErrPathPrefix": "x"});
    let job_record = NewJob {
        name: name.to_owned(),
        guid: name.to_owned(),
        sequence: txn.next_sequence(),
        cluster: cluster(),
        spec: serde_json::from_value(spec).expect("a literal"),
        secrets: None,
        fingerprint: String::new(),
        segment: String::new(),
        provisioning: Provisioning::new(ProvisioningState::Succeeded, NOW),
    };
    txn.put(job(name), JobRecord::queued(job_record, NOW));
}

fn group(name: &str) -> GroupRecord {
    GroupRecord { name: name.to_owned(), location: "x".to_owned(), tags: None, created: NOW, deleting: false }
}

async fn commit(store: &Store, change: impl FnOnce(&mut Txn) -> Result<(), TransitionError> + Send + 'static) {
    let commit = store.commit(move |txn| change(txn).map_err(|refused| ApiError::bad_body(refused.to_string())));
    commit.await.expect("commits");
}

fn words(entries: Vec<HistoryEntry>) -> Vec<(String, String)> {
    entries.into_iter().rev().map(|entry| (entry.what, entry.actor)).collect()
}

#[tokio::test]
async fn steps_of_a_job_and_its_node_are_recorded_with_the_actor() {
    let (_dir, store) = open();
    commit(&store.acting_as("ada"), |txn| {
        submit(txn, "j");
        Ok(())
    })
    .await;
    commit(&store, |txn| {
        txn.put(node(), NodeRecord::allocating(cluster(), 1, String::new(), NOW));
        txn.node_event(&node(), NodeEvent::Joined, NOW)?;
        txn.node_event(&node(), NodeEvent::Ready, NOW)?;
        txn.place(&job("j"), vec![node()], NOW)?;
        txn.requeue(&job("j"), BatchAiError::new("NodeLost", "it was lost"), NOW)?;
        txn.place(&job("j"), vec![node()], NOW)
    })
    .await;
    commit(&store, |txn| {
        let errors = vec![BatchAiError::new("JobFailed", "what the program wrote")];
        txn.end_attempt(&job("j"), JobEvent::Failed { exit_code: Some(3), errors, at: NOW }, NOW)
    })
    .await;
    commit(&store.acting_as("ada"), |txn| {
        txn.update::<JobRecord>(&job("j"), |job| job.provisioning.set_state(ProvisioningState::Deleting, NOW));
        Ok(())
    })
    .await;
    commit(&store, |txn| {
        txn.remove::<JobRecord>(&job("j"));
        txn.node_event(&node(), NodeEvent::Broken { error: BatchAiError::new("NodeLost", "silent"), lost: true }, NOW)?;
        txn.remove::<NodeRecord>(&node());
        Ok(())
    })
    .await;

    let of = |resource: &str| HistoryFilter { resource: Some(resource.to_owned()), ..HistoryFilter::newest(100) };
    let entries = store.history(&of("G/W/e/J")).expect("reads");
    let details: Vec<Value> = entries.iter().rev().map(|entry| entry.detail.clone()).collect();
    assert!(!format!("{details:?}").contains("program wrote"));
    assert_eq!(details[1], json!({"attempt": 1, "nodeCount": 1, "nodes": [node()]}));
    assert_eq!(details[2], json!({"attempt": 1, "code": "NodeLost", "message": "it was lost"}));
    assert_eq!(details[3]["attempt"], 2);
    assert_eq!(details[4], json!({"attempt": 2, "exitCode": 3, "code": "JobFailed"}));
    let expected = [
        ("job.submitted", "ada"),
        ("job.placed", "corro"),
        ("job.requeued", "corro"),
        ("job.placed", "corro"),
        ("job.failed", "corro"),
        ("job.deleting", "ada"),
        ("job.deleted", "corro"),
    ];
    assert_eq!(words(entries), expected.map(|(what, actor)| (what.to_owned(), actor.to_owned())));
    let of_cluster = words(store.history(&of("g/w/c")).expect("reads"));
    let names: Vec<&str> = of_cluster.iter().map(|(what, _)| what.as_str()).collect();
    assert_eq!(names, ["node.allocated", "node.joined", "node.lost", "node.deleted"]);
}

#[tokio::test]
async fn entries_are_found_by_kind_actor_and_number_newest_first() {
    let (_dir, store) = open();
    for name in ["g1", "g2", "g10"] {
        commit(&store.acting_as("ada"), |txn| {
            txn.put(GroupKey::new(name), group(name));
            submit(txn, name);
            Ok(())
        })
        .await;
    }
    commit(&store.acting_as("bob"), |txn| {
        txn.put(GroupKey::new("g1"), GroupRecord { location: "westus".into(), ..group("g1") });
        // An unchanged record adds no entry.
        txn.put(GroupKey::new("g1"), GroupRecord { location: "westus".into(), ..group("g1") });
        txn.update::<GroupRecord>(&GroupKey::new("g2"), |_| {});
        txn.add_history("share.created", "g1/account/share", json!({"quota": 5}));
        Ok(())
    })
    .await;
    let numbers = |filter: HistoryFilter| -> Vec<u64> {
        store.history(&filter).expect("reads").into_iter().map(|entry| entry.number).collect()
    };
    let all = HistoryFilter::newest(100);
    assert_eq!(numbers(all.clone()), [8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(numbers(HistoryFilter { limit: 2, before: Some(7), ..all.clone() }), [6, 5]);
    assert_eq!(numbers(HistoryFilter { limit: 2, after: Some(3), ..all.clone() }), [4, 5]);
    assert_eq!(numbers(HistoryFilter { kind: Some("group".into()), ..all.clone() }), [7, 5, 3, 1]);
    assert_eq!(numbers(HistoryFilter { kind: Some("group.changed".into()), ..all.clone() }), [7]);
    assert_eq!(numbers(HistoryFilter { actor: Some("bob".into()), ..all.clone() }), [8, 7]);
    assert_eq!(numbers(HistoryFilter { resource: Some("g1".into()), ..all.clone() }), [8, 7, 1]);
    let last = store.history(&HistoryFilter::newest(1)).expect("reads").remove(0);
    let later = last.time.plus(std::time::Duration::from_secs(1));
    assert_eq!(numbers(HistoryFilter { since: Some(last.time), ..all.clone() }).first(), Some(&8));
    assert_eq!(numbers(HistoryFilter { since: Some(later), ..all }), [0; 0]);
}

#[tokio::test]
async fn a_refused_change_is_no_history_and_numbers_go_on_after_reopening() {
    let (dir, store) = open();
    let refused = store.commit(|txn| {
        submit(txn, "j");
        Err::<(), _>(ApiError::bad_body("no"))
    });
    refused.await.expect_err("refused");
    assert_eq!(store.history(&HistoryFilter::newest(9)).expect("reads"), []);
    let mut store = store;
    for name in ["a", "b"] {
        store.close().await.expect("closes");
        store = Store::open(&dir.path().join("corro.db")).expect("opens");
        commit(&store, |txn| {
            submit(txn, name);
            Ok(())
        })
        .await;
    }
    let entries = store.history(&HistoryFilter::newest(9)).expect("reads");
    assert_eq!(entries.iter().map(|entry| entry.number).collect::<Vec<_>>(), [2, 1]);
}

/// Stored in the job's record, since old history entries are pruned.
#[tokio::test]
async fn a_job_remembers_the_nodes_of_its_last_attempt() {
    let (dir, store) = open();
    let [first, second] = [1, 2].map(|index| NodeId::new(1, index, NOW));
    let nodes = [first.clone(), second.clone()];
    commit(&store, move |txn| {
        submit(txn, "j");
        for (index, id) in (1..).zip(nodes) {
            txn.put(id.clone(), NodeRecord::allocating(cluster(), index, String::new(), NOW));
            txn.node_event(&id, NodeEvent::Joined, NOW)?;
            txn.node_event(&id, NodeEvent::Ready, NOW)?;
        }
        Ok(())
    })
    .await;
    let last = |store: &Store| store.snapshot().jobs[&job("j")].last_nodes().to_vec();
    assert_eq!(last(&store), []);
    let place = |id: &NodeId| {
        let id = id.clone();
        commit(&store, move |txn| txn.place(&job("j"), vec![id], NOW))
    };
    place(&first).await;
    assert_eq!(last(&store), std::slice::from_ref(&first));
    commit(&store, |txn| txn.requeue(&job("j"), BatchAiError::new("NodeLost", "it was lost"), NOW)).await;
    assert_eq!(last(&store), [first], "while it waits for others");
    place(&second).await;
    commit(&store, |txn| txn.end_attempt(&job("j"), JobEvent::Succeeded { at: NOW }, NOW)).await;
    assert_eq!(last(&store), std::slice::from_ref(&second));
    store.close().await.expect("closes");
    let again = Store::open(&dir.path().join("corro.db")).expect("opens again");
    assert_eq!(last(&again), [second]);
}
