//! Failures of one rank that does not die: exhausted memory, a tensor in the wrong memory, transports that are impossible. All ranks end with an
//! error, and none waits for ever.

use std::sync::Barrier;

use super::elements::{Tensor, encode, values};
use super::job::{HOST, Job, LIMIT, ONE_GPU, Rank, THROUGH_HOST, buffers, one_gpu, request, until};
use crate::coordinator::{Kind, Request};
use crate::engine::ops::Handle;
use crate::{Dtype, ReduceOp};

const DTYPE: Dtype = Dtype::F32;

fn submit(rank: &Rank, name: &str, kind: Kind, tensor: &Tensor, in_place: bool) -> Handle {
    let n_elements = (tensor.n_bytes() / DTYPE.size()) as u64;
    let request = request(name, kind, DTYPE, &[n_elements]);
    let op = if kind == Kind::Adasum { ReduceOp::Adasum } else { ReduceOp::Sum };
    let place = if in_place { tensor.in_place() } else { tensor.output_allocated() };
    rank.submit(vec![Request { op, ..request }], vec![place])
}

fn tensor(rank: &Rank, n_elements: usize) -> Tensor {
    Tensor::new(rank, DTYPE, &values(DTYPE, rank.rank(), n_elements))
}

/// A first operation, which chooses the transport.
fn begin(rank: &Rank) {
    rank.finish(&submit(rank, "first", Kind::Allreduce, &tensor(rank, 3), true));
}

/// Submits operations until one fails, and returns its error.
fn error_of_next(rank: &Rank) -> String {
    for step in 0.. {
        let tensor = tensor(rank, 4);
        let request = request(&format!("next {step}"), Kind::Broadcast, DTYPE, &[4]);
        let handle = match rank.try_submit(vec![request], vec![tensor.output_allocated()]) {
            Ok(handle) => handle,
            Err(error) => return error.to_string(),
        };
        assert!(rank.engine.wait_for(&handle, LIMIT), "rank {} waits for ever", rank.rank());
        if let Err(error) = rank.engine.synchronize(&handle) {
            return error.to_string();
        }
    }
    unreachable!("there is always a next step")
}

fn assert_names(rank: usize, error: &str) {
    assert!(error.to_lowercase().contains(&format!("rank {rank}")), "{error}");
}

#[test]
fn memory_for_a_result_is_exhausted() {
    for (job, poor) in [(ONE_GPU[1], 0), (ONE_GPU[1], 1), (ONE_GPU[2], 1), (THROUGH_HOST[1], 0), (THROUGH_HOST[1], 1)] {
        println!("{job:?}, rank {poor}");
        job.run_to_end(|rank| {
            begin(&rank);
            let input = tensor(&rank, 100_000);
            if rank.rank() == poor {
                *rank.driver.out_of_memory.lock().expect("no panic") = Some(500_000);
            }
            let handle = submit(&rank, "big", Kind::Allgather, &input, false);
            if rank.rank() != poor {
                // Where data passes through host memory, the others have their results.
                assert!(rank.engine.wait_for(&handle, LIMIT));
                assert_names(poor, &error_of_next(&rank));
                return;
            }
            let n_bytes = 400_000 * rank.size();
            assert_eq!(
                rank.error(&handle),
                format!(
                    "rank {poor}: Allgather of big failed on the GPU: no memory for a result of {n_bytes} bytes on the GPU: \
                     cuMemAlloc_v2 failed: the test says so"
                )
            );
            assert!(error_of_next(&rank).contains("no memory for a result"), "later operations get the same error");
        });
    }
}

#[test]
fn memory_for_the_fusion_buffer_is_exhausted() {
    THROUGH_HOST[1].run_to_end(|rank| {
        let input = tensor(&rank, 10);
        if rank.rank() == 1 {
            *rank.driver.out_of_memory.lock().expect("no panic") = Some(1 << 20);
        }
        let handle = submit(&rank, "grad", Kind::Allreduce, &input, true);
        let error = rank.error(&handle);
        assert_names(1, &error);
        if rank.rank() == 1 {
            assert!(error.starts_with("rank 1: Allreduce of grad failed on the GPU: no memory for"), "{error}");
            assert!(error.contains("HOROVOD_FUSION_THRESHOLD"), "{error}");
        }
    });
}

#[test]
fn memory_for_a_copy_is_exhausted() {
    one_gpu(&[1; 2]).run_to_end(|rank| {
        begin(&rank);
        let input = tensor(&rank, 100_000);
        if rank.rank() == 1 {
            rank.driver.unexportable.lock().expect("no panic").insert(input.ptr);
            *rank.driver.out_of_memory.lock().expect("no panic") = Some(100_000);
        }
        let error = rank.error(&submit(&rank, "grad", Kind::Allreduce, &input, true));
        assert_names(1, &error);
        if rank.rank() == 1 {
            assert!(
                error.starts_with("rank 1: Allreduce of grad failed on the GPU: no memory for a fusion"),
                "{error}"
            );
        }
    });
}

#[test]
fn the_first_rank_fails_when_the_others_wait_for_its_device() {
    for n in [2, 4] {
        one_gpu(&vec![1; n]).run_to_end(|rank| {
            begin(&rank);
            let input = tensor(&rank, 100);
            if rank.rank() == 0 {
                *rank.driver.out_of_memory.lock().expect("no panic") = Some(1);
            }
            let handle = submit(&rank, "adasum", Kind::Adasum, &input, true);
            if rank.rank() == 0 {
                let error = rank.error(&handle);
                assert!(error.starts_with("rank 0: Allreduce of adasum failed on the GPU: no memory for"), "{error}");
                return;
            }
            assert!(rank.engine.wait_for(&handle, LIMIT));
            if let Ok(outcome) = rank.engine.synchronize(&handle) {
                let device = outcome.outputs[0].device.clone().expect("the result would be in device memory");
                until("the stream is released", || device.done.is_complete().expect("an event"));
            }
            assert_names(0, &error_of_next(&rank));
        });
    }
}

#[test]
fn others_do_not_wait_for_a_rank_that_has_failed_and_goes_on() {
    let finished = Barrier::new(2);
    Job { gpus: &[1; 2], variables: &[("HOROVOD_GLOO_TIMEOUT_SECONDS", "2")] }.run_to_end(|rank| {
        begin(&rank);
        let input = tensor(&rank, 100_000);
        if rank.rank() == 1 {
            *rank.driver.out_of_memory.lock().expect("no panic") = Some(500_000);
        }
        assert_names(1, &rank.error(&submit(&rank, "big", Kind::Allgather, &input, false)));
        finished.wait();
    });
}

#[test]
fn a_tensor_in_host_memory_after_others_in_device_memory_is_an_error() {
    for (job, kind) in [ONE_GPU[1], THROUGH_HOST[1]]
        .into_iter()
        .flat_map(|job| [(job, Kind::Allreduce), (job, Kind::Broadcast), (job, Kind::Allgather)])
    {
        println!("{job:?}, {kind:?}");
        job.run_to_end(|rank| {
            begin(&rank);
            let elements = values(DTYPE, rank.rank(), 5);
            let tensor = Tensor::new(&rank, DTYPE, &elements);
            if rank.rank() == 0 {
                // A root that passes its tensor through host memory does not wait for the others.
                assert!(rank.engine.wait_for(&submit(&rank, "odd", kind, &tensor, false), LIMIT));
                assert_names(1, &error_of_next(&rank));
                return;
            }
            let bytes = encode(DTYPE, &elements);
            let place = buffers(bytes.as_ptr().expose_provenance() as u64, bytes.len(), None);
            let request = request("odd", kind, DTYPE, &[5]);
            // SAFETY: the vector lives until the operation is complete.
            let handle = unsafe { rank.engine.submit(vec![request], vec![place], false, None) };
            assert_eq!(
                rank.error(&handle.expect("a good request")),
                format!(
                    "rank 1: {} of odd failed on the GPU: a tensor of this rank is in host memory, but its earlier ones were in \
                     the memory of a GPU",
                    kind.call()
                )
            );
        });
    }
}

#[test]
fn an_impossible_transport_fails_on_all_ranks() {
    Job { gpus: &[1, 2], variables: &[("CORRO_GPU_TRANSPORT", "ipc")] }.run_to_end(|rank| {
        let error = rank.error(&submit(&rank, "grad", Kind::Allreduce, &tensor(&rank, 3), true));
        // The first to fail may end the other's engine before it has found out itself.
        let own = "CORRO_GPU_TRANSPORT=ipc is impossible: ranks 0 and 1 use different GPUs";
        assert!(error.contains(own) || error.to_lowercase().contains("has left"), "{error}");
    });
}

#[test]
fn requests_that_do_not_match_leave_the_engine_usable() {
    for variables in [&[], HOST] {
        Job { gpus: &[1; 2], variables }.run(|rank| {
            begin(rank);
            let tensor = tensor(rank, 5 + rank.rank());
            let error = rank.error(&submit(rank, "odd", Kind::Allreduce, &tensor, true));
            assert!(error.starts_with("Mismatched ALLREDUCE tensor shapes"), "{error}");
            rank.finish(&submit(rank, "even", Kind::Allgather, &tensor, false));
        });
    }
}
