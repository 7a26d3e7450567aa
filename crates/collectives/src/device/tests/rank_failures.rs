//! Ranks that die or leave while others need them: the waits of the others' streams end, and their operations fail with the rank's name.

use std::sync::Barrier;
use std::sync::mpsc::channel;

use super::elements::{Reduction, Tensor, values};
use super::job::{ONE_GPU, Rank, THROUGH_HOST, one_gpu, request, until};
use super::ordering::compute_later;
use crate::coordinator::{Kind, Request, SetId};
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

/// The streams of a process end with it, and use no memory of others afterwards; those of a thread must be waited for.
fn end_streams(rank: &Rank) {
    for stream in [rank.stream, rank.context.ready_stream, rank.context.stream] {
        rank.context.record(stream).expect("an event").synchronize().expect("an event");
    }
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
fn streams_that_wait_for_a_dead_rank_are_released() {
    for dead in 0..3 {
        let [submitted, finished, drained] = [(); 3].map(|()| Barrier::new(3));
        one_gpu(&[1; 3]).run_to_end(|rank| {
            let tensor = Tensor::unwritten(&rank, DTYPE, N);
            let release = compute_later(&rank, tensor.ptr, &values(DTYPE, rank.rank(), N));
            if rank.rank() != dead {
                release.send(()).expect("the stream waits");
            }
            let outcome = rank.engine.synchronize(&submit(&rank, "sum", &tensor)).expect("submitted to the device");
            let done = outcome.outputs[0].device.as_ref().expect("the result is in device memory").done.clone();
            submitted.wait();
            if rank.rank() == dead {
                finished.wait();
                release.send(()).expect("the stream waits");
                end_streams(&rank);
                drained.wait();
                return;
            }
            assert!(!done.is_complete().expect("an event"), "the dead rank's input is not there");
            find_dead(&rank, dead);
            until("the stream is released", || done.is_complete().expect("an event"));
            // Another rank may have found out first, and released the streams of all.
            until("this rank finds out", || rank.engine.ended().is_some());
            assert_eq!(rank.engine.ended().as_deref(), Some(death(dead).as_str()));
            let request = request("late", Kind::Allreduce, DTYPE, &[N as u64]);
            let late = rank.try_submit(vec![request], vec![tensor.in_place()]);
            assert_eq!(late.err().map(|error| error.to_string()), Some(death(dead)));
            finished.wait();
            drained.wait();
        });
    }
}

#[test]
fn many_waits_are_released_at_once() {
    let [submitted, finished, drained] = [(); 3].map(|()| Barrier::new(2));
    one_gpu(&[1; 2]).run_to_end(|rank| {
        let tensors: Vec<Tensor> = (0..20).map(|_| Tensor::unwritten(&rank, DTYPE, N)).collect();
        let is_dead = rank.rank() == 0;
        let mut releases = Vec::new();
        let mut events = Vec::new();
        for (index, tensor) in tensors.iter().enumerate() {
            let release = compute_later(&rank, tensor.ptr, &values(DTYPE, rank.rank(), N));
            if is_dead {
                releases.push(release)
            } else {
                release.send(()).expect("the stream waits")
            }
            let handle = submit(&rank, &format!("t{index}"), tensor);
            let outcome = rank.engine.synchronize(&handle).expect("submitted to the device");
            events.push(outcome.outputs[0].device.as_ref().expect("in device memory").done.clone());
        }
        submitted.wait();
        if is_dead {
            finished.wait();
            drop(releases);
            end_streams(&rank);
            drained.wait();
            return;
        }
        find_dead(&rank, 0);
        for event in &events {
            until("the stream is released", || event.is_complete().expect("an event"));
        }
        finished.wait();
        drained.wait();
    });
}

#[test]
fn work_in_progress_does_not_take_a_release_back() {
    let (failed, finished) = (Barrier::new(2), Barrier::new(2));
    one_gpu(&[1; 2]).run_to_end(|rank| {
        let is_first = rank.rank() == 0;
        let (first, second) = (Tensor::unwritten(&rank, DTYPE, N), tensor(&rank));
        let release = compute_later(&rank, first.ptr, &values(DTYPE, rank.rank(), N));
        // The other rank's device is behind: it begins to wait when the first rank has failed and written its flags.
        let (go_on, goes_on) = channel::<()>();
        if !is_first {
            release.send(()).expect("the stream waits");
            rank.driver.submit(rank.context.stream, move || {
                let _ = goes_on.recv();
            });
        }
        rank.engine.synchronize(&submit(&rank, "first", &first)).expect("submitted to the device");
        if is_first {
            *rank.driver.out_of_memory.lock().expect("no panic") = Some(1);
        }
        let request = request("second", Kind::Adasum, DTYPE, &[N as u64]);
        let request = Request { op: ReduceOp::Adasum, ..request };
        let handle = rank.submit(vec![request], vec![second.in_place()]);
        if is_first {
            assert!(rank.error(&handle).contains("no memory for"));
            release.send(()).expect("the stream waits");
            end_streams(&rank);
            failed.wait();
        } else {
            let outcome = rank.engine.synchronize(&handle).expect("submitted to the device");
            let done = outcome.outputs[0].device.as_ref().expect("in device memory").done.clone();
            failed.wait();
            go_on.send(()).expect("the stream waits");
            until("the stream is released", || done.is_complete().expect("an event"));
        }
        finished.wait();
    });
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
fn operations_in_flight_are_completed_when_a_rank_shuts_down() {
    for (slow, leaver) in [(1, 0), (0, 1), (1, 2)] {
        println!("rank {slow} is slow, rank {leaver} leaves");
        one_gpu(&[1; 3]).run_to_end(|rank| {
            let me = rank.rank();
            let tensor = Tensor::unwritten(&rank, DTYPE, N);
            let release = compute_later(&rank, tensor.ptr, &values(DTYPE, me, N));
            if me != slow {
                release.send(()).expect("the stream waits");
            }
            let outcome = rank.engine.synchronize(&submit(&rank, "last", &tensor)).expect("submitted to the device");
            let done = outcome.outputs[0].device.as_ref().expect("the result is in device memory").done.clone();
            rank.engine.barrier(SetId::GLOBAL).expect("all ranks arrive");
            if me == leaver {
                rank.engine.shut_down();
            }
            until("the engine ends", || rank.engine.ended().is_some());
            if me == slow {
                release.send(()).expect("the stream waits");
            }
            done.synchronize().expect("an event");
            let sum = Reduction::new(DTYPE, ReduceOp::Sum).of(0..3, N);
            assert_eq!(tensor.elements(), sum, "rank {me}");
        });
    }
}
