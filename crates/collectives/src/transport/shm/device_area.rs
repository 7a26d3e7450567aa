//! Layout of the memory in which the members of a process set on one host describe their tensors to each other. In the communicator's region
//! of shared memory: flags that devices write, then for each member its exported allocations and two descriptions of an operation.
//!
//! A member writes its description before a barrier and the others read it after. Descriptions alternate, so one is written again only after
//! the next barrier, when all have read it. An entry of an allocation is written again only two operations after its last use.

use std::sync::atomic::AtomicU32;

/// Tensors described at a time; longer operations are executed in batches. Few in unit tests, which reach the limits.
pub const MAX_TENSORS: usize = if cfg!(test) { 16 } else { 1024 };
/// Allocations that a member exports at a time. Enough for four operations whose inputs and outputs are in allocations of their own: the one
/// that is described, and those before it whose entries may still be read.
pub const MAX_ALLOCATIONS: usize = 8 * MAX_TENSORS;
/// Rows for each member, in an alltoall.
pub const MAX_SPLITS: usize = 64;
/// Freed allocations reported with one operation.
pub const MAX_FREED: usize = 64;

/// Words that the device of one member writes. Wrapping numbers of operations.
#[repr(C, align(128))]
pub struct MemberFlags {
    /// The member's inputs are ready.
    pub ready: AtomicU32,
    _apart: [u8; 124],
    /// The member, as the leader, has written all outputs.
    pub done: AtomicU32,
}

/// An allocation that others can map.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ExportedAllocation {
    /// 0: none.
    pub id: u64,
    /// The driver's name of the allocation.
    pub handle: [u8; 64],
}

/// Address of a tensor: an exported allocation and an offset in it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Location {
    pub allocation: u32,
    pub offset: u64,
}

impl Location {
    /// Location of an empty tensor.
    pub const NONE: Location = Location { allocation: u32::MAX, offset: 0 };
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TensorLocation {
    /// Whether the member contributes; one that has joined does not.
    pub is_present: bool,
    pub input: Location,
    pub output: Location,
}

/// A member's tensors of one operation.
#[repr(C)]
pub struct Description {
    pub n_freed: u32,
    pub freed: [u32; MAX_FREED],
    pub splits: [u64; MAX_SPLITS],
    pub tensors: [TensorLocation; MAX_TENSORS],
}

#[repr(C)]
struct MemberArea {
    descriptions: [Description; 2],
    allocations: [ExportedAllocation; MAX_ALLOCATIONS],
}

/// Bytes of the flags: whole pages, because the device gets access to them only.
pub const FLAG_BYTES: usize = 64 * 1024;
/// Most members; bounded by the flags.
pub const MAX_MEMBERS: usize = 64;

const _: () = assert!(MAX_MEMBERS * size_of::<MemberFlags>() <= FLAG_BYTES);

/// Bytes of the area for `n` members.
pub const fn area_bytes(n: usize) -> usize {
    FLAG_BYTES + n * size_of::<MemberArea>()
}

/// The mapped area.
#[derive(Clone, Copy)]
pub struct IpcArea {
    base: *mut u8,
    n: usize,
}

// SAFETY: an address of shared memory; accesses are ordered by barriers, or atomic.
unsafe impl Send for IpcArea {}

impl IpcArea {
    /// # Safety
    /// `base` must be the address of [`area_bytes`] for `n` members, aligned to a page, zero at first, and mapped as long as the value is used.
    pub unsafe fn new(base: *mut u8, n: usize) -> IpcArea {
        assert!(n <= MAX_MEMBERS);
        IpcArea { base, n }
    }

    /// Address of the flags, for the device.
    pub fn flags_base(&self) -> *mut u8 {
        self.base
    }

    pub fn flags(&self, member: usize) -> &MemberFlags {
        assert!(member < self.n);
        // SAFETY: within the flags, by the assertion; zero bytes are valid flags.
        unsafe { &*self.base.add(member * size_of::<MemberFlags>()).cast() }
    }

    /// Offset of a member's flag from the base.
    pub fn ready_offset(member: usize) -> u64 {
        (member * size_of::<MemberFlags>()) as u64
    }

    pub fn done_offset(member: usize) -> u64 {
        IpcArea::ready_offset(member) + std::mem::offset_of!(MemberFlags, done) as u64
    }

    fn member(&self, member: usize) -> *mut MemberArea {
        assert!(member < self.n);
        // SAFETY: within the area, by the assertion.
        unsafe { self.base.add(FLAG_BYTES + member * size_of::<MemberArea>()).cast() }
    }

    /// A member's description of the operation with this number.
    ///
    /// # Safety
    /// Only the member itself may write to it, before the operation's barrier, and others read it after, until the barrier that follows.
    pub unsafe fn description(&self, member: usize, number: u32) -> *mut Description {
        // SAFETY: a part of the member's area; only the address is computed.
        unsafe { &raw mut (*self.member(member)).descriptions[number as usize % 2] }
    }

    /// An entry of a member's table of allocations.
    ///
    /// # Safety
    /// As [`IpcArea::description`].
    pub unsafe fn allocation(&self, member: usize, index: usize) -> *mut ExportedAllocation {
        assert!(index < MAX_ALLOCATIONS);
        // SAFETY: a part of the member's area, by the assertion; only the address is computed.
        unsafe { &raw mut (*self.member(member)).allocations[index] }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn flags_of_members_have_their_own_cache_lines() {
        assert_eq!(IpcArea::ready_offset(1) - IpcArea::ready_offset(0), 256);
        assert_eq!(IpcArea::done_offset(0), 128);
    }

    #[test]
    fn parts_of_members_do_not_overlap() {
        let n = 3;
        let mut memory = vec![0u64; area_bytes(n) / 8 + 16];
        let base = memory.as_mut_ptr().cast::<u8>();
        // SAFETY: zeroed memory of the right size, aligned to 128 bytes after the offset.
        let area = unsafe { IpcArea::new(base.add(base.align_offset(128)), n) };
        for member in 0..n {
            // SAFETY: this thread is every member.
            unsafe {
                (*area.description(member, 1)).tensors[MAX_TENSORS - 1].input.offset = member as u64 + 1;
                (*area.allocation(member, MAX_ALLOCATIONS - 1)).id = member as u64 + 10;
            }
            area.flags(member).done.store(member as u32, Ordering::Relaxed);
        }
        for member in 0..n {
            // SAFETY: as above.
            unsafe {
                assert_eq!((*area.description(member, 3)).tensors[MAX_TENSORS - 1].input.offset, member as u64 + 1);
                assert_eq!((*area.description(member, 2)).tensors[MAX_TENSORS - 1].input.offset, 0);
                assert_eq!((*area.allocation(member, MAX_ALLOCATIONS - 1)).id, member as u64 + 10);
            }
            assert_eq!(area.flags(member).done.load(Ordering::Relaxed), member as u32);
        }
    }
}
