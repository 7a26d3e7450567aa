//! Tensor fusion: selects the ready tensors that are executed as one operation. Pure.
//!
//! The first tensor of the queue is fused with every later one that has the same fusion key, up to the threshold. A tensor that cannot be
//! fused is skipped and stays in the queue. The lookahead ends when fused and skipped bytes together exceed the threshold, which bounds
//! how far a skipped tensor is overtaken.

use crate::coordinator::message::FusionKey;

/// Limits of fusion.
#[derive(Clone, Copy, Debug)]
pub struct FusionLimits {
    /// Bytes; 0 disables fusion.
    pub threshold: u64,
    /// Fuse tensors of a group only with each other.
    pub disable_group_fusion: bool,
}

/// A ready tensor that may be fused.
#[derive(Clone, Copy, Debug)]
pub struct FusionCandidate<'a> {
    pub key: &'a FusionKey,
    pub bytes: u64,
    /// Group in which the tensor was submitted.
    pub group: Option<u64>,
}

/// Queue entry seen while looking for tensors to fuse.
#[derive(Clone, Copy, Debug)]
pub enum Lookahead<'a> {
    Candidate(FusionCandidate<'a>),
    /// Entry that a tensor may overtake: a tensor of another process set, an error, a barrier, a resend, or one that is already sent.
    Unrelated,
    /// Entry that must not be overtaken, such as a change of process sets or a shutdown.
    Fence,
}

/// Horovod's rounding of the threshold: if all hosts have the same number of ranks, each rank's part of a full fusion buffer is a multiple
/// of 64 doubles.
pub fn rounded_threshold(bytes: u64, local_size: u64, homogeneous: bool) -> u64 {
    let unit = local_size.max(1).saturating_mul(8 * 64);
    if homogeneous { bytes.checked_next_multiple_of(unit).unwrap_or(bytes) } else { bytes }
}

/// Passes the positions in `queue` of the tensors fused with `first` to `select`.
pub fn fuse<'a>(
    first: FusionCandidate,
    queue: impl Iterator<Item = Lookahead<'a>>,
    limits: FusionLimits,
    mut select: impl FnMut(usize),
) {
    if limits.threshold == 0 || !first.key.kind.fuses() {
        return;
    }
    let (mut fused_bytes, mut skipped) = (first.bytes, 0u64);
    for (position, ahead) in queue.enumerate() {
        if fused_bytes.saturating_add(skipped) > limits.threshold {
            break;
        }
        let candidate = match ahead {
            Lookahead::Candidate(candidate) => candidate,
            Lookahead::Unrelated => continue,
            Lookahead::Fence => break,
        };
        let is_fusible = candidate.key == first.key && (!limits.disable_group_fusion || candidate.group == first.group);
        if is_fusible && fused_bytes.saturating_add(candidate.bytes) <= limits.threshold {
            fused_bytes += candidate.bytes;
            select(position);
        } else {
            skipped = skipped.saturating_add(candidate.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::request::Kind;
    use crate::{Dtype, ReduceOp};

    fn key(kind: Kind, dtype: Dtype) -> FusionKey {
        FusionKey {
            generation: 0,
            kind,
            dtype,
            op: ReduceOp::Sum,
            root: 0,
            on_cpu: true,
            prescale: 1.0,
            postscale: 1.0,
        }
    }

    /// Tensors are (dtype, bytes, group); `expected` are the positions fused with the first.
    fn check(limits: FusionLimits, kind: Kind, tensors: &[(Dtype, u64, Option<u64>)], expected: &[usize]) {
        let key: Vec<FusionKey> = tensors.iter().map(|(dtype, ..)| key(kind, *dtype)).collect();
        let of = |at: usize| FusionCandidate { key: &key[at], bytes: tensors[at].1, group: tensors[at].2 };
        let mut fused_bytes = Vec::new();
        fuse(of(0), (1..tensors.len()).map(|at| Lookahead::Candidate(of(at))), limits, |at| fused_bytes.push(at + 1));
        assert_eq!(fused_bytes, expected);
    }

    const F: Dtype = Dtype::F32;
    const I: Dtype = Dtype::I32;

    fn up_to(threshold: u64) -> FusionLimits {
        FusionLimits { threshold, disable_group_fusion: false }
    }

    #[test]
    fn fused_bytes_reach_but_never_exceed_the_threshold() {
        check(up_to(100), Kind::Allreduce, &[(F, 40, None), (F, 40, None), (F, 20, None), (F, 1, None)], &[1, 2]);
        check(up_to(100), Kind::Allreduce, &[(F, 101, None), (F, 0, None)], &[]);
        check(up_to(0), Kind::Allreduce, &[(F, 0, None), (F, 0, None)], &[]);
    }

    #[test]
    fn other_keys_are_skipped_within_the_threshold() {
        check(up_to(100), Kind::Allreduce, &[(F, 40, None), (I, 40, None), (F, 20, None)], &[2]);
        check(up_to(100), Kind::Allreduce, &[(F, 40, None), (I, 61, None), (F, 20, None)], &[]);
        check(up_to(100), Kind::Allreduce, &[(F, 40, None), (F, 61, None), (F, 20, None)], &[]);
    }

    #[test]
    fn some_kinds_never_fuse() {
        for kind in Kind::ALL {
            let fused = matches!(kind, Kind::Allreduce | Kind::Adasum | Kind::Allgather | Kind::Reducescatter);
            check(up_to(100), kind, &[(F, 4, None), (F, 4, None)], if fused { &[1] } else { &[] });
        }
    }

    #[test]
    fn group_fusion_can_be_disabled() {
        let tensors = [(F, 4, Some(1)), (F, 4, Some(2)), (F, 4, None), (F, 4, Some(1))];
        check(up_to(100), Kind::Allreduce, &tensors, &[1, 2, 3]);
        check(FusionLimits { threshold: 100, disable_group_fusion: true }, Kind::Allreduce, &tensors, &[3]);
    }

    #[test]
    fn fences_stop_the_lookahead_and_unrelated_messages_do_not() {
        let key = key(Kind::Allreduce, F);
        let one = FusionCandidate { key: &key, bytes: 4, group: None };
        let queue = [Lookahead::Unrelated, Lookahead::Candidate(one), Lookahead::Fence, Lookahead::Candidate(one)];
        let mut fused_bytes = Vec::new();
        fuse(one, queue.into_iter(), up_to(100), |at| fused_bytes.push(at));
        assert_eq!(fused_bytes, [1]);
    }

    #[test]
    fn rounding_is_horovods() {
        assert_eq!(rounded_threshold(1, 2, true), 1024);
        assert_eq!(rounded_threshold(1, 2, false), 1);
        assert_eq!(rounded_threshold(0, 2, true), 0);
        assert_eq!(rounded_threshold(128 << 20, 3, true), 134_218_752);
    }
}
