//! Several tensors in one operation: groups, and operations that are ready at the same time.

use std::sync::atomic::Ordering;

use super::elements::{Reduction, Tensor, values};
use super::job::{Job, ONE_GPU, Rank, THROUGH_HOST, each, one_gpu, request};
use crate::coordinator::{Kind, Request};
use crate::engine::handle::Outcome;
use crate::transport::shm::device_area::MAX_TENSORS;
use crate::{Dtype, ReduceOp};

/// Submits allreduces of tensors with these lengths as a group; half of the results replace the inputs.
fn reduce_group(rank: &Rank, name: &str, reduction: Reduction, lengths: &[usize]) -> (Vec<Tensor>, Outcome) {
    let Reduction { dtype, op, .. } = reduction;
    let tensors: Vec<Tensor> =
        lengths.iter().map(|n| Tensor::after(rank, dtype, &values(dtype, rank.rank(), *n), n % 2)).collect();
    let requests = lengths
        .iter()
        .enumerate()
        .map(|(index, n)| Request { op, ..request(&format!("{name} {index}"), Kind::Allreduce, dtype, &[*n as u64]) });
    let buffers = tensors
        .iter()
        .enumerate()
        .map(|(index, tensor)| if index % 2 == 0 { tensor.in_place() } else { tensor.output_allocated() });
    let handle = rank.submit(requests.collect(), buffers.collect());
    let outcome = rank.finish(&handle);
    (tensors, outcome)
}

fn check_group(rank: &Rank, name: &str, reduction: Reduction, lengths: &[usize]) {
    let (tensors, outcome) = reduce_group(rank, name, reduction, lengths);
    for (index, (tensor, output)) in tensors.iter().zip(&outcome.outputs).enumerate() {
        let expected = reduction.of(0..rank.size(), lengths[index]);
        let result = if index % 2 == 0 { tensor.elements() } else { rank.result(output, reduction.dtype) };
        assert!(result == expected, "{name}: tensor {index} of {}", lengths[index]);
    }
}

#[test]
fn groups_are_reduced_together() {
    each(|rank| {
        for (dtype, op) in [(Dtype::F32, ReduceOp::Average), (Dtype::Bf16, ReduceOp::Sum), (Dtype::U8, ReduceOp::Max)] {
            let reduction = Reduction::new(dtype, op);
            for step in 0..3 {
                let name = format!("{} {step}", dtype.name());
                check_group(rank, &name, reduction, &[5, 0, 1, 40_000, 333]);
            }
        }
    });
}

#[test]
fn a_group_is_one_launch_of_the_kernel_on_one_rank() {
    for job in [one_gpu(&[1; 2]), one_gpu(&[1; 4])] {
        let launches = job.run(|rank| {
            // The first operation chooses the transport.
            check_group(rank, "first", Reduction::new(Dtype::F32, ReduceOp::Sum), &[1]);
            let before = rank.driver.n_launches.load(Ordering::Relaxed);
            check_group(rank, "all", Reduction::new(Dtype::F32, ReduceOp::Sum), &[3; 10]);
            rank.driver.n_launches.load(Ordering::Relaxed) - before
        });
        assert_eq!(launches, [vec![1], vec![0; job.gpus.len() - 1]].concat());
    }
}

#[test]
fn long_groups_are_reduced_in_batches() {
    let jobs = [ONE_GPU[0], ONE_GPU[2], THROUGH_HOST[1]];
    for job in jobs {
        job.run(|rank| {
            let lengths: Vec<usize> = (0..3 * MAX_TENSORS + 1).map(|index| index % 11).collect();
            check_group(rank, "many", Reduction::new(Dtype::I64, ReduceOp::Sum), &lengths);
        });
    }
}

#[test]
fn tensors_larger_than_the_fusion_threshold_are_reduced_alone() {
    for job in [ONE_GPU[1], THROUGH_HOST[1]] {
        let variables = [job.variables, &[("HOROVOD_FUSION_THRESHOLD", "1024")]].concat();
        Job { variables: &variables, ..job }.run(|rank| {
            check_group(rank, "group", Reduction::new(Dtype::F32, ReduceOp::Sum), &[100, 100, 100, 2000, 100]);
        });
    }
}

#[test]
fn gathered_and_scattered_tensors_are_fused() {
    each(|rank| {
        let (n, me, dtype) = (rank.size(), rank.rank(), Dtype::F16);
        let lengths = [1, 4, 0, 6];
        let tensors: Vec<Tensor> =
            lengths.iter().map(|rows| Tensor::new(rank, dtype, &values(dtype, me, (rows + me) * 2))).collect();
        let shape = |rows: usize| [(rows + me) as u64, 2];
        let requests = lengths
            .iter()
            .enumerate()
            .map(|(index, rows)| request(&format!("gather {index}"), Kind::Allgather, dtype, &shape(*rows)));
        let handle = rank.submit(requests.collect(), tensors.iter().map(Tensor::output_allocated).collect());
        let outcome = rank.finish(&handle);
        for (rows, output) in lengths.iter().zip(&outcome.outputs) {
            let expected: Vec<f64> = (0..n).flat_map(|other| values(dtype, other, (rows + other) * 2)).collect();
            assert_eq!(rank.result(output, dtype), expected, "gather of {rows} rows");
        }
        let scattered: Vec<Tensor> =
            lengths.iter().map(|rows| Tensor::new(rank, dtype, &values(dtype, me, rows * n * 2))).collect();
        let requests = lengths.iter().enumerate().map(|(index, rows)| {
            request(&format!("scatter {index}"), Kind::Reducescatter, dtype, &[(rows * n) as u64, 2])
        });
        let handle = rank.submit(requests.collect(), scattered.iter().map(Tensor::output_allocated).collect());
        let outcome = rank.finish(&handle);
        for (rows, output) in lengths.iter().zip(&outcome.outputs) {
            let sums = Reduction::new(dtype, ReduceOp::Sum).of(0..n, rows * n * 2);
            assert_eq!(rank.result(output, dtype), sums[me * rows * 2..(me + 1) * rows * 2], "{rows} rows each");
        }
    });
}
