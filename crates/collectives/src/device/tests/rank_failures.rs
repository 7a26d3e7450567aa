//! Ranks that die or leave while others need them: the others' operations fail with the rank's name.

use std::sync::Barrier;

use super::elements::{Reduction, Tensor, values};
use super::job::{LIMIT, ONE_GPU, Rank, THROUGH_HOST, one_gpu, request};
use super::ordering::compute_later;
use crate::coordinator::{Kind, SetId};
use crate::engine::ops::Handle;
use crate::{Dtype, ReduceOp};

const DTYPE: Dtype = Dtype::F32;
const N: usize = 50;

fn submit(rank: &Rank, name: &str, tensor: &Tensor) -> Handle {
    rank.submit(vec![request(name, Kind::Allreduce, DTYPE, &[N as u64])], vec![tensor.in_place()])
}

fn tensor(rank: &Rank) -> Tensor {
    Tensor::new(rank, DTYPE, &values(DTYPE, rank.rank(), N))
}

/// As the failure detector does when the connection to a rank ends.
fn find_dead(rank: &Rank, dead: usize) {
    assert!(rank.engine.world.peer_table.on_died(dead), "it was alive");
}

fn death(rank: usize) -> String {
    format!("rank {rank} on host host{rank} has died")
}

#[test]
fn operations_that_a_dead_rank_has_not_submitted_fail() {
    for (job, dead) in [(ONE_GPU[2], 2), (ONE_GPU[2], 0), (THROUGH_HOST[2], 1)] {
        println!("{job:?}, rank {dead}");
        let finished = Barrier::new(3);
        job.run_to_end(|rank| {
            let first = tensor(&rank);
            rank.finish(&submit(&rank, "first", &first));
            if rank.rank() == dead {
                finished.wait();
                return;
            }
            let second = tensor(&rank);
            let handle = submit(&rank, "second", &second);
            find_dead(&rank, dead);
            assert_eq!(rank.error(&handle), death(dead));
            finished.wait();
        });
    }
}

#[test]
fn operations_in_which_a_dead_rank_is_late_fail() {
    for dead in 0..3 {
        let [begun, finished, drained] = [(); 3].map(|()| Barrier::new(3));
        one_gpu(&[1; 3]).run_to_end(|rank| {
            let tensor = Tensor::unwritten(&rank, DTYPE, N);
            let release = compute_later(&rank, tensor.ptr, &values(DTYPE, rank.rank(), N));
            if rank.rank() != dead {
                release.send(()).expect("the stream waits");
            }
            let handle = submit(&rank, "sum", &tensor);
            rank.until_begun("sum");
            begun.wait();
            if rank.rank() == dead {
                finished.wait();
                // The streams of a process end with it, and use no memory of others afterwards; those of a thread must be waited for.
                find_dead(&rank, (dead + 1) % 3);
                find_dead(&rank, (dead + 2) % 3);
                release.send(()).expect("the stream waits");
                assert!(rank.engine.wait_for(&handle, LIMIT), "it ends");
                for stream in [rank.stream, rank.context.ready_stream, rank.context.stream] {
                    rank.context.record(stream).expect("an event").synchronize().expect("an event");
                }
            } else {
                // It waits for the dead rank, or for the first, which does.
                find_dead(&rank, dead);
                assert_eq!(rank.error(&handle), death(dead));
                let request = request("late", Kind::Allreduce, DTYPE, &[N as u64]);
                let late = rank.try_submit(vec![request], vec![tensor.in_place()]);
                assert_eq!(late.err().map(|error| error.to_string()), Some(death(dead)));
                finished.wait();
            }
            drained.wait();
        });
    }
}

#[test]
fn a_rank_that_leaves_early_is_named() {
    for (job, leaver) in [(ONE_GPU[1], 0), (ONE_GPU[2], 1), (THROUGH_HOST[1], 1)] {
        job.run_to_end(|rank| {
            let first = tensor(&rank);
            rank.finish(&submit(&rank, "first", &first));
            rank.engine.barrier(SetId::GLOBAL).expect("all ranks arrive");
            if rank.rank() != leaver {
                let second = tensor(&rank);
                let request = request("second", Kind::Allreduce, DTYPE, &[N as u64]);
                let error = match rank.try_submit(vec![request], vec![second.in_place()]) {
                    Ok(handle) => rank.error(&handle),
                    Err(error) => error.to_string(),
                };
                assert!(error.ends_with(&format!("Rank {leaver} was the first to shut down or to exit.")), "{error}");
            }
        });
    }
}

#[test]
fn an_operation_in_flight_is_completed_when_a_rank_shuts_down() {
    one_gpu(&[1; 3]).run_to_end(|rank| {
        let me = rank.rank();
        let tensor = Tensor::unwritten(&rank, DTYPE, N);
        let release = compute_later(&rank, tensor.ptr, &values(DTYPE, me, N));
        if me != 0 {
            release.send(()).expect("the stream waits");
        }
        let outcome = rank.engine.synchronize(&submit(&rank, "last", &tensor)).expect("submitted to the device");
        let done = outcome.outputs[0].device.as_ref().expect("the result is in device memory").done.clone();
        if me == 0 {
            // Its device is the one that computes, and has not begun.
            rank.engine.shut_down();
            assert!(!done.is_complete().expect("an event"));
            release.send(()).expect("the stream waits");
        }
        done.synchronize().expect("an event");
        assert_eq!(tensor.elements(), Reduction::new(DTYPE, ReduceOp::Sum).of(0..3, N), "rank {me}");
    });
}
