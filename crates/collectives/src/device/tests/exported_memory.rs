//! Memory of ranks that share a GPU: what is exported and mapped, when it is mapped again, and copies of what cannot be exported.

use std::sync::atomic::Ordering;

use super::elements::{Reduction, Tensor, values};
use super::job::{Rank, one_gpu, request};
use crate::coordinator::{Kind, Request};
use crate::device::driver::Driver;
use crate::transport::shm::device_area::{MAX_ALLOCATIONS, MAX_FREED};
use crate::{Dtype, ReduceOp};

const DTYPE: Dtype = Dtype::F32;

/// Sum in place of a tensor.
fn reduce(rank: &Rank, name: &str, tensor: &Tensor) {
    let n_elements = tensor.n_bytes() / DTYPE.size();
    let request = request(name, Kind::Allreduce, DTYPE, &[n_elements as u64]);
    rank.finish(&rank.submit(vec![request], vec![tensor.in_place()]));
    assert!(tensor.elements() == sum(rank, n_elements), "{name}");
}

fn sum(rank: &Rank, n_elements: usize) -> Vec<f64> {
    Reduction::new(DTYPE, ReduceOp::Sum).of(0..rank.size(), n_elements)
}

fn tensor(rank: &Rank, n_elements: usize) -> Tensor {
    Tensor::new(rank, DTYPE, &values(DTYPE, rank.rank(), n_elements))
}

fn n_imported(rank: &Rank) -> usize {
    rank.driver.imported.lock().expect("no panic").len()
}

#[test]
fn the_first_rank_maps_each_allocation_once() {
    one_gpu(&[1; 3]).run(|rank| {
        let first = tensor(rank, 100);
        reduce(rank, "first", &first);
        for step in 0..10 {
            first.write(&values(DTYPE, rank.rank(), 100));
            reduce(rank, &format!("again {step}"), &first);
        }
        let expected = if rank.rank() == 0 { 2 } else { 0 };
        assert_eq!((n_imported(rank), rank.driver.n_imports.load(Ordering::Relaxed)), (expected, expected));
        let second = tensor(rank, 3);
        reduce(rank, "second", &second);
        assert_eq!(n_imported(rank), 2 * expected);
    });
}

#[test]
fn an_allocation_at_the_same_address_is_mapped_anew() {
    one_gpu(&[1; 2]).run(|rank| {
        let first = tensor(rank, 100);
        for step in 0..10 {
            first.write(&values(DTYPE, rank.rank(), 100));
            reduce(rank, &format!("step {step}"), &first);
            if rank.rank() == 0 {
                assert_eq!((n_imported(rank), rank.driver.n_imports.load(Ordering::Relaxed)), (1, step + 1));
            }
            rank.driver.replace(first.ptr);
        }
    });
}

#[test]
fn an_allocation_that_was_freed_is_unmapped() {
    one_gpu(&[1; 2]).run(|rank| {
        for step in 1..50 {
            // Of different sizes, so at different addresses.
            let current = tensor(rank, step * 1000);
            reduce(rank, &format!("step {step}"), &current);
            assert!(n_imported(rank) <= 1, "step {step}: {} allocations are mapped", n_imported(rank));
        }
    });
}

#[test]
fn many_allocations_may_be_freed_at_once() {
    one_gpu(&[1; 2]).run(|rank| {
        for step in 0..2 {
            let tensors: Vec<Tensor> = (0..MAX_ALLOCATIONS.min(2 * MAX_FREED)).map(|n| tensor(rank, n + 1)).collect();
            for (index, tensor) in tensors.iter().enumerate() {
                reduce(rank, &format!("step {step} {index}"), tensor);
            }
        }
        let mut last = tensor(rank, 5000);
        for step in 0..4 {
            reduce(rank, &format!("last {step}"), &last);
            last = tensor(rank, 5000 + step);
        }
        assert!(n_imported(rank) <= 2, "{} allocations are mapped", n_imported(rank));
    });
}

#[test]
fn there_may_be_more_allocations_than_the_table_holds() {
    one_gpu(&[1; 3]).run(|rank| {
        let tensors: Vec<Tensor> = (0..2 * MAX_ALLOCATIONS + 3).map(|n| tensor(rank, 1 + n % 5)).collect();
        for step in 0..2 {
            for (index, tensor) in tensors.iter().enumerate() {
                tensor.write(&values(DTYPE, rank.rank(), 1 + index % 5));
                reduce(rank, &format!("{step} {index}"), tensor);
            }
        }
        assert!(n_imported(rank) <= 2 * MAX_ALLOCATIONS);
    });
}

#[test]
fn one_operation_may_have_more_allocations_than_the_table_holds() {
    one_gpu(&[1; 3]).run(|rank| {
        let n_tensors = 2 * MAX_ALLOCATIONS + 3;
        for step in 0..2 {
            let pairs: Vec<(Tensor, Tensor)> =
                (0..n_tensors).map(|_| (tensor(rank, 2), Tensor::unwritten(rank, DTYPE, 2))).collect();
            let name = |index| format!("{step} {index}");
            let requests = (0..n_tensors).map(|index| request(&name(index), Kind::Allreduce, DTYPE, &[2]));
            let places = pairs.iter().map(|(input, output)| input.output_to(output));
            rank.finish(&rank.submit(requests.collect(), places.collect()));
            for (index, (_, output)) in pairs.iter().enumerate() {
                assert_eq!(output.elements(), sum(rank, 2), "tensor {index}");
            }
        }
    });
}

/// A tensor in memory that cannot be exported, as that of some allocators.
fn unexportable(rank: &Rank, elements: &[f64]) -> Tensor {
    let tensor = Tensor::new(rank, DTYPE, elements);
    rank.driver.unexportable.lock().expect("no panic").insert(tensor.ptr);
    tensor
}

#[test]
fn memory_that_cannot_be_exported_is_copied() {
    for gpus in [&[1; 2], &[1; 3][..]] {
        one_gpu(gpus).run(|rank| {
            let (me, n) = (rank.rank(), rank.size());
            // The leader's memory is mapped by no other rank; each of the others in turn has such memory, then all.
            for odd in 1..=n {
                let is_odd = me == odd || odd == n;
                let tensor = |elements: &[f64]| match is_odd {
                    true => unexportable(rank, elements),
                    false => Tensor::new(rank, DTYPE, elements),
                };
                let run = |kind: Kind, shape: &[u64], tensor: &Tensor| {
                    let request = request(&format!("{kind:?} {odd}"), kind, DTYPE, shape);
                    let request = Request { root: n as u32 - 1, ..request };
                    let outcome = rank.finish(&rank.submit(vec![request], vec![tensor.output_allocated()]));
                    rank.result(&outcome.outputs[0], DTYPE)
                };
                let reduced = tensor(&values(DTYPE, me, 500));
                assert_eq!(run(Kind::Allreduce, &[500], &reduced), sum(rank, 500), "rank {odd}");
                assert_eq!(run(Kind::Broadcast, &[500], &reduced), values(DTYPE, n - 1, 500), "rank {odd}");
                let in_place = tensor(&values(DTYPE, me, 500));
                reduce(rank, &format!("in place {odd}"), &in_place);
                let rows = tensor(&values(DTYPE, me, 4 * (me + 1)));
                let gathered = run(Kind::Allgather, &[me as u64 + 1, 4], &rows);
                let expected: Vec<f64> = (0..n).flat_map(|other| values(DTYPE, other, 4 * (other + 1))).collect();
                assert_eq!(gathered, expected, "rank {odd}");
                let exchanged = tensor(&values(DTYPE, me, 6 * n));
                let part = |other| values(DTYPE, other, 6 * n)[6 * me..6 * me + 6].to_vec();
                let expected: Vec<f64> = (0..n).flat_map(part).collect();
                assert_eq!(run(Kind::Alltoall, &[2 * n as u64, 3], &exchanged), expected, "rank {odd}");
                let scattered = run(Kind::Reducescatter, &[2 * n as u64, 3], &exchanged);
                assert_eq!(scattered, sum(rank, 6 * n)[6 * me..6 * me + 6], "rank {odd}");
                for tensor in [&reduced, &rows, &exchanged] {
                    let n_elements = tensor.n_bytes() / DTYPE.size();
                    assert_eq!(tensor.elements(), values(DTYPE, me, n_elements), "the input has changed");
                }
            }
        });
    }
}

#[test]
fn groups_may_have_memory_of_both_kinds() {
    one_gpu(&[1; 3]).run(|rank| {
        let tensors: Vec<Tensor> = (0..40)
            .map(|index| match (index + rank.rank()) % 3 {
                0 => unexportable(rank, &values(DTYPE, rank.rank(), index)),
                _ => tensor(rank, index),
            })
            .collect();
        let requests = (0..40).map(|index| request(&format!("t{index}"), Kind::Allreduce, DTYPE, &[index]));
        rank.finish(&rank.submit(requests.collect(), tensors.iter().map(Tensor::in_place).collect()));
        for (index, tensor) in tensors.iter().enumerate() {
            assert_eq!(tensor.elements(), sum(rank, index));
        }
    });
}

#[test]
fn a_device_that_exports_nothing_is_used_through_host_memory() {
    one_gpu(&[1; 2]).run(|rank| {
        if rank.rank() == 1 {
            rank.driver.exports_nothing();
        }
        let own = tensor(rank, 10);
        reduce(rank, "sum", &own);
        assert_eq!(rank.driver.n_imports.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn empty_tensors_need_no_memory() {
    one_gpu(&[1; 3]).run(|rank| {
        let place = super::job::buffers(0, 0, None);
        let request = request("empty", Kind::Allreduce, DTYPE, &[0]);
        let outcome = rank.finish(&rank.submit(vec![request], vec![place]));
        assert_eq!(rank.result(&outcome.outputs[0], DTYPE), [0.0; 0]);
        let request = self::request("gather", Kind::Allgather, DTYPE, &[rank.rank() as u64, 2]);
        let own = tensor(rank, 2 * rank.rank());
        let place = if rank.rank() == 0 { super::job::buffers(0, 0, None) } else { own.output_allocated() };
        let outcome = rank.finish(&rank.submit(vec![request], vec![place]));
        let expected: Vec<f64> = (0..3).flat_map(|other| values(DTYPE, other, 2 * other)).collect();
        assert_eq!(rank.result(&outcome.outputs[0], DTYPE), expected);
        assert_eq!(rank.driver.allocation_id(0), Ok(0));
    });
}
