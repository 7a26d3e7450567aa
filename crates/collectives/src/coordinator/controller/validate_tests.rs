//! Tests of every mismatch message and of the order of the checks.

use super::*;
use crate::Dtype;
use crate::coordinator::request::SetId;

fn request(kind: Kind, shape: &[u64]) -> Request {
    Request {
        set: SetId::GLOBAL,
        kind,
        name: "x".into(),
        dtype: Dtype::F32,
        shape: shape.to_vec(),
        root: 0,
        device: -1,
        prescale: 1.0,
        postscale: 1.0,
        op: ReduceOp::Sum,
        splits: Vec::new(),
    }
}

/// Checks the error for two ranks whose requests differ by `change`.
fn check_mismatch(kind: Kind, shape: &[u64], change: impl FnOnce(&mut Request), text: &str) {
    let one = request(kind, shape);
    let mut another = one.clone();
    change(&mut another);
    assert_eq!(validate_requests(&[&one, &another], 2), Err(text.to_owned()));
}

#[test]
fn equal_requests_match() {
    for kind in [Kind::Allreduce, Kind::Adasum, Kind::Broadcast] {
        let one = request(kind, &[]);
        assert_eq!(validate_requests(&[&one, &one], 2), Ok(()), "{kind:?}");
    }
    for kind in [Kind::Reducescatter, Kind::Allgather, Kind::Alltoall] {
        let one = request(kind, &[3, 4]);
        assert_eq!(validate_requests(&[&one, &one], 2), Ok(()), "{kind:?}");
    }
    let [one, another] = [request(Kind::Allgather, &[3, 4]), request(Kind::Allgather, &[0, 4])];
    assert_eq!(validate_requests(&[&one, &another], 2), Ok(()));
}

#[test]
fn messages_are_horovods() {
    use Kind::*;
    check_mismatch(
        Allreduce,
        &[3],
        |r| r.dtype = Dtype::F64,
        "Mismatched data types: One rank had type float32, but another rank had type float64.",
    );
    check_mismatch(
        Allreduce,
        &[3],
        |r| r.kind = Allgather,
        "Mismatched operations: One rank did an ALLREDUCE, but another rank did an ALLGATHER.",
    );
    for (kind, x) in
        [(Allreduce, "ALLREDUCE"), (Adasum, "ADASUM"), (Broadcast, "BROADCAST"), (Reducescatter, "REDUCESCATTER")]
    {
        let text = format!(
            "Mismatched {x} tensor shapes: One rank sent a tensor of shape [3, 2], but another rank sent a tensor of shape [4]."
        );
        check_mismatch(kind, &[3, 2], |r| r.shape = vec![4], &text);
    }
    check_mismatch(
        Allreduce,
        &[],
        |r| r.shape = vec![4],
        "Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape [], but another rank sent a tensor of shape [4].",
    );
    check_mismatch(
        Allreduce,
        &[3],
        |r| r.prescale = 2.0,
        "Mismatched prescale and/or postscale factors: One rank sent factors (1, 1), but another rank sent factors (2, 1).",
    );
    check_mismatch(
        Allreduce,
        &[3],
        |r| r.op = ReduceOp::Average,
        "Mismatched prescale and/or postscale factors: One rank sent factors (1, 1), but another rank sent factors (1, 0.5).",
    );
    check_mismatch(
        Allreduce,
        &[3],
        |r| r.op = ReduceOp::Max,
        "Mismatched reduction operation: One rank sent reduction op 1, but another rank sent reduction op 4.",
    );
    for (kind, x) in [(Allgather, "ALLGATHER"), (Alltoall, "ALLTOALL")] {
        let text = format!(
            "Mismatched {x} tensor shapes: One rank sent a tensor of rank 1, but another rank sent a tensor of rank 2."
        );
        check_mismatch(kind, &[3], |r| r.shape = vec![3, 1], &text);
        let text = format!(
            "Mismatched {x} tensor shapes: One rank sent a tensor with dimension 1 equal to 3, but another rank sent a tensor with dimension 1 equal to 4."
        );
        check_mismatch(kind, &[2, 3], |r| r.shape = vec![9, 4], &text);
    }
    for (kind, x) in [(Allgather, "ALLGATHER"), (Alltoall, "ALLTOALL"), (Reducescatter, "REDUCESCATTER")] {
        check_mismatch(kind, &[], |_| (), &format!("Process-set rank zero tried to {x} a rank-zero tensor."));
    }
    check_mismatch(
        Broadcast,
        &[3],
        |r| r.root = 1,
        "Mismatched BROADCAST root ranks: One rank specified root rank 0, but another rank specified root rank 1.",
    );
    check_mismatch(
        Allreduce,
        &[3],
        |r| r.device = 0,
        "Mismatched ALLREDUCE CPU/GPU device selection: One rank specified device CPU, but another rank specified device GPU.",
    );
}

#[test]
fn some_kinds_are_not_supported_with_join() {
    let validate_one = |kind| validate_requests(&[&request(kind, &[2])], 2);
    assert_eq!(
        validate_one(Kind::Allgather).unwrap_err(),
        "Allgather is not supported with Join at this time. Specify sparse_to_dense=True if using DistributedOptimizer"
    );
    assert_eq!(validate_one(Kind::Alltoall).unwrap_err(), "Alltoall is not supported with Join at this time.");
    assert_eq!(validate_one(Kind::Broadcast).unwrap_err(), "Broadcast is not supported with Join at this time.");
    assert_eq!(
        validate_one(Kind::Reducescatter).unwrap_err(),
        "Reducescatter is not supported with Join at this time."
    );
    assert_eq!([validate_one(Kind::Allreduce), validate_one(Kind::Adasum)], [Ok(()), Ok(())]);
}

/// The changes accumulate, from the last check to the first: each one takes precedence over those before it.
#[test]
fn the_first_mismatch_in_horovods_order_is_reported() {
    let one = request(Kind::Allreduce, &[3]);
    let mut another = one.clone();
    type Change = fn(&mut Request);
    let steps: [(Change, &str); 6] = [
        (|r| r.device = 1, "Mismatched ALLREDUCE CPU/GPU"),
        (|r| r.op = ReduceOp::Min, "Mismatched reduction operation"),
        (|r| r.postscale = 0.5, "Mismatched prescale"),
        (|r| r.shape = vec![1], "Mismatched ALLREDUCE tensor shapes"),
        (|r| r.kind = Kind::Broadcast, "Mismatched operations"),
        (|r| r.dtype = Dtype::U8, "Mismatched data types"),
    ];
    for (change, start) in steps {
        change(&mut another);
        let text = validate_requests(&[&one, &another], 2).unwrap_err();
        assert!(text.starts_with(start), "{text}");
    }
}

#[test]
fn an_average_is_a_sum_with_a_factor() {
    let [mut one, mut another] = [request(Kind::Allreduce, &[1]), request(Kind::Allreduce, &[1])];
    one.op = ReduceOp::Average;
    another.postscale = 0.5;
    assert_eq!(validate_requests(&[&one, &another], 2), Ok(()));
}

#[test]
fn doubles_print_as_in_cpp() {
    let cases = [
        (1.0, "1"),
        (0.5, "0.5"),
        (1.0 / 3.0, "0.333333"),
        (1e6, "1e+06"),
        (123456.0, "123456"),
        (1234567.0, "1.23457e+06"),
        (1e-5, "1e-05"),
        (0.0001, "0.0001"),
        (-2.25, "-2.25"),
        (0.0, "0"),
        (f64::INFINITY, "inf"),
        (1.5e300, "1.5e+300"),
    ];
    for (value, text) in cases {
        assert_eq!(format_like_cpp(value), text);
    }
}
