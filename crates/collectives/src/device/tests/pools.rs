//! Memory that the engine owns: results and copies return to the pool of their device, and are used again only after their last use.

use std::sync::Arc;
use std::sync::mpsc::channel;

use super::elements::{Tensor, decode, values};
use super::job::{Job, LIMIT, ONE_GPU, Rank, one_gpu, request};
use crate::Dtype;
use crate::coordinator::Kind;
use crate::device::context::DeviceContext;
use crate::device::driver::{DevicePtr, Driver};
use crate::device::fake::FakeDriver;
use crate::engine::handle::DeviceOutput;

const ALONE: Job<'static> = one_gpu(&[1]);

/// Result, in new memory, of a broadcast from rank 0 of `elements`.
fn broadcast(rank: &Rank, name: &str, elements: &[f64]) -> Arc<DeviceOutput> {
    let tensor = Tensor::new(rank, Dtype::F64, elements);
    let request = request(name, Kind::Broadcast, Dtype::F64, &[elements.len() as u64]);
    let outcome = rank.finish(&rank.submit(vec![request], vec![tensor.output_allocated()]));
    outcome.outputs[0].device.clone().expect("the result is in device memory")
}

fn address(output: &DeviceOutput) -> DevicePtr {
    output.memory.as_ref().expect("the engine's memory").ptr()
}

#[test]
fn memory_is_used_again_after_the_work_of_its_last_user() {
    for job in ONE_GPU {
        job.run(|rank| {
            let first = broadcast(rank, "first", &[1.0; 300]);
            let at = address(&first);
            // The user's stream reads the result late, and the user gives it up before.
            first.memory.as_ref().expect("the engine's memory").hand_over(rank.stream);
            let ((release, released), (sender, seen)) = (channel::<()>(), channel());
            let driver = rank.driver.clone();
            rank.driver.submit(rank.stream, move || {
                let _ = released.recv();
                let _ = sender.send(driver.read(at, 300 * 8));
            });
            drop(first);
            // Its input does not depend on the user's stream.
            let tensor = Tensor::new(rank, Dtype::F64, &[2.0; 300]);
            let request = vec![request("second", Kind::Broadcast, Dtype::F64, &[300])];
            let ready = rank.context.record(rank.driver.new_stream().expect("a stream")).expect("an event");
            // SAFETY: the tensor lives until the end.
            let handle =
                unsafe { rank.engine.submit_on_device(request, vec![tensor.output_allocated()], false, ready) }
                    .expect("good");
            rank.until_begun("second");
            assert!(!rank.has_result(&handle), "the user still reads the first result");
            release.send(()).expect("the stream waits");
            let outcome = rank.finish(&handle);
            let second = outcome.outputs[0].device.as_ref().expect("the result is in device memory");
            assert_eq!(address(second), at, "memory of this size is in the pool");
            let seen = seen.recv_timeout(LIMIT).expect("the stream goes on");
            assert!(decode(Dtype::F64, &seen) == [1.0; 300], "the first result was overwritten");
            assert!(decode(Dtype::F64, &rank.driver.read(at, 300 * 8)) == [2.0; 300]);
        });
    }
}

#[test]
fn a_result_keeps_its_memory() {
    ALONE.run(|rank| {
        let results: Vec<_> =
            (0..20).map(|index| broadcast(rank, &format!("r{index}"), &[f64::from(index); 100])).collect();
        for (index, result) in results.iter().enumerate() {
            let elements = decode(Dtype::F64, &rank.driver.read(address(result), 800));
            assert_eq!(elements, [index as f64; 100]);
        }
    });
}

#[test]
fn memory_of_the_pool_serves_requests_of_about_its_size() {
    ALONE.run(|rank| {
        let large = address(&broadcast(rank, "large", &[0.0; 10_000]));
        assert_ne!(address(&broadcast(rank, "small", &[0.0; 10])), large, "a small result takes no large block");
        assert_eq!(address(&broadcast(rank, "again", &[0.0; 9_000])), large);
        let medium = address(&broadcast(rank, "larger", &[0.0; 20_000]));
        assert_ne!(medium, large);
    });
}

#[test]
fn exhausted_memory_is_taken_from_the_pool() {
    ALONE.run(|rank| {
        drop(broadcast(rank, "large", &[0.0; 100_000]));
        let is_large = |allocation: &u64| *allocation >= 800_000;
        assert_eq!(rank.driver.allocated().iter().filter(|bytes| is_large(bytes)).count(), 1);
        // Room for the next input, but not for its result, too.
        rank.driver.limit_memory(rank.driver.allocated().iter().sum::<u64>() + 600_000);
        drop(broadcast(rank, "small", &values(Dtype::F64, 0, 60_000)));
        assert_eq!(rank.driver.allocated().iter().filter(|bytes| is_large(bytes)).count(), 0, "it was freed");
    });
}

#[test]
fn the_pool_keeps_a_bounded_amount() {
    let driver = FakeDriver::new(1);
    let context = DeviceContext::with_driver(driver.clone(), 0).expect("a stream");
    let blocks: Vec<_> = (0..10).map(|_| context.allocate(100 << 20).expect("there is memory")).collect();
    assert_eq!(driver.allocated().len(), 10);
    drop(blocks);
    assert_eq!(driver.allocated().len(), 5, "512 MiB are kept");
}

#[test]
fn events_are_used_again() {
    let driver = FakeDriver::new(1);
    let context = DeviceContext::with_driver(driver.clone(), 0).expect("a stream");
    let stream = driver.new_stream().expect("a stream");
    for _ in 0..1000 {
        let event = context.record(stream).expect("an event");
        event.synchronize().expect("an event");
        assert!(event.is_complete().expect("an event"));
    }
    assert_eq!(driver.n_events(), 1);
}

#[test]
fn only_the_last_event_of_a_stream_is_waited_for() {
    let driver = FakeDriver::new(1);
    let context = DeviceContext::with_driver(driver.clone(), 0).expect("a stream");
    let streams = [(); 2].map(|()| driver.new_stream().expect("a stream"));
    let (release, released) = channel::<()>();
    let early = context.record(streams[0]).expect("an event");
    driver.submit(streams[0], move || {
        let _ = released.recv();
    });
    let late = context.record(streams[0]).expect("an event");
    let other = context.record(streams[1]).expect("an event");
    // In any order.
    context.wait_all(context.stream, [&late, &other, &early]).expect("they are events");
    let after = context.record(context.stream).expect("an event");
    early.synchronize().expect("an event");
    other.synchronize().expect("an event");
    assert!(!after.is_complete().expect("an event") && !late.is_complete().expect("an event"));
    release.send(()).expect("the stream waits");
    after.synchronize().expect("an event");
    assert!(late.is_complete().expect("an event"));
}
