//! Broadcast, allgather, alltoall and reducescatter, against the plain definitions.

use super::elements::{Reduction, Tensor, value, values};
use super::job::{Rank, each, request};
use crate::algorithm::partition;
use crate::coordinator::{Kind, Request};
use crate::{Dtype, ReduceOp};

const DTYPES: [Dtype; 4] = [Dtype::U8, Dtype::F16, Dtype::F32, Dtype::I64];

/// Elements of a rank's rows: the row and the position in it decide the value.
fn rows(dtype: Dtype, rank: usize, range: std::ops::Range<usize>, row: usize) -> Vec<f64> {
    range.flat_map(|at| (0..row).map(move |column| value(dtype, rank, at * row + column))).collect()
}

#[test]
fn every_rank_broadcasts() {
    each(|rank| {
        let mut pending = Vec::new();
        for dtype in DTYPES {
            for (root, n_elements) in (0..rank.size()).flat_map(|root| [(root, 0), (root, 1), (root, 20_003)]) {
                let name = |to: &str| format!("{} {root} {n_elements} {to}", dtype.name());
                let root_request = |to: &str| {
                    let request = request(&name(to), Kind::Broadcast, dtype, &[n_elements as u64]);
                    vec![Request { root: root as u32, ..request }]
                };
                let tensors = [0, 1, 2]
                    .map(|n_before| Tensor::after(rank, dtype, &values(dtype, rank.rank(), n_elements), n_before));
                let output = Tensor::unwritten(rank, dtype, n_elements);
                let handles = [
                    rank.submit(root_request("same"), vec![tensors[0].in_place()]),
                    rank.submit(root_request("other"), vec![tensors[1].output_to(&output)]),
                    rank.submit(root_request("new"), vec![tensors[2].output_allocated()]),
                ];
                pending.push((dtype, root, n_elements, tensors, output, handles));
            }
        }
        for (dtype, root, n_elements, tensors, output, handles) in pending {
            let [_, _, outcome] = handles.map(|handle| rank.finish(&handle));
            let expected = values(dtype, root, n_elements);
            let case = format!("{} from {root}, {n_elements}", dtype.name());
            assert!(tensors[0].elements() == expected, "{case}: in place");
            assert!(output.elements() == expected, "{case}: into another tensor");
            assert!(rank.result(&outcome.outputs[0], dtype) == expected, "{case}: into the engine's memory");
            assert!(tensors[1].elements() == values(dtype, rank.rank(), n_elements), "{case}: the input has changed");
        }
    });
}

fn gathers(rank: &Rank, name: &str, dtype: Dtype, row: usize, n_rows: impl Fn(usize) -> usize) {
    let own = n_rows(rank.rank());
    let tensor = Tensor::after(rank, dtype, &rows(dtype, rank.rank(), 0..own, row), row % 3);
    let request = request(name, Kind::Allgather, dtype, &[own as u64, row as u64]);
    let outcome = rank.finish(&rank.submit(vec![request], vec![tensor.output_allocated()]));
    let expected: Vec<f64> = (0..rank.size()).flat_map(|other| rows(dtype, other, 0..n_rows(other), row)).collect();
    let n_all: usize = (0..rank.size()).map(&n_rows).sum();
    assert_eq!(outcome.outputs[0].shape, [n_all as u64, row as u64], "{name}");
    assert!(rank.result(&outcome.outputs[0], dtype) == expected, "{name}: {} rows of {row}", n_all);
}

#[test]
fn rows_of_all_ranks_are_gathered() {
    each(|rank| {
        for dtype in DTYPES {
            let name = |what: &str| format!("{} {what}", dtype.name());
            gathers(rank, &name("even"), dtype, 3, |_| 2);
            gathers(rank, &name("uneven"), dtype, 5, |rank| 3 * rank + 1);
            gathers(rank, &name("some empty"), dtype, 4, |rank| rank % 2);
            gathers(rank, &name("all empty"), dtype, 4, |_| 0);
            gathers(rank, &name("empty rows"), dtype, 0, |rank| rank + 1);
            gathers(rank, &name("long"), dtype, 1001, |rank| 40 + rank);
        }
    });
}

/// Rank `from` sends `count(from, to)` rows to rank `to`.
fn exchanges(rank: &Rank, name: &str, dtype: Dtype, row: usize, count: impl Fn(usize, usize) -> usize) {
    let (me, n) = (rank.rank(), rank.size());
    let start = |from: usize, to: usize| (0..to).map(|earlier| count(from, earlier)).sum::<usize>();
    // One row more than the splits: it is sent to nobody.
    let own = start(me, n) + 1;
    let tensor = Tensor::after(rank, dtype, &rows(dtype, me, 0..own, row), row % 2);
    let splits = (0..n).map(|to| count(me, to) as u64).collect();
    let request = Request { splits, ..request(name, Kind::Alltoall, dtype, &[own as u64, row as u64]) };
    let outcome = rank.finish(&rank.submit(vec![request], vec![tensor.output_allocated()]));
    let part = |from| rows(dtype, from, start(from, me)..start(from, me) + count(from, me), row);
    let expected: Vec<f64> = (0..n).flat_map(part).collect();
    let received: Vec<u64> = (0..n).map(|from| count(from, me) as u64).collect();
    let output = &outcome.outputs[0];
    assert_eq!((&output.received, &output.shape), (&received, &vec![received.iter().sum(), row as u64]), "{name}");
    assert!(rank.result(output, dtype) == expected, "{name}");
}

#[test]
fn ranks_exchange_rows() {
    each(|rank| {
        for dtype in DTYPES {
            let name = |what: &str| format!("{} {what}", dtype.name());
            exchanges(rank, &name("even"), dtype, 3, |_, _| 2);
            exchanges(rank, &name("uneven"), dtype, 2, |from, to| 2 * from + to);
            exchanges(rank, &name("some empty"), dtype, 7, |from, to| (from + to) % 2 * 3);
            exchanges(rank, &name("nothing"), dtype, 3, |_, _| 0);
            exchanges(rank, &name("long"), dtype, 501, |from, to| 50 + from + 3 * to);
        }
    });
}

#[test]
fn equal_parts_are_exchanged_without_splits() {
    each(|rank| {
        let n = rank.size();
        let tensor = Tensor::new(rank, Dtype::F64, &rows(Dtype::F64, rank.rank(), 0..2 * n, 1));
        let request = request("equal", Kind::Alltoall, Dtype::F64, &[2 * n as u64]);
        let outcome = rank.finish(&rank.submit(vec![request], vec![tensor.output_allocated()]));
        let part = |from| rows(Dtype::F64, from, 2 * rank.rank()..2 * rank.rank() + 2, 1);
        assert_eq!(rank.result(&outcome.outputs[0], Dtype::F64), (0..n).flat_map(part).collect::<Vec<f64>>());
        assert_eq!(outcome.outputs[0].received, vec![2; n]);
    });
}

fn reduces_rows(rank: &Rank, name: &str, reduction: Reduction, n_rows: usize, row: usize) {
    let Reduction { dtype, op, prescale, postscale } = reduction;
    let tensor = Tensor::after(rank, dtype, &values(dtype, rank.rank(), n_rows * row), row % 2);
    let request = request(name, Kind::Reducescatter, dtype, &[n_rows as u64, row as u64]);
    let request = Request { op, prescale, postscale, ..request };
    let outcome = rank.finish(&rank.submit(vec![request], vec![tensor.output_allocated()]));
    let own = partition::split_rows(n_rows, rank.size(), rank.rank());
    let all = reduction.of(0..rank.size(), n_rows * row);
    assert_eq!(outcome.outputs[0].shape, [own.len() as u64, row as u64], "{name}");
    assert!(rank.result(&outcome.outputs[0], dtype) == all[own.start * row..own.end * row], "{name}");
    assert!(tensor.elements() == values(dtype, rank.rank(), n_rows * row), "{name}: the input has changed");
}

#[test]
fn reduced_rows_are_scattered() {
    each(|rank| {
        for dtype in DTYPES {
            for op in [ReduceOp::Sum, ReduceOp::Average] {
                let plain = Reduction::new(dtype, op);
                let scaled = Reduction { prescale: 2.0, postscale: 0.5, ..plain };
                let name = |what: &str| format!("{} {op:?} {what}", dtype.name());
                reduces_rows(rank, &name("even"), plain, 4 * rank.size(), 3);
                reduces_rows(rank, &name("uneven"), plain, 4 * rank.size() + 3, 5);
                reduces_rows(rank, &name("fewer rows than ranks"), plain, rank.size() - 1, 4);
                reduces_rows(rank, &name("empty"), plain, 0, 4);
                reduces_rows(rank, &name("scaled"), scaled, 7, 2);
            }
        }
        reduces_rows(rank, "long", Reduction::new(Dtype::F32, ReduceOp::Sum), 105, 1001);
    });
}

#[test]
fn reduced_rows_stay_at_their_place_in_a_buffer_of_the_caller() {
    each(|rank| {
        let (n_rows, row, dtype) = (2 * rank.size() + 1, 3, Dtype::I32);
        let tensor = Tensor::new(rank, dtype, &values(dtype, rank.rank(), n_rows * row));
        let request = request("in place", Kind::Reducescatter, dtype, &[n_rows as u64, row as u64]);
        rank.finish(&rank.submit(vec![request], vec![tensor.in_place()]));
        let own = partition::split_rows(n_rows, rank.size(), rank.rank());
        let own = own.start * row..own.end * row;
        let mut expected = values(dtype, rank.rank(), n_rows * row);
        let sums = Reduction::new(dtype, ReduceOp::Sum).of(0..rank.size(), n_rows * row);
        expected[own.clone()].copy_from_slice(&sums[own]);
        assert_eq!(tensor.elements(), expected);
    });
}
