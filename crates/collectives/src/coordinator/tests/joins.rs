//! Join: ranks that have run out of data.

use super::simulated_job::{End, SimulatedJob, config, of_kind, request};
use crate::coordinator::*;

fn join(job: &mut SimulatedJob, rank: usize) -> RequestId {
    job.workers[rank].join(SetId::GLOBAL, job.now).expect("a member")
}

/// For each executed tensor, whether the rank had requested it (and did not contribute zeros).
fn requested_by_rank(job: &SimulatedJob, rank: usize) -> Vec<bool> {
    let executed = job.done[rank].iter().filter_map(|action| match action {
        Action::Execute { tensors, .. } => Some(tensors.iter().map(|tensor| tensor.request_id.is_some())),
        _ => None,
    });
    executed.flatten().collect()
}

#[test]
fn a_joined_rank_contributes_zeros_and_all_get_the_last_joined_rank() {
    let mut job = SimulatedJob::new(3);
    for round in 0..3 {
        let first = join(&mut job, 1);
        job.run();
        for _ in 0..2 {
            let request_ids = [0, 2].map(|rank| job.submit(rank, request("x")));
            job.run();
            assert_eq!(job.end(2, request_ids[1]), Some(&End::Executed), "round {round}");
        }
        assert_eq!(requested_by_rank(&job, 1), vec![false; 2 * (round + 1)]);
        join(&mut job, 2);
        job.run();
        job.submit(0, request("alone"));
        job.run();
        assert_eq!(job.end(1, first), None);
        let last = join(&mut job, 0);
        job.run();
        assert_eq!((job.end(1, first), job.end(0, last)), (Some(&End::Joined(0)), Some(&End::Joined(0))));
        job.done[1].retain(
            |action| !matches!(action, Action::Execute { tensors, .. } if &*tensors[0].response.name == "alone"),
        );
    }
}

#[test]
fn a_join_completes_tensors_that_waited_for_the_rank() {
    let mut job = SimulatedJob::new(2);
    let group = job.submit_group(0, vec![request("a"), request("b")]);
    job.run();
    join(&mut job, 1);
    job.run();
    assert_eq!(job.end(0, group[1]), Some(&End::Executed));
    assert_eq!(requested_by_rank(&job, 1), [false, false]);
}

#[test]
fn requests_before_the_join_are_executed_with_the_ranks_data() {
    let mut job = SimulatedJob::new(2);
    let before = job.submit(1, request("a"));
    join(&mut job, 1);
    let others = job.submit_group(0, vec![request("a"), request("b")]);
    job.run();
    assert_eq!(job.end(1, before), Some(&End::Executed));
    assert_eq!(requested_by_rank(&job, 1), [true, false]);
    assert_eq!(others.len(), 2);
}

#[test]
fn unsupported_kinds_fail_with_join_even_if_cached() {
    let mut job = SimulatedJob::new(2);
    for kind in [Kind::Allgather, Kind::Alltoall, Kind::Broadcast, Kind::Reducescatter] {
        let name = kind.name();
        job.submit_on([0, 1], of_kind(kind, name));
    }
    job.run();
    join(&mut job, 1);
    for kind in [Kind::Allgather, Kind::Alltoall, Kind::Broadcast, Kind::Reducescatter] {
        for name in [kind.name(), "new"] {
            let request_id = job.submit(0, of_kind(kind, name));
            job.run();
            let Some(End::Failed(text)) = job.end(0, request_id) else { panic!("{kind:?} fails") };
            assert!(text.starts_with(&format!("{} is not supported with Join at this time.", kind.call())), "{text}");
        }
    }
    let request_id = job.submit(0, request("x"));
    job.run();
    assert_eq!(job.end(0, request_id), Some(&End::Executed));
}

#[test]
fn a_barrier_does_not_wait_for_joined_ranks() {
    let mut job = SimulatedJob::new(2);
    join(&mut job, 1);
    let request_id = job.workers[0].barrier(SetId::GLOBAL, job.now).expect("a member");
    job.run();
    assert_eq!(job.end(0, request_id), Some(&End::Executed));
}

/// The joined rank's next request is in flight while an operation is executed without it.
#[test]
fn a_request_in_flight_during_a_join_counts_for_the_next_operation() {
    let mut job = SimulatedJob::new(2);
    join(&mut job, 1);
    job.run();
    job.submit(0, request("x"));
    job.flush(0);
    job.deliver_up(0);
    job.drain();
    let crossing = job.submit(1, request("x"));
    job.run();
    assert_eq!((job.end(1, crossing), requested_by_rank(&job, 1)), (None, vec![false]));
    job.submit(0, request("x"));
    job.run();
    assert_eq!(job.end(1, crossing), Some(&End::Executed));
}

/// A request with an evicted cache id is sent again; the join behind it must not overtake it.
#[test]
fn a_join_does_not_overtake_a_resubmission() {
    let mut job = SimulatedJob::with(Config { cache_capacity: 1, ..config(2) });
    job.submit_on([0, 1], request("x"));
    job.run();
    job.submit_on([0, 1], request("y"));
    for rank in 0..2 {
        job.flush(rank);
        job.deliver_up(rank);
    }
    // The cache id of "x" is evicted; rank 1 does not know yet.
    let before = job.submit(1, request("x"));
    join(&mut job, 1);
    job.flush(1);
    job.deliver_up(1);
    job.submit(0, request("x"));
    job.run();
    assert_eq!(job.end(1, before), Some(&End::Executed));
    assert_eq!(requested_by_rank(&job, 1), [true; 3]);
}
