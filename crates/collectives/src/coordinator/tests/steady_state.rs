//! Steady state of a training loop: after the first step only cache ids are sent, and no table grows.

use super::simulated_job::{SimulatedJob, config, of_kind, request};
use crate::coordinator::*;

const N_TENSORS: usize = 161;

fn step(job: &mut SimulatedJob) {
    for rank in 0..job.size() {
        // Each rank submits in a different order.
        for n in 0..N_TENSORS {
            job.submit(rank, request(&format!("a.rather.long.name.of.a.gradient.{}", (n * 5 + rank * 11) % N_TENSORS)));
        }
        job.submit(rank, Request { shape: vec![rank as u64, 2], ..of_kind(Kind::Allgather, "g") });
        job.submit(rank, Request { shape: vec![6], splits: vec![1, 2, 3], ..of_kind(Kind::Alltoall, "t") });
        job.submit(rank, of_kind(Kind::Broadcast, "b"));
        job.submit(rank, of_kind(Kind::Reducescatter, "r"));
        job.workers[rank].barrier(SetId::GLOBAL, job.now).expect("a member");
    }
    job.run();
    assert_eq!(job.workers.iter().map(Worker::n_pending).sum::<usize>(), 0);
}

#[test]
fn only_cache_ids_are_sent_and_no_table_grows() {
    let mut job = SimulatedJob::new(3);
    step(&mut job);
    step(&mut job);
    let sizes = |job: &SimulatedJob| {
        let workers: Vec<_> = job.workers.iter().map(Worker::footprint).collect();
        (job.coordinator.footprint(), workers)
    };
    let before = sizes(&job);
    for _ in 0..50 {
        (job.bytes_up, job.bytes_down) = (0, 0);
        step(&mut job);
        let n_operations = 3 * (N_TENSORS + 5);
        assert!(job.bytes_up <= 3 * n_operations, "{} bytes up", job.bytes_up);
        assert!(job.bytes_down <= 3 * n_operations, "{} bytes down", job.bytes_down);
    }
    assert_eq!(sizes(&job), before);
}

#[test]
fn more_names_than_the_cache_capacity_do_not_accumulate() {
    for cache_capacity in [0, 1, 7, 100] {
        let mut job = SimulatedJob::with(Config { cache_capacity, ..config(3) });
        for _ in 0..10 {
            step(&mut job);
        }
        let (coordinator, worker) = (job.coordinator.footprint(), job.workers[2].footprint());
        assert!(coordinator.n_ids == cache_capacity && worker.n_ids == cache_capacity, "{coordinator:?} {worker:?}");
        assert!(
            coordinator.n_names == cache_capacity && worker.n_names == cache_capacity,
            "{coordinator:?} {worker:?}"
        );
    }
}

#[test]
fn names_used_once_do_not_accumulate() {
    let mut job = SimulatedJob::with(Config { cache_capacity: 10, ..config(2) });
    for n in 0..1000 {
        job.submit_on([0, 1], request(&n.to_string()));
        job.run();
    }
    let (coordinator, worker) = (job.coordinator.footprint(), job.workers[1].footprint());
    assert!(coordinator.n_slots < 16 && worker.n_slots < 16, "{coordinator:?} {worker:?}");
}

/// A rank sends a cache id that is evicted while its message is in flight.
#[test]
fn a_request_with_an_evicted_cache_id_is_sent_again_in_full() {
    let mut job = SimulatedJob::with(Config { cache_capacity: 1, ..config(2) });
    job.submit_on([0, 1], request("x"));
    job.run();
    job.submit_on([0, 1], request("y"));
    for rank in 0..2 {
        job.flush(rank);
        job.deliver_up(rank);
    }
    // The cache id of "x" is evicted; the workers do not know yet.
    let group = job.submit_group(0, vec![request("z"), request("x")]);
    let single = job.submit(1, request("x"));
    job.submit(1, request("z"));
    job.run();
    assert!(job.end(0, group[0]).is_some() && job.end(0, group[1]).is_some() && job.end(1, single).is_some());
}
