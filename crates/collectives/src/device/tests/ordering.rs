//! Order of the work of streams: results follow the inputs, however late these are. No submission waits, and no thread of a single rank waits
//! for its device.

use std::sync::Barrier;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::elements::{Reduction, Tensor, decode, encode, values};
use super::job::{LIMIT, ONE_GPU, Rank, THROUGH_HOST, buffers, request, until};
use crate::coordinator::Kind;
use crate::device::driver::{DevicePtr, Driver};
use crate::{Dtype, ReduceOp};

const DTYPE: Dtype = Dtype::F32;
const N: usize = 1000;

fn sum(rank: &Rank) -> Vec<f64> {
    Reduction::new(DTYPE, ReduceOp::Sum).of(0..rank.size(), N)
}

/// Work in a stream that computes `elements` at an address once the test says so.
pub fn compute_later(rank: &Rank, at: DevicePtr, elements: &[f64]) -> Sender<()> {
    let (release, released): (_, Receiver<()>) = channel();
    let (driver, bytes) = (rank.driver.clone(), encode(DTYPE, elements));
    rank.driver.submit(rank.stream, move || {
        // A test that has failed releases, too.
        let _ = released.recv();
        driver.write(at, &bytes);
    });
    release
}

#[test]
fn results_follow_the_inputs_of_the_slowest_rank() {
    for job in ONE_GPU {
        for slow in 0..job.gpus.len() {
            let [begun, checked] = [(); 2].map(|()| Barrier::new(job.gpus.len()));
            job.run(|rank| {
                let tensor = Tensor::unwritten(rank, DTYPE, N);
                let release = compute_later(rank, tensor.ptr, &values(DTYPE, rank.rank(), N));
                let is_slow = rank.rank() == slow;
                if !is_slow {
                    release.send(()).expect("the stream waits");
                }
                let request = request("sum", Kind::Allreduce, DTYPE, &[N as u64]);
                let handle = rank.submit(vec![request], vec![tensor.in_place()]);
                rank.until_begun("sum");
                begun.wait();
                assert!(!rank.has_result(&handle), "rank {slow} has no input yet");
                checked.wait();
                if is_slow {
                    release.send(()).expect("the stream waits");
                }
                rank.finish(&handle);
                assert_eq!(tensor.elements(), sum(rank));
            });
        }
    }
}

#[test]
fn a_submission_does_not_wait_where_data_passes_through_host_memory() {
    for job in &THROUGH_HOST[1..] {
        job.run(|rank| {
            let tensor = Tensor::unwritten(rank, DTYPE, N);
            let release = compute_later(rank, tensor.ptr, &values(DTYPE, rank.rank(), N));
            let request = request("sum", Kind::Allreduce, DTYPE, &[N as u64]);
            let handle = rank.submit(vec![request], vec![tensor.in_place()]);
            assert!(!handle.is_done(), "the input is not there");
            release.send(()).expect("the stream waits");
            rank.finish(&handle);
            assert_eq!(tensor.elements(), sum(rank));
        });
    }
}

#[test]
fn another_stream_sees_results_after_it_has_waited() {
    for job in ONE_GPU {
        job.run(|rank| {
            let tensor = Tensor::unwritten(rank, DTYPE, N);
            let release = compute_later(rank, tensor.ptr, &values(DTYPE, rank.rank(), N));
            // A thread waits for other ranks, but not for its own device.
            let release = Some(release).filter(|release| rank.size() == 1 || release.send(()).is_err());
            let request = request("sum", Kind::Allreduce, DTYPE, &[N as u64]);
            let handle = rank.submit(vec![request], vec![tensor.output_allocated()]);
            let outcome = rank.engine.synchronize(&handle).expect("it is submitted");
            let device = outcome.outputs[0].device.clone().expect("the result is in device memory");
            let result = device.memory.as_ref().expect("the engine's memory").ptr();
            let other = rank.driver.new_stream().expect("a stream");
            device.done.wait_in(other).expect("the stream waits");
            let (sender, seen) = channel();
            let driver = rank.driver.clone();
            rank.driver.submit(other, move || drop(sender.send(driver.read(result, N * DTYPE.size()))));
            if let Some(release) = release {
                assert!(seen.try_recv().is_err(), "the input is not there");
                release.send(()).expect("the stream waits");
            }
            let seen = seen.recv_timeout(LIMIT).expect("the stream goes on");
            assert_eq!(decode(DTYPE, &seen), sum(rank));
        });
    }
}

#[test]
fn many_operations_are_in_flight() {
    for job in ONE_GPU.into_iter().chain(THROUGH_HOST) {
        job.run(|rank| {
            let tensors: Vec<Tensor> = (0..100).map(|_| Tensor::unwritten(rank, DTYPE, N)).collect();
            let own = values(DTYPE, rank.rank(), N);
            let mut handles = Vec::new();
            for (index, tensor) in tensors.iter().enumerate() {
                let release = compute_later(rank, tensor.ptr, &own);
                let request = request(&format!("t{index}"), Kind::Allreduce, DTYPE, &[N as u64]);
                handles.push(rank.submit(vec![request], vec![tensor.in_place()]));
                release.send(()).expect("the stream waits");
            }
            for (handle, tensor) in handles.iter().zip(&tensors) {
                rank.finish(handle);
                assert!(handle.is_settled());
                assert!(tensor.elements() == sum(rank));
            }
        });
    }
}

#[test]
fn operations_use_each_others_results_without_a_wait_of_the_cpu() {
    for job in ONE_GPU {
        job.run(|rank| {
            let tensor = Tensor::unwritten(rank, DTYPE, N);
            let release = compute_later(rank, tensor.ptr, &values(DTYPE, rank.rank(), N));
            let release = Some(release).filter(|release| rank.size() == 1 || release.send(()).is_err());
            let mut input = tensor.ptr;
            let mut results = Vec::new();
            for step in 0..20 {
                let kind = if step == 0 { Kind::Allreduce } else { Kind::Broadcast };
                let request = request(&format!("step {step}"), kind, DTYPE, &[N as u64]);
                let place = buffers(input, N * DTYPE.size(), None);
                let outcome = rank.engine.synchronize(&rank.submit(vec![request], vec![place])).expect("submitted");
                let device = outcome.outputs[0].device.clone().expect("the result is in device memory");
                device.done.wait_in(rank.stream).expect("the stream waits");
                input = device.memory.as_ref().expect("the engine's memory").ptr();
                results.push(device);
            }
            let last = results.pop().expect("20 results");
            // The others return to the pool while their work is still to be done.
            drop(results);
            if let Some(release) = release {
                assert!(!last.done.is_complete().expect("an event"));
                release.send(()).expect("the stream waits");
            }
            last.done.synchronize().expect("an event");
            assert_eq!(decode(DTYPE, &rank.driver.read(input, N * DTYPE.size())), sum(rank));
        });
    }
}

#[test]
fn a_call_is_settled_when_the_device_is_done() {
    ONE_GPU[0].run(|rank| {
        let tensor = Tensor::unwritten(rank, DTYPE, N);
        let release = compute_later(rank, tensor.ptr, &values(DTYPE, rank.rank(), N));
        let request = request("sum", Kind::Allreduce, DTYPE, &[N as u64]);
        let handle = rank.submit(vec![request], vec![tensor.output_allocated()]);
        assert!(rank.engine.wait_for(&handle, LIMIT));
        assert!(handle.is_done() && !handle.is_settled());
        release.send(()).expect("the stream waits");
        until("the device is done", || handle.is_settled());
    });
}
