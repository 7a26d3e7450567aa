//! Ranks whose tensors are in host memory beside ranks whose tensors are in device memory, in one operation.

use super::elements::{Reduction, Tensor, decode, encode, values};
use super::job::{Job, Rank, buffers, one_gpu, request};
use crate::coordinator::{Kind, Request};
use crate::engine::handle::Output;
use crate::{Dtype, ReduceOp};

const MIXED: [Job<'static>; 3] =
    [one_gpu(&[1; 2]), one_gpu(&[1; 3]), Job { gpus: &[1, 2], variables: &[("CORRO_GPU_TRANSPORT", "host")] }];

/// Executes an operation in place or into new memory, on the device or, for `on_host`, in host memory. Returns the elements of the result.
fn execute(rank: &Rank, on_host: bool, request: Request, elements: &[f64], in_place: bool) -> (Vec<f64>, Output) {
    let dtype = request.dtype;
    if !on_host {
        let tensor = Tensor::new(rank, dtype, elements);
        let place = if in_place { tensor.in_place() } else { tensor.output_allocated() };
        let output = rank.finish(&rank.submit(vec![request], vec![place])).outputs.remove(0);
        let result = if in_place { tensor.elements() } else { rank.result(&output, dtype) };
        return (result, output);
    }
    let mut bytes = encode(dtype, elements);
    let at = bytes.as_mut_ptr().expose_provenance() as u64;
    let place = buffers(at, bytes.len(), in_place.then_some(at));
    // SAFETY: the vector lives until the operation is complete.
    let handle = unsafe { rank.engine.submit(vec![request], vec![place], false, None) }.expect("a good request");
    let output = rank.engine.synchronize(&handle).expect("the operation succeeds").outputs.remove(0);
    assert_eq!(output.device, None, "the result is in host memory");
    (decode(dtype, if in_place { &bytes } else { &output.bytes }), output)
}

/// Runs `body` with each rank in turn, and with all but each, in host memory.
fn each_mixture(body: impl Fn(&Rank, bool) + Sync) {
    for job in MIXED {
        for on_host in 0..job.gpus.len() {
            println!("{job:?}, rank {on_host} in host memory");
            job.run(|rank| body(rank, rank.rank() == on_host));
            println!("{job:?}, all but rank {on_host} in host memory");
            job.run(|rank| body(rank, rank.rank() != on_host));
        }
    }
}

#[test]
fn allreduces_take_tensors_of_both_kinds() {
    each_mixture(|rank, on_host| {
        for (dtype, op) in [(Dtype::F32, ReduceOp::Average), (Dtype::I64, ReduceOp::Max), (Dtype::F16, ReduceOp::Sum)] {
            let reduction = Reduction { prescale: 2.0, ..Reduction::new(dtype, op) };
            for n_elements in [0, 1, 30_001] {
                let name = format!("{} {n_elements}", dtype.name());
                let request = request(&name, Kind::Allreduce, dtype, &[n_elements as u64]);
                let request = Request { op, prescale: 2.0, ..request };
                let elements = values(dtype, rank.rank(), n_elements);
                let (result, output) = execute(rank, on_host, request, &elements, true);
                assert!(result == reduction.of(0..rank.size(), n_elements), "{name}");
                assert_eq!(output.shape, [n_elements as u64]);
            }
        }
    });
}

#[test]
fn allreduces_may_return_new_memory_of_both_kinds() {
    each_mixture(|rank, on_host| {
        let reduction = Reduction::new(Dtype::F32, ReduceOp::Sum);
        let request = request("new", Kind::Allreduce, Dtype::F32, &[12]);
        let (result, _) = execute(rank, on_host, request, &values(Dtype::F32, rank.rank(), 12), false);
        assert_eq!(result, reduction.of(0..rank.size(), 12));
    });
}

#[test]
fn rows_move_between_both_kinds() {
    each_mixture(|rank, on_host| {
        let (me, n, dtype) = (rank.rank(), rank.size(), Dtype::I32);
        let own = values(dtype, me, 2 * (me + 1));
        let gather = request("gather", Kind::Allgather, dtype, &[me as u64 + 1, 2]);
        let (result, output) = execute(rank, on_host, gather, &own, false);
        assert_eq!(result, (0..n).flat_map(|other| values(dtype, other, 2 * (other + 1))).collect::<Vec<f64>>());
        assert_eq!(output.shape, [(n * (n + 1) / 2) as u64, 2]);

        for root in 0..n {
            let request = request(&format!("word {root}"), Kind::Broadcast, dtype, &[9]);
            let request = Request { root: root as u32, ..request };
            let (result, _) = execute(rank, on_host, request, &values(dtype, me, 9), true);
            assert_eq!(result, values(dtype, root, 9));
        }

        let swap = request("swap", Kind::Alltoall, dtype, &[n as u64]);
        let (result, output) = execute(rank, on_host, swap, &values(dtype, me, n), false);
        assert_eq!(result, (0..n).map(|other| values(dtype, other, n)[me]).collect::<Vec<f64>>());
        assert_eq!(output.received, vec![1; n]);

        let scatter = request("scatter", Kind::Reducescatter, dtype, &[n as u64, 3]);
        let (result, _) = execute(rank, on_host, scatter, &values(dtype, me, 3 * n), false);
        let sums = Reduction::new(dtype, ReduceOp::Sum).of(0..n, 3 * n);
        assert_eq!(result, sums[3 * me..3 * me + 3]);
    });
}

#[test]
fn a_rank_may_pass_device_memory_after_host_memory() {
    for job in MIXED {
        println!("{job:?}");
        job.run(|rank| {
            let sum = Reduction::new(Dtype::F64, ReduceOp::Sum).of(0..rank.size(), 8);
            let elements = values(Dtype::F64, rank.rank(), 8);
            for (step, is_host) in [true, rank.rank() == 0, false].into_iter().enumerate() {
                let request = request(&format!("step {step}"), Kind::Allreduce, Dtype::F64, &[8]);
                let (result, _) = execute(rank, is_host, request, &elements, true);
                assert_eq!(result, sum, "step {step}");
                let request =
                    Request { root: 1, ..self::request(&format!("word {step}"), Kind::Broadcast, Dtype::F64, &[8]) };
                let (result, _) = execute(rank, is_host, request, &elements, true);
                assert_eq!(result, values(Dtype::F64, 1, 8), "step {step}");
            }
        });
    }
}
