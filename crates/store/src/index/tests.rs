//! Property test: after any changes, the index agrees with a scan of the tables.

use std::collections::BTreeSet;

use corro_model::batchai::{BatchAiError, Provisioning, ProvisioningState};
use corro_model::state::{JobEvent, NodeEvent, Termination};
use corro_model::{AttemptId, GroupKey};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{NewJob, OperationGoal, State, Txn};

/// A random change; the numbers identify jobs, clusters, nodes and operations.
#[derive(Clone, Debug)]
enum Change {
    Submit { job: u8, cluster: u8, priority: u8, after: Option<u8> },
    MeetDependency { job: u8, dependency: u8 },
    Retry { job: u8 },
    Place { job: u8, node: u8 },
    Requeue { job: u8 },
    End { job: u8, well: bool },
    Terminate { job: u8 },
    MarkDeleting { job: u8 },
    RemoveJob { job: u8 },
    Allocate { node: u8, cluster: u8 },
    Node { node: u8, event: u8 },
    RemoveNode { node: u8 },
    Begin { operation: u8, ended: Option<u8> },
    EndOperation { operation: u8, at: u8 },
    Forget { operation: u8 },
}

fn changes() -> impl Strategy<Value = Change> {
    let small = 0u8..6;
    prop_oneof![
        3 => (small.clone(), 0u8..2, 0u8..3, proptest::option::of(small.clone())).prop_map(|(job, cluster, priority, after)| {
            Change::Submit { job, cluster, priority, after }
        }),
        2 => (small.clone(), small.clone()).prop_map(|(job, dependency)| Change::MeetDependency { job, dependency }),
        1 => small.clone().prop_map(|job| Change::Retry { job }),
        3 => (small.clone(), small.clone()).prop_map(|(job, node)| Change::Place { job, node }),
        1 => small.clone().prop_map(|job| Change::Requeue { job }),
        1 => (small.clone(), any::<bool>()).prop_map(|(job, well)| Change::End { job, well }),
        1 => small.clone().prop_map(|job| Change::Terminate { job }),
        1 => small.clone().prop_map(|job| Change::MarkDeleting { job }),
        1 => small.clone().prop_map(|job| Change::RemoveJob { job }),
        3 => (small.clone(), 0u8..2).prop_map(|(node, cluster)| Change::Allocate { node, cluster }),
        4 => (small.clone(), 0u8..4).prop_map(|(node, event)| Change::Node { node, event }),
        1 => small.clone().prop_map(|node| Change::RemoveNode { node }),
        1 => (small.clone(), proptest::option::of(small.clone())).prop_map(|(operation, ended)| Change::Begin { operation, ended }),
        1 => (small.clone(), small.clone()).prop_map(|(operation, at)| Change::EndOperation { operation, at }),
        1 => small.prop_map(|operation| Change::Forget { operation }),
    ]
}

fn at(millis: u8) -> Timestamp {
    Timestamp::from_millis(i64::from(millis))
}

fn job_key(job: u8) -> JobKey {
    GroupKey::new("g").workspace("w").experiment("e").job(&format!("j{job}"))
}

fn cluster_key(cluster: u8) -> ClusterKey {
    GroupKey::new("g").workspace("w").cluster(&format!("c{cluster}"))
}

fn node_id(node: u8) -> NodeId {
    NodeId::new(1, u32::from(node), at(0))
}

fn new_job(sequence: u64, cluster: u8, priority: u8) -> JobRecord {
    let priority = ["low", "normal", "high"][usize::from(priority)];
    let spec = json!({"nodeCount": 1, "stdOutErrPathPrefix": "x", "schedulingPriority": priority});
    let job = NewJob {
        name: "j".to_owned(),
        guid: format!("guid-{sequence}"),
        sequence,
        cluster: cluster_key(cluster),
        spec: serde_json::from_value(spec).expect("a literal"),
        secrets: None,
        fingerprint: String::new(),
        segment: String::new(),
        provisioning: Provisioning::new(ProvisioningState::Succeeded, at(0)),
    };
    JobRecord::queued(job, at(0))
}

/// Applies a change. State machines may refuse it; an accepted change must be indexed.
fn apply(txn: &mut Txn, change: Change) -> Result<(), corro_model::state::TransitionError> {
    match change {
        Change::Submit { job, cluster, priority, after } => {
            let sequence = txn.next_sequence();
            let dependencies = after.into_iter().filter(|after| *after != job).map(job_key).collect();
            txn.put(job_key(job), new_job(sequence, cluster, priority).depending_on(dependencies));
        }
        Change::MeetDependency { job, dependency } => txn.meet_dependency(&job_key(job), &job_key(dependency))?,
        Change::Retry { job } => txn.retry(&job_key(job), 1, BatchAiError::new("X", "x"), at(2))?,
        Change::Place { job, node } => txn.place(&job_key(job), vec![node_id(node)], at(1))?,
        Change::Requeue { job } => txn.requeue(&job_key(job), BatchAiError::new("X", "x"), at(2))?,
        Change::End { job, well: true } => txn.end_attempt(&job_key(job), JobEvent::Succeeded { at: at(3) }, at(3))?,
        Change::End { job, well: false } => {
            let event = JobEvent::Failed { exit_code: None, errors: vec![], at: at(3) };
            txn.end_attempt(&job_key(job), event, at(3))?;
        }
        Change::Terminate { job } => {
            txn.job_event(&job_key(job), JobEvent::TerminateRequested { cause: Termination::User, at: at(4) }, at(4))?;
        }
        Change::MarkDeleting { job } => {
            let deleting = |job: &mut JobRecord| job.provisioning.set_state(ProvisioningState::Deleting, at(5));
            txn.update::<JobRecord>(&job_key(job), deleting);
        }
        Change::RemoveJob { job } => txn.remove::<JobRecord>(&job_key(job)),
        Change::Allocate { node, cluster } => {
            let record = NodeRecord::allocating(cluster_key(cluster), u32::from(node), String::new(), at(0));
            txn.put(node_id(node), record);
        }
        Change::Node { node, event } => {
            let attempt = AttemptId { job: "guid".to_owned(), number: 1 };
            let event = match event {
                0 => NodeEvent::Joined,
                1 => NodeEvent::Ready,
                2 => NodeEvent::Assigned { job: job_key(0), attempt },
                _ => NodeEvent::Broken { error: BatchAiError::new("X", "x"), lost: true },
            };
            txn.node_event(&node_id(node), event, at(6))?;
        }
        Change::RemoveNode { node } => txn.remove::<NodeRecord>(&node_id(node)),
        Change::Begin { operation, ended } => {
            let (goal, resource_id) = (OperationGoal::JobCreated(job_key(0)), String::new());
            let (started, ended, by) = (at(0), ended.map(at), String::new());
            let record = OperationRecord { resource_id, goal, started, ended, undone: false, by };
            txn.put(operation.to_string(), record);
        }
        Change::EndOperation { operation, at: ended } => {
            txn.update::<OperationRecord>(&operation.to_string(), |record| record.ended = Some(at(ended)));
        }
        Change::Forget { operation } => txn.remove::<OperationRecord>(&operation.to_string()),
    }
    Ok(())
}

/// Compares every query of the index with a scan of the tables.
fn check(state: &State) {
    let scan = |wanted: &dyn Fn(&JobRecord) -> bool| -> BTreeSet<JobKey> {
        state.jobs.iter().filter(|(_, job)| wanted(job)).map(|(key, _)| key.clone()).collect()
    };
    let keys = |jobs: Vec<(&JobKey, &Arc<JobRecord>)>| -> BTreeSet<JobKey> {
        for (key, job) in &jobs {
            assert!(Arc::ptr_eq(job, &state.jobs[*key]), "the index holds an old record of {key}");
        }
        jobs.into_iter().map(|(key, _)| key.clone()).collect()
    };
    let is_active = |job: &JobRecord| !job.state().is_terminal() && *job.state() != JobState::Queued;
    for cluster in [cluster_key(0), cluster_key(1)] {
        let mut queue: Vec<_> = state.jobs.iter().filter(|(_, job)| job.cluster == cluster).collect();
        queue.retain(|(_, job)| *job.state() == JobState::Queued && job.unmet_dependencies().is_empty());
        queue.sort_by_key(|(_, job)| (Reverse(job.spec.scheduling_priority), job.sequence));
        let indexed: Vec<_> = state.queued_jobs(&cluster).collect();
        assert_eq!(
            indexed.iter().map(|(key, _)| *key).collect::<Vec<_>>(),
            queue.iter().map(|(key, _)| *key).collect::<Vec<_>>()
        );
        assert_eq!(state.queue_length(&cluster), queue.len());
        let by_priority = [Priority::High, Priority::Normal, Priority::Low].map(|p| state.queued_jobs_at(&cluster, p));
        let by_priority = by_priority.into_iter().flatten();
        let brief = by_priority.map(|job| (job.key, job.sequence, job.submitted, job.node_count, job.limit));
        let scanned = queue.iter().map(|(key, job)| {
            let limit = job.spec.constraints.max_wall_clock_time.0;
            (*key, job.sequence, job.submitted(), job.spec.node_count, limit)
        });
        assert_eq!(brief.collect::<Vec<_>>(), scanned.collect::<Vec<_>>());
        keys(indexed);
        let dependent = keys(state.dependent_jobs_of(&cluster).collect());
        assert_eq!(dependent, scan(&|job| job.cluster == cluster && !job.unmet_dependencies().is_empty()));
        let active = keys(state.active_jobs_of(&cluster).collect());
        assert_eq!(active, scan(&|job| job.cluster == cluster && is_active(job)));
        let nodes: Vec<_> = state.nodes.iter().filter(|(_, node)| node.cluster == cluster).collect();
        let indexed: Vec<_> = state.nodes_of(&cluster).collect();
        assert_eq!(indexed.len(), nodes.len());
        for ((id, node), (indexed_id, indexed_node)) in nodes.into_iter().zip(indexed) {
            assert!(id == indexed_id && std::ptr::eq(&**node, indexed_node), "the index holds an old record of {id}");
        }
    }
    assert_eq!(keys(state.active_jobs().collect()), scan(&is_active));
    check_dependencies(state);
    let mut times: Vec<_> = state
        .jobs
        .values()
        .filter_map(|job| match job.state() {
            JobState::Succeeded { started, ended } => Some((Reverse((*ended, job.sequence)), ended.since(*started))),
            _ => None,
        })
        .collect();
    times.sort();
    let times: Vec<_> = times.into_iter().map(|(_, time)| time).collect();
    assert_eq!(state.run_times(&job_key(0).experiment()).collect::<Vec<_>>(), times);
    assert_eq!(keys(state.deleting_jobs().collect()), scan(&|job| job.provisioning.is_deleting()));
    let open: Vec<_> =
        state.operations.iter().filter(|(_, operation)| operation.ended.is_none()).map(|(id, _)| id).collect();
    assert_eq!(state.open_operations().map(|(id, _)| id).collect::<Vec<_>>(), open);
    let ended = state.operations.iter().filter_map(|(id, operation)| Some((operation.ended?, id)));
    assert_eq!(
        state.ended_operations().collect::<Vec<_>>(),
        ended.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    );
    let known = state.jobs.values().map(|job| &job.cluster).chain(state.nodes.values().map(|node| &node.cluster));
    let known: BTreeSet<_> = known.collect();
    assert!(state.index().clusters.keys().all(|cluster| known.contains(cluster)), "a cluster without anything is kept");
}

fn check_dependencies(state: &State) {
    let waits = state.jobs.iter().flat_map(|(key, job)| job.unmet_dependencies().iter().map(move |unmet| (unmet, key)));
    let waits: BTreeSet<_> = waits.collect();
    let has_ended = |key: &JobKey| state.jobs.get(key).is_none_or(|job| job.state().is_terminal());
    let ended: BTreeSet<_> = waits.iter().map(|(unmet, _)| *unmet).filter(|unmet| has_ended(unmet)).collect();
    assert_eq!(state.ended_dependencies().collect::<BTreeSet<_>>(), ended);
    for job in (0..6).map(job_key) {
        let dependents: BTreeSet<_> = waits.iter().filter(|(unmet, _)| **unmet == job).map(|(_, key)| *key).collect();
        assert_eq!(state.dependents_of(&job).collect::<BTreeSet<_>>(), dependents, "{job}");
    }
}

proptest! {
    #[test]
    fn the_index_says_what_a_scan_says(
        transactions in proptest::collection::vec((proptest::collection::vec(changes(), 1..6), any::<bool>()), 1..40),
    ) {
        let mut state = State::default();
        for (changes, kept) in transactions {
            let before = state.clone();
            let mut txn = Txn::new(&state, "test".into());
            let refused = changes.into_iter().any(|change| apply(&mut txn, change).is_err());
            check(txn.state());
            // A refused or dropped transaction leaves the index unchanged.
            if kept && !refused {
                state = txn.finish().0;
            }
            check(&before);
            check(&state);
        }
    }
}
