//! Operations in which pairs of ranks exchange bytes: alltoall, and whatever halves or doubles its distance. Entered with lists of
//! what goes where; all of it moves at once.

use crate::algorithm::Reduction;
use crate::algorithm::ring::Ring;
use crate::error::Error;
use crate::reduce;
use crate::transport::link::Endpoint;

/// Bytes to or from one member, and how many of them have moved.
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

/// At most one parcel to and one from each member.
///
/// # Safety
/// What is sent must be readable, what is received writable and apart from it.
pub unsafe fn exchange(
    endpoint: &mut Endpoint<'_>,
    sent: &mut [Transfer],
    received: &mut [Transfer],
) -> Result<(), Error> {
    loop {
        let (mut moved, mut whole) = (false, true);
        for parcel in &mut *received {
            let left = parcel.n_bytes - parcel.done;
            if left > 0 {
                // SAFETY: the caller's.
                let n = unsafe { endpoint.receive(parcel.member, 0, parcel.at.add(parcel.done), left)? };
                parcel.done += n;
                moved |= n > 0;
                whole &= n == left;
            }
        }
        for parcel in &mut *sent {
            let left = parcel.n_bytes - parcel.done;
            if left > 0 {
                // SAFETY: the caller's.
                let n = unsafe { endpoint.send(parcel.member, 0, parcel.at.add(parcel.done), left)? };
                parcel.done += n;
                moved |= n > 0;
                whole &= n == left;
            }
        }
        endpoint.after(moved || whole)?;
        if whole {
            return Ok(());
        }
    }
}

/// Recursive doubling, for small reductions over links: after `k` rounds every rank has the result of `2^k` ranks. Ranks beyond
/// the largest power of two hand theirs to a partner first, and get the result from it. All combine in the order of
/// ranks, so all get the same bits.
///
/// # Safety
/// `data` holds `n_bytes` of whole elements; `scratch` is at least as long.
pub unsafe fn recursive_doubling(
    endpoint: &mut Endpoint<'_>,
    Ring { members, me }: Ring<'_>,
    data: *mut u8,
    n_bytes: usize,
    reduction: Reduction,
    scratch: &mut [u8],
) -> Result<(), Error> {
    let n = members.len();
    let even = 1 << n.ilog2();
    let other = scratch.as_mut_ptr();
    // SAFETY: the caller's, throughout.
    unsafe {
        if me >= even {
            let partner = members[me - even];
            exchange(endpoint, &mut [Transfer::new(partner, data, n_bytes)], &mut [])?;
            return exchange(endpoint, &mut [], &mut [Transfer::new(partner, data, n_bytes)]);
        }
        let extra = members.get(me + even);
        if let Some(extra) = extra {
            exchange(endpoint, &mut [], &mut [Transfer::new(*extra, other, n_bytes)])?;
            reduce::combine_raw(reduction.dtype, reduction.combine, data, other, n_bytes);
        }
        let mut distance = 1;
        while distance < even {
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
