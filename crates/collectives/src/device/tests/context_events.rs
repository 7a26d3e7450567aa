//! Frameworks that do not tell their streams: inputs and results are ordered with all streams of the context ([`Stream::CONTEXT`]).

use std::sync::mpsc::channel;

use super::elements::{Reduction, Tensor, decode, values};
use super::job::{LIMIT, ONE_GPU, Rank, THROUGH_HOST, request};
use super::ordering::compute_later;
use crate::coordinator::Kind;
use crate::device::driver::Stream;
use crate::engine::ops::Handle;
use crate::engine::submission::TensorBuffers;
use crate::{Dtype, ReduceOp};

const DTYPE: Dtype = Dtype::F32;
const N: usize = 1000;

/// Submits a sum whose input is there when all streams are.
fn submit(rank: &Rank, name: &str, buffers: TensorBuffers) -> Handle {
    let ready = rank.context.record(Stream::CONTEXT).expect("an event");
    let requests = vec![request(name, Kind::Allreduce, DTYPE, &[N as u64])];
    // SAFETY: tests keep their tensors until the operation is complete.
    unsafe { rank.engine.submit_on_device(requests, vec![buffers], false, ready) }.expect("good requests")
}

/// What a stream of the framework reads at an address when it gets there.
fn read_in_stream(rank: &Rank, stream: Stream, at: u64) -> Vec<f64> {
    let (sender, seen) = channel();
    let driver = rank.driver.clone();
    rank.driver.submit(stream, move || drop(sender.send(driver.read(at, N * DTYPE.size()))));
    decode(DTYPE, &seen.recv_timeout(LIMIT).expect("the stream goes on"))
}

#[test]
fn work_of_any_stream_comes_before_and_after() {
    for job in ONE_GPU.into_iter().chain(THROUGH_HOST) {
        job.run(|rank| {
            let expected = Reduction::new(DTYPE, ReduceOp::Sum).of(0..rank.size(), N);
            let tensor = Tensor::unwritten(rank, DTYPE, N);
            let release = compute_later(rank, tensor.ptr, &values(DTYPE, rank.rank(), N));
            let handle = submit(rank, "sum", tensor.in_place());
            rank.until_begun("sum");
            assert!(!rank.has_result(&handle), "the input is not there");
            release.send(()).expect("the stream waits");
            let outcome = rank.engine.synchronize(&handle).expect("the operation succeeds");
            let output = outcome.outputs[0].device.clone().expect("the result is in device memory");
            output.done.wait_in(Stream::CONTEXT).expect("an event");
            assert_eq!(read_in_stream(rank, rank.stream, tensor.ptr), expected);
            let later = crate::device::driver::Driver::new_stream(&*rank.driver).expect("a stream");
            assert_eq!(read_in_stream(rank, later, tensor.ptr), expected);
        });
    }
}

#[test]
fn many_operations_in_flight_keep_their_order() {
    for job in ONE_GPU.into_iter().chain(THROUGH_HOST) {
        job.run(|rank| {
            let own = values(DTYPE, rank.rank(), N);
            let tensors: Vec<Tensor> = (0..20).map(|_| Tensor::new(rank, DTYPE, &own)).collect();
            let name = |index: usize| format!("t{index}");
            let handles: Vec<Handle> = tensors
                .iter()
                .enumerate()
                .map(|(index, tensor)| submit(rank, &name(index), tensor.in_place()))
                .collect();
            for (handle, tensor) in handles.iter().zip(&tensors) {
                let outcome = rank.engine.synchronize(handle).expect("the operation succeeds");
                let output = outcome.outputs[0].device.as_ref().expect("the result is in device memory");
                output.done.wait_in(Stream::CONTEXT).expect("an event");
                let expected = Reduction::new(DTYPE, ReduceOp::Sum).of(0..rank.size(), N);
                assert_eq!(read_in_stream(rank, rank.stream, tensor.ptr), expected);
            }
        });
    }
}

#[test]
fn results_are_copied_to_memory_of_the_framework() {
    for job in ONE_GPU.into_iter().chain(THROUGH_HOST) {
        job.run(|rank| {
            let expected = Reduction::new(DTYPE, ReduceOp::Sum).of(0..rank.size(), N);
            let own = values(DTYPE, rank.rank(), N);
            let (input, target) = (Tensor::new(rank, DTYPE, &own), Tensor::new(rank, DTYPE, &[5.0; N]));
            let handle = submit(rank, "sum", input.output_allocated());
            let outcome = rank.engine.synchronize(&handle).expect("the operation succeeds");
            let output = outcome.outputs[0].device.as_ref().expect("the result is in device memory");
            let memory = output.memory.as_ref().expect("the engine's memory");
            // Earlier work of the framework still uses the memory.
            let ((release, released), (sender, seen)) = (channel::<()>(), channel());
            let (driver, at) = (rank.driver.clone(), target.ptr);
            rank.driver.submit(rank.stream, move || {
                let _ = released.recv();
                let _ = sender.send(driver.read(at, N * DTYPE.size()));
            });
            // SAFETY: both tensors are as large, and the target is used in the rank's stream.
            unsafe { rank.context.copy_result(memory, &output.done, target.ptr, input.n_bytes(), Stream::CONTEXT) }
                .expect("submitted");
            release.send(()).expect("the stream waits");
            assert_eq!(decode(DTYPE, &seen.recv_timeout(LIMIT).expect("the stream goes on")), [5.0; N]);
            assert_eq!(read_in_stream(rank, rank.stream, target.ptr), expected);
        });
    }
}
