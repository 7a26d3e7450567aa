//! Process sets: added and removed by all ranks, used by their members.

use super::simulated_job::{End, SimulatedJob, request};
use crate::coordinator::*;

fn add(job: &mut SimulatedJob, ranks: &[u32]) -> End {
    let request_ids: Vec<RequestId> =
        job.workers.iter_mut().map(|worker| worker.add_set(ranks.to_vec(), job.now).expect("allowed")).collect();
    job.run();
    let end = job.end(0, request_ids[0]).expect("all ranks have requested it").clone();
    for (rank, request_id) in request_ids.iter().enumerate() {
        assert_eq!(job.end(rank, *request_id), Some(&end));
    }
    end
}

fn added(id: u32, generation: SetGeneration, ranks: &[u32]) -> End {
    End::SetsAdded(vec![ProcessSet { id: SetId(id), generation, ranks: ranks.to_vec() }])
}

fn remove(job: &mut SimulatedJob, set: u32) {
    for rank in 0..job.size() {
        job.workers[rank].remove_set(SetId(set), job.now).expect("registered");
    }
    job.run();
}

fn in_set(set: u32, name: &str) -> Request {
    Request { set: SetId(set), ..request(name) }
}

#[test]
fn ids_are_reused_first_in_first_out_and_generations_never() {
    let mut job = SimulatedJob::new(3);
    assert_eq!(add(&mut job, &[2, 0]), added(1, 1, &[0, 2]));
    assert_eq!(add(&mut job, &[1]), added(2, 2, &[1]));
    assert_eq!(add(&mut job, &[1, 2]), added(3, 3, &[1, 2]));
    remove(&mut job, 2);
    remove(&mut job, 1);
    assert_eq!(add(&mut job, &[0]), added(2, 4, &[0]));
    assert_eq!(add(&mut job, &[2]), added(1, 5, &[2]));
    assert_eq!(add(&mut job, &[0, 1]), added(4, 6, &[0, 1]));
    assert_eq!(job.workers[0].ranks_of(SetId(4)).map(|ranks| ranks.to_vec()), Some(vec![0, 1]));
}

#[test]
fn errors_have_horovods_messages() {
    let mut job = SimulatedJob::new(3);
    add(&mut job, &[0, 1]);
    for (ranks, text) in [
        (&[1, 0][..], "Attempted to add a duplicate process set: [0, 1]"),
        (&[0, 1, 2], "Attempted to add a duplicate process set: [0, 1, 2]"),
        (&[0, 2, 2], "Tried to register process set with duplicate rank: 2"),
        (&[0, 3], "Tried to register process set with invalid rank: 3"),
        (&[], "Tried to register process set without ranks"),
    ] {
        assert_eq!(add(&mut job, ranks), End::SetRefused(text.into()));
    }
    let mut differ = |set_requests: [&[u32]; 3], text: &str| {
        let request_ids =
            [0, 1, 2].map(|rank| job.workers[rank].add_set(set_requests[rank].to_vec(), job.now).expect("allowed"));
        job.run();
        assert_eq!(job.end(2, request_ids[2]), Some(&End::SetRefused(text.into())));
    };
    differ([&[0], &[0], &[0, 2]], "Attempted to register process set with mismatching size on different ranks");
    differ([&[0], &[1], &[0]], "Attempted to register process set with mismatching values on different ranks");
    assert_eq!(job.workers[0].remove_set(SetId::GLOBAL, job.now), Err(SubmitError::NotRemovable { set: SetId(0) }));
    assert_eq!(job.workers[0].remove_set(SetId(9), job.now), Err(SubmitError::NotRemovable { set: SetId(9) }));
    let mut worker = Worker::new(WorkerConfig { rank: 0, size: 1, dynamic_sets: false });
    let off = "Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow adding/removing process sets after Horovod initialization.";
    assert_eq!(worker.add_set(vec![0], job.now).unwrap_err().to_string(), off);
    assert_eq!(worker.remove_set(SetId(1), job.now).unwrap_err().to_string(), off);
}

#[test]
fn sets_given_at_init_are_created_all_or_none() {
    let check = |set_requests: [&[&[u32]]; 2], expected: Result<usize, &str>| {
        let mut job = SimulatedJob::new(2);
        let request_ids = [0, 1].map(|rank| {
            let sets = set_requests[rank].iter().map(|ranks| ranks.to_vec()).collect();
            job.workers[rank].register_sets(sets, job.now).expect("the first thing")
        });
        job.run();
        let end = job.end(1, request_ids[1]).expect("all ranks have requested it");
        match expected {
            Ok(n) => assert!(matches!(end, End::SetsAdded(sets) if sets.len() == n), "{end:?}"),
            Err(text) => {
                assert_eq!(*end, End::SetRefused(text.into()));
                assert_eq!(add(&mut job, &[0]), added(1, 1, &[0]));
            }
        }
    };
    check([&[&[0], &[1]], &[&[0], &[1]]], Ok(2));
    check([&[], &[]], Ok(0));
    check([&[&[0], &[1]], &[&[0]]], Err("Different ranks tried to set up mismatching numbers of process sets"));
    check([&[&[1]], &[&[0]]], Err("Attempted to register process set with mismatching values on different ranks"));
    check(
        [&[&[1], &[0]], &[&[1], &[0, 1]]],
        Err("Attempted to register process set with mismatching size on different ranks"),
    );
    check([&[&[1], &[1]], &[&[1], &[1]]], Err("Attempted to add a duplicate process set: [1]"));
}

#[test]
fn only_members_take_part_and_get_responses() {
    let mut job = SimulatedJob::new(3);
    add(&mut job, &[0, 2]);
    let refused = job.workers[1].submit_one(in_set(1, "x"), job.now).unwrap_err();
    assert_eq!(refused.to_string(), "Allreduce: Rank 1 is not a member of the provided process set.");
    let refused = job.workers[1].barrier(SetId(1), job.now).unwrap_err();
    assert_eq!(refused.to_string(), "Barrier: Rank 1 is not a member of the provided process set.");
    let root = Request { kind: Kind::Broadcast, root: 1, ..in_set(1, "x") };
    let refused = job.workers[0].submit_one(root, job.now).unwrap_err();
    assert_eq!(refused.to_string(), "broadcast received invalid root rank 1 for provided process set");
    // The same name in two sets means two tensors.
    for rank in 0..3 {
        job.submit(rank, request("x"));
    }
    for _ in 0..2 {
        job.submit_on([0, 2], in_set(1, "x"));
        job.run();
    }
    assert_eq!(job.take_executed(0).len(), 3);
    assert_eq!(job.take_executed(1).len(), 1);
    // A join in one set is not a join in the other.
    job.workers[0].join(SetId(1), job.now).expect("a member");
    job.submit(1, request("y"));
    job.submit(2, request("y"));
    job.run();
    assert_eq!(job.take_executed(1).len(), 0);
}

#[test]
fn pending_operations_fail_when_their_set_is_removed() {
    let mut job = SimulatedJob::new(3);
    add(&mut job, &[0, 1]);
    let request_id = job.submit(0, in_set(1, "x"));
    let barrier = job.workers[1].barrier(SetId(1), job.now).expect("a member");
    remove(&mut job, 1);
    let gone =
        |call: &str| End::Failed(format!("{call}: Process set provided does not exist, or has not been registered."));
    assert_eq!(job.end(0, request_id), Some(&gone("Allreduce")));
    assert_eq!(job.end(1, barrier), Some(&gone("Barrier")));
    let refused = job.workers[0].submit_one(in_set(1, "x"), job.now).unwrap_err();
    assert_eq!(refused, SubmitError::UnknownSet { kind: Kind::Allreduce });
    assert_eq!(job.workers[0].n_pending() + job.workers[1].n_pending(), 0);
}

#[test]
fn a_request_in_flight_to_a_removed_set_never_reaches_its_successor() {
    let mut job = SimulatedJob::new(3);
    add(&mut job, &[0, 1]);
    for rank in 0..3 {
        job.workers[rank].remove_set(SetId(1), job.now).expect("registered");
        job.workers[rank].add_set(vec![0, 1], job.now).expect("allowed");
    }
    // Sent after both requests, but for the set that is about to be removed.
    let late = job.submit(0, in_set(1, "x"));
    job.run();
    let text = "Allreduce: Process set provided does not exist, or has not been registered.";
    assert_eq!(job.end(0, late), Some(&End::Failed(text.into())));
    let request_id = job.submit(1, in_set(1, "x"));
    job.run();
    assert_eq!(job.end(1, request_id), None);
    job.submit(0, in_set(1, "x"));
    job.run();
    assert_eq!(job.end(1, request_id), Some(&End::Executed));
}
