//! Validation of the ranks' requests for one tensor: Horovod's checks in Horovod's order, with Horovod's messages. The first mismatch is
//! reported to all ranks. Pure.

use crate::ReduceOp;

use crate::coordinator::request::{Kind, Request};

/// Compares the requests, which are in order of arrival; there is at least one. If there are fewer than `n_members`, the other members have
/// joined.
pub fn validate_requests(requests: &[&Request], n_members: usize) -> Result<(), String> {
    let (first, others) = requests.split_first().expect("a complete tensor has at least one request");
    let kind = first.kind;
    let differing = |differs: &dyn Fn(&Request) -> bool| others.iter().copied().find(|other| differs(other));

    if let Some(other) = differing(&|other| other.dtype != first.dtype) {
        let [one, another] = [first, other].map(|request| request.dtype.name());
        return Err(format!("Mismatched data types: One rank had type {one}, but another rank had type {another}."));
    }
    if let Some(other) = differing(&|other| other.kind != kind) {
        let [one, another] = [kind.name(), other.kind.name()];
        return Err(format!("Mismatched operations: One rank did an {one}, but another rank did an {another}."));
    }
    if matches!(kind, Kind::Allreduce | Kind::Adasum | Kind::Broadcast | Kind::Reducescatter)
        && let Some(other) = differing(&|other| other.shape != first.shape)
    {
        return Err(format!(
            "Mismatched {} tensor shapes: One rank sent a tensor of shape {:?}, but another rank sent a tensor of shape {:?}.",
            kind.name(),
            first.shape,
            other.shape
        ));
    }
    if kind.reduces() {
        let factors = |request: &Request| scaled_sum(request, n_members).1;
        if let Some(other) = differing(&|other| factors(other) != factors(first)) {
            let [[pre, post], [other_pre, other_post]] =
                [factors(first), factors(other)].map(|f| f.map(format_like_cpp));
            return Err(format!(
                "Mismatched prescale and/or postscale factors: One rank sent factors ({pre}, {post}), \
                 but another rank sent factors ({other_pre}, {other_post})."
            ));
        }
        let op = |request: &Request| scaled_sum(request, n_members).0 as u8;
        if let Some(other) = differing(&|other| op(other) != op(first)) {
            return Err(format!(
                "Mismatched reduction operation: One rank sent reduction op {}, but another rank sent reduction op {}.",
                op(first),
                op(other)
            ));
        }
    }
    if matches!(kind, Kind::Allgather | Kind::Alltoall | Kind::Reducescatter) {
        validate_dimensions(first, others)?;
    }
    if requests.len() < n_members && !kind.takes_zeros() {
        let advice =
            if kind == Kind::Allgather { " Specify sparse_to_dense=True if using DistributedOptimizer" } else { "" };
        return Err(format!("{} is not supported with Join at this time.{advice}", kind.call()));
    }
    if kind == Kind::Broadcast
        && let Some(other) = differing(&|other| other.root != first.root)
    {
        return Err(format!(
            "Mismatched BROADCAST root ranks: One rank specified root rank {}, but another rank specified root rank {}.",
            first.root, other.root
        ));
    }
    if let Some(other) = differing(&|other| (other.device < 0) != (first.device < 0)) {
        let [one, another] = [first, other].map(|request| if request.device < 0 { "CPU" } else { "GPU" });
        return Err(format!(
            "Mismatched {} CPU/GPU device selection: One rank specified device {one}, but another rank specified device \
             {another}.",
            kind.name()
        ));
    }
    Ok(())
}

fn validate_dimensions(first: &Request, others: &[&Request]) -> Result<(), String> {
    let x = first.kind.name();
    if first.shape.is_empty() {
        return Err(format!("Process-set rank zero tried to {x} a rank-zero tensor."));
    }
    for other in others {
        let [one, another] = [first.shape.len(), other.shape.len()];
        if one != another {
            return Err(format!(
                "Mismatched {x} tensor shapes: One rank sent a tensor of rank {one}, but another rank sent a tensor of rank \
                 {another}."
            ));
        }
        let differs = |dimension: &usize| first.shape[*dimension] != other.shape[*dimension];
        if let Some(dimension) = (1..one).find(differs) {
            return Err(format!(
                "Mismatched {x} tensor shapes: One rank sent a tensor with dimension {dimension} equal to {}, but another \
                 rank sent a tensor with dimension {dimension} equal to {}.",
                first.shape[dimension], other.shape[dimension]
            ));
        }
    }
    Ok(())
}

/// Reduce op and scale factors as Horovod compares and prints them: an average is a sum with a postscale factor.
fn scaled_sum(request: &Request, n_members: usize) -> (ReduceOp, [f64; 2]) {
    match request.op {
        ReduceOp::Average => (ReduceOp::Sum, [request.prescale, request.postscale / n_members as f64]),
        op => (op, [request.prescale, request.postscale]),
    }
}

/// Formats a double like a C++ stream: six significant digits, no trailing zeros, exponents for very small and large values.
fn format_like_cpp(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string().to_lowercase();
    }
    let scientific = format!("{value:.5e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    let trimmed = |digits: &str| {
        if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }.to_owned()
    };
    if (-4..6).contains(&exponent) {
        trimmed(&format!("{value:.*}", (5 - exponent) as usize))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
    }
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
