//! Allreduces of every dtype and operation, against the plain definition.

use super::elements::{Reduction, Tensor, values};
use super::job::{Rank, each, request};
use crate::coordinator::Kind;
use crate::device::tasks::CHUNK_BYTES;
use crate::engine::ops::Handle;
use crate::{Dtype, ReduceOp};

/// Where the result goes.
#[derive(Clone, Copy, Debug)]
enum To {
    Input,
    Tensor,
    EngineMemory,
}

/// A submitted allreduce and what it must give.
struct Pending {
    case: String,
    reduction: Reduction,
    input: Tensor,
    output: Option<Tensor>,
    handle: Handle,
}

fn submit(rank: &Rank, reduction: Reduction, to: To, n_elements: usize, n_before: usize) -> Pending {
    let Reduction { dtype, op, prescale, postscale } = reduction;
    let case = format!("{reduction:?} of {n_elements} after {n_before} to {to:?}");
    let input = Tensor::after(rank, dtype, &values(dtype, rank.rank(), n_elements), n_before);
    let output = matches!(to, To::Tensor).then(|| Tensor::unwritten(rank, dtype, n_elements));
    let buffers = match (to, &output) {
        (To::Input, _) => input.in_place(),
        (To::Tensor, Some(output)) => input.output_to(output),
        _ => input.output_allocated(),
    };
    let request = request(&case, Kind::Allreduce, dtype, &[n_elements as u64]);
    let request = crate::coordinator::Request { op, prescale, postscale, ..request };
    let output = if matches!(to, To::Input) { None } else { output };
    Pending { handle: rank.submit(vec![request], vec![buffers]), case, reduction, input, output }
}

fn check(rank: &Rank, pending: Pending, to: To, n_elements: usize) {
    let Pending { case, reduction, input, output, handle } = pending;
    let expected = reduction.of(0..rank.size(), n_elements);
    let outcome = rank.finish(&handle);
    let unchanged = values(reduction.dtype, rank.rank(), n_elements);
    let (result, input_after) = match to {
        To::Input => (input.elements(), expected.clone()),
        To::Tensor => (output.expect("it was made").elements(), unchanged),
        To::EngineMemory => (rank.result(&outcome.outputs[0], reduction.dtype), unchanged),
    };
    assert!(result == expected, "{case}: {:?}, not {:?}", &result[..7.min(n_elements)], &expected[..7.min(n_elements)]);
    assert!(input.elements() == input_after, "{case}: the input has changed");
    assert_eq!(outcome.outputs[0].shape, [n_elements as u64], "{case}");
}

/// Submits all reductions, then checks them.
fn check_all(rank: &Rank, cases: &[(Reduction, To, usize, usize)]) {
    let submitted: Vec<Pending> = cases
        .iter()
        .map(|(reduction, to, n_elements, n_before)| submit(rank, *reduction, *to, *n_elements, *n_before))
        .collect();
    for (pending, (_, to, n_elements, _)) in submitted.into_iter().zip(cases) {
        check(rank, pending, *to, *n_elements);
    }
}

const OPS: [ReduceOp; 5] = [ReduceOp::Sum, ReduceOp::Average, ReduceOp::Min, ReduceOp::Max, ReduceOp::Product];
const TARGETS: [To; 3] = [To::Input, To::Tensor, To::EngineMemory];

#[test]
fn every_type_is_reduced_by_every_operation() {
    let mut cases = Vec::new();
    for dtype in Dtype::ALL {
        for op in OPS {
            if (dtype, op) != (Dtype::Bool, ReduceOp::Average) {
                let to = TARGETS[cases.len() % 3];
                cases.push((Reduction::new(dtype, op), to, 7, cases.len() % 2));
            }
        }
    }
    each(|rank| check_all(rank, &cases));
}

#[test]
fn inputs_and_results_are_scaled() {
    let mut cases = Vec::new();
    for dtype in Dtype::ALL.into_iter().filter(|dtype| *dtype != Dtype::Bool) {
        for (op, prescale, postscale) in [
            (ReduceOp::Sum, 2.0, 0.5),
            (ReduceOp::Average, 3.0, 2.0),
            (ReduceOp::Max, -1.0, 1.0),
            (ReduceOp::Product, 1.0, 3.0),
        ] {
            cases.push((Reduction { dtype, op, prescale, postscale }, TARGETS[cases.len() % 3], 9, 0));
        }
    }
    each(|rank| check_all(rank, &cases));
}

#[test]
fn tensors_may_have_any_size_and_address() {
    let mut cases = Vec::new();
    for (dtype, op) in [(Dtype::F32, ReduceOp::Sum), (Dtype::U8, ReduceOp::Max), (Dtype::F64, ReduceOp::Average)] {
        let n_per_chunk = CHUNK_BYTES / dtype.size();
        for n_elements in [0, 1, n_per_chunk, 2 * n_per_chunk + 5] {
            for to in TARGETS {
                cases.push((Reduction::new(dtype, op), to, n_elements, cases.len() % 2));
            }
        }
    }
    each(|rank| check_all(rank, &cases));
}

#[test]
fn tensors_of_one_allocation_are_independent() {
    each(|rank| {
        let n = 5;
        let all = Tensor::new(rank, Dtype::I32, &values(Dtype::I32, rank.rank(), 3 * n));
        let part = |index: usize| all.ptr + (index * n * 4) as u64;
        let submit = |index: usize| {
            let name = format!("part {index}");
            let buffers = super::job::buffers(part(index), n * 4, Some(part(index)));
            rank.submit(vec![request(&name, Kind::Allreduce, Dtype::I32, &[n as u64])], vec![buffers])
        };
        let handles = [submit(0), submit(2)];
        handles.iter().for_each(|handle| drop(rank.finish(handle)));
        let sums = Reduction::new(Dtype::I32, ReduceOp::Sum).of(0..rank.size(), 3 * n);
        let own = values(Dtype::I32, rank.rank(), 3 * n);
        assert_eq!(all.elements(), [&sums[..n], &own[n..2 * n], &sums[2 * n..]].concat());
    });
}

#[test]
fn booleans_are_neither_scaled_nor_averaged() {
    each(|rank| {
        let tensor = Tensor::new(rank, Dtype::Bool, &[1.0; 4]);
        for (name, op, prescale) in [("scaled", ReduceOp::Sum, 0.5), ("mean", ReduceOp::Average, 1.0)] {
            if rank.size() == 1 && op == ReduceOp::Average {
                continue;
            }
            let request = request(name, Kind::Allreduce, Dtype::Bool, &[4]);
            let request = crate::coordinator::Request { op, prescale, ..request };
            let error = rank.error(&rank.submit(vec![request], vec![tensor.in_place()]));
            assert_eq!(error, "scaling is not defined for bool");
        }
        // The engine stays usable.
        let request = request("plain", Kind::Allreduce, Dtype::Bool, &[4]);
        rank.finish(&rank.submit(vec![request], vec![tensor.in_place()]));
        assert_eq!(tensor.elements(), [1.0; 4]);
    });
}
