//! Pairwise exchanges over links: alltoall and recursive doubling. All transfers of an exchange progress at the same time.

use crate::algorithm::Reduction;
use crate::algorithm::ring::Ring;
use crate::error::Error;
use crate::reduce;
use crate::transport::link::Endpoint;

/// Bytes to or from one member, and how many of them have been transferred.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    pub member: usize,
    pub at: *mut u8,
    pub n_bytes: usize,
    pub done: usize,
}

impl Transfer {
    pub fn new(member: usize, at: *const u8, n_bytes: usize) -> Transfer {
        Transfer { member, at: at.cast_mut(), n_bytes, done: 0 }
    }
}

/// Completes all transfers; at most one to and one from each member.
///
/// # Safety
/// `at` of each sent transfer must be readable and that of each received one writable for its `n_bytes`; none that is received overlaps another.
pub unsafe fn exchange(
    endpoint: &mut Endpoint<'_>,
    sent: &mut [Transfer],
    received: &mut [Transfer],
) -> Result<(), Error> {
    loop {
        let (mut moved, mut is_complete) = (false, true);
        for transfer in &mut *received {
            let remaining = transfer.n_bytes - transfer.done;
            if remaining > 0 {
                // SAFETY: `at` is writable for `n_bytes` by the function's contract.
                let n = unsafe { endpoint.receive(transfer.member, 0, transfer.at.add(transfer.done), remaining)? };
                transfer.done += n;
                moved |= n > 0;
                is_complete &= n == remaining;
            }
        }
        for transfer in &mut *sent {
            let remaining = transfer.n_bytes - transfer.done;
            if remaining > 0 {
                // SAFETY: `at` is readable for `n_bytes` by the function's contract.
                let n = unsafe { endpoint.send(transfer.member, 0, transfer.at.add(transfer.done), remaining)? };
                transfer.done += n;
                moved |= n > 0;
                is_complete &= n == remaining;
            }
        }
        endpoint.end_round(moved || is_complete)?;
        if is_complete {
            return Ok(());
        }
    }
}

/// Allreduce in place by recursive doubling, for small reductions over links: after `k` rounds every rank has the result of `2^k` ranks. Ranks beyond
/// the largest power of two send their input to a partner first, and receive the result from it. All combine in rank order, so all get the same bits.
///
/// # Safety
/// `data` must be valid for reads and writes of `n_bytes`, whole elements; `scratch` must be at least as long.
pub unsafe fn recursive_doubling(
    endpoint: &mut Endpoint<'_>,
    Ring { members, me }: Ring<'_>,
    data: *mut u8,
    n_bytes: usize,
    reduction: Reduction,
    scratch: &mut [u8],
) -> Result<(), Error> {
    let n = members.len();
    let power_of_two = 1 << n.ilog2();
    let other = scratch.as_mut_ptr();
    // SAFETY: `data` and `scratch` are valid for `n_bytes` by the function's contract, and do not overlap.
    unsafe {
        if me >= power_of_two {
            let partner = members[me - power_of_two];
            exchange(endpoint, &mut [Transfer::new(partner, data, n_bytes)], &mut [])?;
            return exchange(endpoint, &mut [], &mut [Transfer::new(partner, data, n_bytes)]);
        }
        let extra = members.get(me + power_of_two);
        if let Some(extra) = extra {
            exchange(endpoint, &mut [], &mut [Transfer::new(*extra, other, n_bytes)])?;
            reduce::combine_raw(reduction.dtype, reduction.combine, data, other, n_bytes);
        }
        let mut distance = 1;
        while distance < power_of_two {
            let partner = me ^ distance;
            let member = members[partner];
            let (mut sent, mut received) =
                ([Transfer::new(member, data, n_bytes)], [Transfer::new(member, other, n_bytes)]);
            exchange(endpoint, &mut sent, &mut received)?;
            let (low, high) = if me < partner {
                (data.cast_const(), other.cast_const())
            } else {
                (other.cast_const(), data.cast_const())
            };
            reduce::fold_raw(reduction.dtype, reduction.combine, data, None, &[low, high], n_bytes);
            distance *= 2;
        }
        reduction.apply_factor(data, n_bytes);
        if let Some(extra) = extra {
            exchange(endpoint, &mut [Transfer::new(*extra, data, n_bytes)], &mut [])?;
        }
    }
    Ok(())
}
