//! Adasum in device memory, against the same engine's Adasum in host memory.

use super::elements::{Tensor, decode, encode};
use super::job::{ONE_GPU, Rank, THROUGH_HOST, buffers, request};
use crate::coordinator::{Kind, Request};
use crate::{Dtype, ReduceOp};

/// Vectors that are neither parallel nor orthogonal.
fn vector(rank: usize, n_elements: usize) -> Vec<f64> {
    let element = |index: usize| ((index * (rank + 2) + rank) % 13) as f64 / 4.0 - 1.5;
    (0..n_elements).map(element).collect()
}

fn adasum(name: &str, dtype: Dtype, n_elements: usize, scales: (f64, f64)) -> Request {
    let request = request(name, Kind::Adasum, dtype, &[n_elements as u64]);
    Request { op: ReduceOp::Adasum, prescale: scales.0, postscale: scales.1, ..request }
}

/// The result of the host path.
fn on_host(rank: &Rank, name: &str, dtype: Dtype, lengths: &[usize], scales: (f64, f64)) -> Vec<Vec<f64>> {
    let mut tensors: Vec<Vec<u8>> = lengths.iter().map(|n| encode(dtype, &vector(rank.rank(), *n))).collect();
    let requests = lengths
        .iter()
        .enumerate()
        .map(|(index, n)| Request { device: -1, ..adasum(&format!("host {name} {index}"), dtype, *n, scales) });
    let places = tensors.iter_mut().map(|tensor| {
        let at = tensor.as_mut_ptr().expose_provenance() as u64;
        buffers(at, tensor.len(), Some(at))
    });
    // SAFETY: the vectors live until the operation is complete.
    let handle = unsafe { rank.engine.submit(requests.collect(), places.collect(), lengths.len() > 1, None) };
    rank.engine.synchronize(&handle.expect("good requests")).expect("a sum");
    tensors.iter().map(|tensor| decode(dtype, tensor)).collect()
}

/// The sums of products are computed in another order, so results differ by rounding.
fn assert_close(dtype: Dtype, result: &[f64], expected: &[f64], case: &str) {
    let precision = match dtype {
        Dtype::F64 => 1e-12,
        Dtype::F32 => 1e-5,
        Dtype::F16 => 4e-3,
        _ => 3e-2,
    };
    assert_eq!(result.len(), expected.len(), "{case}");
    for (index, (one, other)) in result.iter().zip(expected).enumerate() {
        assert!((one - other).abs() <= precision * (1.0 + other.abs()), "{case}, element {index}: {one}, not {other}");
    }
}

#[test]
fn adasum_is_that_of_the_host() {
    for job in [0, 1, 3].into_iter().flat_map(|n| [ONE_GPU[n], THROUGH_HOST[n]]) {
        println!("{job:?}");
        job.run(|rank| {
            for dtype in [Dtype::F32, Dtype::F64, Dtype::F16, Dtype::Bf16] {
                for (n_elements, scales) in [(1, (1.0, 1.0)), (7, (2.0, 1.0)), (3001, (1.0, 0.5)), (0, (1.0, 1.0))] {
                    let case = format!("{} {n_elements} {scales:?}", dtype.name());
                    let expected = on_host(rank, &case, dtype, &[n_elements], scales);
                    let tensor = Tensor::new(rank, dtype, &vector(rank.rank(), n_elements));
                    let output = Tensor::unwritten(rank, dtype, n_elements);
                    let request = |to: &str| vec![adasum(&format!("{case} {to}"), dtype, n_elements, scales)];
                    rank.finish(&rank.submit(request("other"), vec![tensor.output_to(&output)]));
                    assert_close(dtype, &output.elements(), &expected[0], &case);
                    let outcome = rank.finish(&rank.submit(request("new"), vec![tensor.output_allocated()]));
                    assert_close(dtype, &rank.result(&outcome.outputs[0], dtype), &expected[0], &case);
                    rank.finish(&rank.submit(request("same"), vec![tensor.in_place()]));
                    assert_close(dtype, &tensor.elements(), &expected[0], &case);
                }
            }
        });
    }
}

#[test]
fn tensors_of_a_group_have_their_own_dot_products() {
    for job in [ONE_GPU[1], ONE_GPU[3], THROUGH_HOST[1]] {
        job.run(|rank| {
            let (dtype, lengths) = (Dtype::F32, [4, 0, 100, 1]);
            let expected = on_host(rank, "group", dtype, &lengths, (1.0, 1.0));
            let tensors = lengths.map(|n| Tensor::new(rank, dtype, &vector(rank.rank(), n)));
            let requests =
                lengths.iter().enumerate().map(|(index, n)| adasum(&format!("group {index}"), dtype, *n, (1.0, 1.0)));
            let places = tensors.iter().map(Tensor::in_place).collect();
            rank.finish(&rank.submit(requests.collect(), places));
            for (index, (tensor, expected)) in tensors.iter().zip(&expected).enumerate() {
                assert_close(dtype, &tensor.elements(), expected, &format!("tensor {index}"));
            }
        });
    }
}

#[test]
fn adasum_needs_floats_and_a_power_of_two_of_ranks() {
    for (job, dtype, expected) in [
        (ONE_GPU[2], Dtype::F32, "Adasum needs a power of two of ranks; there are 3"),
        (THROUGH_HOST[2], Dtype::F32, "Adasum needs a power of two of ranks; there are 3"),
        (ONE_GPU[1], Dtype::I32, "Adasum is not defined for int32"),
        (THROUGH_HOST[1], Dtype::I32, "Adasum is not defined for int32"),
    ] {
        job.run(|rank| {
            let tensor = Tensor::new(rank, dtype, &[1.0; 4]);
            let handle = rank.submit(vec![adasum("x", dtype, 4, (1.0, 1.0))], vec![tensor.in_place()]);
            assert_eq!(rank.error(&handle), expected);
        });
    }
}
