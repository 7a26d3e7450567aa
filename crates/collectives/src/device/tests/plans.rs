//! Plans of operations on random shapes: the executed tasks give what the operation is defined to give.

use std::sync::{Arc, OnceLock};

use proptest::prelude::*;

use super::elements::{Reduction, decode, encode, values};
use crate::algorithm::partition;
use crate::coordinator::Kind;
use crate::device::context::DeviceContext;
use crate::device::driver::{DevicePtr, Driver};
use crate::device::fake::FakeDriver;
use crate::device::plan::{MemberTensor, Plan, PlannedTensor};
use crate::{Dtype, ReduceOp};

const MAX_MEMBERS: usize = 5;
const KINDS: [Kind; 5] = [Kind::Allreduce, Kind::Broadcast, Kind::Allgather, Kind::Alltoall, Kind::Reducescatter];

/// One tensor. Lists are longer than needed; the first `n` entries count.
#[derive(Clone, Debug)]
struct Shape {
    row: usize,
    /// Rows of each member. Where all have the same shape, those of the first.
    rows: Vec<usize>,
    /// Rows that each member sends to each.
    splits: Vec<Vec<usize>>,
    n_before: usize,
    is_in_place: bool,
    /// Members that have not joined.
    is_present: Vec<bool>,
}

/// Memory of one member: where it is, and what it must hold at the end.
struct Memory {
    base: DevicePtr,
    at: DevicePtr,
    expected: Vec<f64>,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let counts = |most| prop::collection::vec(0usize..most, MAX_MEMBERS);
    let row = prop_oneof![0usize..9, Just(700), Just(4_099)];
    let present = prop::collection::vec(prop::bool::weighted(0.7), MAX_MEMBERS);
    (row, counts(12), prop::collection::vec(counts(5), MAX_MEMBERS), 0usize..4, any::<bool>(), present).prop_map(
        |(row, rows, splits, n_before, is_in_place, is_present)| Shape {
            row,
            rows,
            splits,
            n_before,
            is_in_place,
            is_present,
        },
    )
}

fn device() -> &'static (Arc<FakeDriver>, Arc<DeviceContext>) {
    static DEVICE: OnceLock<(Arc<FakeDriver>, Arc<DeviceContext>)> = OnceLock::new();
    DEVICE.get_or_init(|| {
        let driver = FakeDriver::new(1);
        (driver.clone(), DeviceContext::with_driver(driver, 0).expect("a stream"))
    })
}

/// Elements of a member's input and output, and the content of the output afterwards.
fn definition(kind: Kind, reduction: Reduction, root: usize, shape: &Shape, n: usize, me: usize) -> (usize, Vec<f64>) {
    let (row, dtype, n_rows) = (shape.row, reduction.dtype, shape.rows[0]);
    let is_present = |member: &usize| kind != Kind::Allreduce || shape.is_present[*member];
    let start = |from: usize, to: usize| shape.splits[from][..to].iter().sum::<usize>() * row;
    match kind {
        Kind::Allreduce => {
            let present: Vec<usize> = (0..n).filter(is_present).collect();
            (n_rows * row, reduction.of_members(present.into_iter(), n as f64, n_rows * row))
        }
        Kind::Broadcast => (n_rows * row, values(dtype, root, n_rows * row)),
        Kind::Allgather => {
            let part = |member: usize| values(dtype, member, shape.rows[member] * row);
            (shape.rows[me] * row, (0..n).flat_map(part).collect())
        }
        Kind::Alltoall => {
            let part = |from: usize| values(dtype, from, start(from, n))[start(from, me)..start(from, me + 1)].to_vec();
            (start(me, n), (0..n).flat_map(part).collect())
        }
        _ => {
            let own = partition::split_rows(n_rows, n, me);
            let all = reduction.of(0..n, n_rows * row);
            (n_rows * row, all[own.start * row..own.end * row].to_vec())
        }
    }
}

fn check(kind: Kind, reduction: Reduction, n: usize, root: usize, shapes: &[Shape]) {
    let ((driver, context), dtype) = (device(), reduction.dtype);
    let memory = |elements: &[f64], n_before: usize, expected: Vec<f64>| {
        let bytes = [vec![0x55; n_before * dtype.size()], encode(dtype, elements), vec![0x55; 16]].concat();
        let base = driver.memory(&bytes);
        Memory { base, at: base + (n_before * dtype.size()) as u64, expected }
    };
    let mut all = Vec::new();
    let mut planned = Vec::new();
    for shape in shapes {
        let mut members = Vec::new();
        for me in 0..n {
            if kind == Kind::Allreduce && !shape.is_present[me] {
                members.push(None);
                continue;
            }
            let (n_elements, expected) = definition(kind, reduction, root, shape, n, me);
            let elements = values(dtype, me, n_elements);
            let is_in_place = shape.is_in_place && matches!(kind, Kind::Allreduce | Kind::Broadcast);
            let input =
                memory(&elements, shape.n_before, if is_in_place { expected.clone() } else { elements.clone() });
            let output = if is_in_place {
                input.at
            } else {
                let unwritten = memory(&vec![1.0; expected.len()], (shape.n_before + me) % 3, expected);
                let at = unwritten.at;
                all.push(unwritten);
                at
            };
            let splits = shape.splits[me][..n].iter().map(|rows| *rows as u64).collect();
            members.push(Some(MemberTensor { input: input.at, output, splits }));
            all.push(input);
        }
        planned.push(PlannedTensor {
            rows: shape.rows[..n].iter().map(|rows| *rows as u64).collect(),
            n_elements: (shape.rows[0] * shape.row) as u64,
            row: shape.row as u64,
            n_rows: shape.rows[0] as u64,
            members,
        });
    }
    let plan = Plan { kind, dtype, root };
    let combine = reduction.op.combine().expect("an elementwise operation");
    let (table, unit, combine) = plan.tasks(&planned, combine);
    let (prescale, postscale) = if plan.reduces() { (reduction.prescale, reduction.postscale) } else { (1.0, 1.0) };
    // SAFETY: the memory is freed after the work.
    unsafe { context.launch(context.stream, &table, unit, combine, prescale, postscale) }.expect("the driver works");
    context.record(context.stream).expect("an event").synchronize().expect("an event");
    for memory in all {
        let n_bytes = memory.expected.len() * dtype.size();
        let bytes = driver.read(memory.base, (memory.at - memory.base) as usize + n_bytes + 16);
        let (before, rest) = bytes.split_at((memory.at - memory.base) as usize);
        driver.free(memory.base);
        assert!(decode(dtype, &rest[..n_bytes]) == memory.expected, "{kind:?} {reduction:?} {n} {shapes:?}");
        assert!(before.iter().chain(&rest[n_bytes..]).all(|byte| *byte == 0x55), "bytes around it were written");
    }
    assert_eq!(driver.errors(), [""; 0]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn tasks_give_what_the_operation_is_defined_to_give(
        kind in prop::sample::select(&KINDS[..]),
        dtype in prop::sample::select(vec![Dtype::U8, Dtype::F16, Dtype::F32, Dtype::I64]),
        op in prop::sample::select(vec![ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max]),
        scales in prop::sample::select(vec![(1.0, 1.0), (2.0, 1.0), (1.0, 0.5)]),
        (n, root) in (1..=MAX_MEMBERS).prop_flat_map(|n| (Just(n), 0..n)),
        mut shapes in prop::collection::vec(shapes(), 0..4),
    ) {
        for shape in &mut shapes {
            // A task has at least one member.
            if shape.is_present[..n].iter().all(|is_present| !is_present) {
                shape.is_present[0] = true;
            }
            // The minimum with a rank that has joined is that with zero, which the plain definition here does not know.
            if op != ReduceOp::Sum {
                shape.is_present = vec![true; MAX_MEMBERS];
            }
        }
        let reduction = Reduction { dtype, op, prescale: scales.0, postscale: scales.1 };
        check(kind, reduction, n, root, &shapes);
    }
}
