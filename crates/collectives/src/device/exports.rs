//! The allocations of this rank that other ranks of its host map, and those of other ranks that it maps. Frameworks keep tensors in few
//! large allocations, so each is exported and mapped once.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::device::driver::{Allocation, DevicePtr, Driver, DriverError, IpcHandle};
use crate::transport::shm::device_area::{ExportedAllocation, IpcArea, Location, MAX_ALLOCATIONS, MAX_FREED};

/// Why an address cannot be passed to other ranks.
#[derive(Debug)]
pub enum ExportError {
    /// The driver cannot export the memory: it comes from a pool or from virtual memory management.
    NotExportable,
    Driver(DriverError),
}

/// Exported allocations, by their base.
#[derive(Default)]
pub struct Exports {
    by_base: BTreeMap<DevicePtr, Entry>,
    n_entries: usize,
    /// Entries whose allocation was freed, to be reported, and the number of the last operation that used them.
    freed: VecDeque<(u32, u32)>,
    /// Reported entries, likewise.
    reported: VecDeque<(u32, u32)>,
    /// Operation for which freed allocations were looked for.
    swept_at: Option<u32>,
}

struct Entry {
    allocation: Allocation,
    index: u32,
    last_use: u32,
    checked_at: u32,
    /// `None`: cannot be exported.
    handle: Option<IpcHandle>,
}

impl Exports {
    /// The location of an address in the table of this member. `number` is that of the operation.
    pub fn locate(
        &mut self,
        driver: &dyn Driver,
        area: &IpcArea,
        member: usize,
        number: u32,
        ptr: DevicePtr,
    ) -> Result<Location, ExportError> {
        if let Some(location) = self.find(driver, number, ptr)? {
            return Ok(location);
        }
        let allocation = driver.allocation_of(ptr).map_err(ExportError::Driver)?;
        self.forget_freed(driver, number);
        self.forget_overlapping(&allocation);
        let handle = driver.export(allocation.base).ok();
        let index = match handle {
            Some(_) => self.free_index(number).ok_or(ExportError::NotExportable)?,
            None => u32::MAX,
        };
        if let Some(handle) = handle {
            // SAFETY: this member's table, before the barrier; an entry that no operation in progress uses.
            unsafe {
                *area.allocation(member, index as usize) = ExportedAllocation { id: allocation.id, handle: handle.0 }
            };
        }
        let entry = Entry { allocation, index, last_use: number, checked_at: number, handle };
        self.by_base.insert(allocation.base, entry);
        if handle.is_none() {
            return Err(ExportError::NotExportable);
        }
        Ok(Location { allocation: index, offset: ptr - allocation.base })
    }

    /// An address in a known allocation, if it was not freed meanwhile.
    fn find(&mut self, driver: &dyn Driver, number: u32, ptr: DevicePtr) -> Result<Option<Location>, ExportError> {
        let Some((_, entry)) = self.by_base.range_mut(..=ptr).next_back() else { return Ok(None) };
        if ptr >= entry.allocation.base + entry.allocation.n_bytes.max(1) {
            return Ok(None);
        }
        if entry.checked_at != number {
            if driver.allocation_id(ptr).map_err(ExportError::Driver)? != entry.allocation.id {
                return Ok(None);
            }
            entry.checked_at = number;
        }
        entry.last_use = number;
        match entry.handle {
            Some(_) => Ok(Some(Location { allocation: entry.index, offset: ptr - entry.allocation.base })),
            None => Err(ExportError::NotExportable),
        }
    }

    /// Forgets allocations that were freed, once for each operation with a new allocation: others must not keep them mapped.
    fn forget_freed(&mut self, driver: &dyn Driver, number: u32) {
        if self.swept_at.replace(number) == Some(number) {
            return;
        }
        let is_freed = |base: DevicePtr, id: u64| driver.allocation_id(base).ok() != Some(id);
        let known = self.by_base.iter().map(|(base, entry)| (*base, entry.allocation.id));
        let gone: Vec<DevicePtr> = known.filter(|(base, id)| is_freed(*base, *id)).map(|(base, _)| base).collect();
        gone.into_iter().for_each(|base| self.forget(base));
    }

    /// Forgets allocations whose addresses a new one has taken.
    fn forget_overlapping(&mut self, allocation: &Allocation) {
        let end = allocation.base + allocation.n_bytes.max(1);
        let overlaps =
            |base: &DevicePtr, entry: &Entry| *base < end && base + entry.allocation.n_bytes > allocation.base;
        let gone: Vec<DevicePtr> =
            self.by_base.iter().filter(|(base, entry)| overlaps(base, entry)).map(|(base, _)| *base).collect();
        gone.into_iter().for_each(|base| self.forget(base));
    }

    fn forget(&mut self, base: DevicePtr) {
        let Some(entry) = self.by_base.remove(&base) else { return };
        if entry.handle.is_some() {
            self.freed.push_back((entry.index, entry.last_use));
        }
    }

    /// An unused entry, or one whose allocation was freed, or the least recently used one; but none that the last two operations have used.
    fn free_index(&mut self, number: u32) -> Option<u32> {
        if self.n_entries < MAX_ALLOCATIONS {
            self.n_entries += 1;
            return Some(self.n_entries as u32 - 1);
        }
        for unused in [&mut self.reported, &mut self.freed] {
            if let Some(at) = unused.iter().position(|(_, last_use)| number.wrapping_sub(*last_use) > 2) {
                return unused.remove(at).map(|(index, _)| index);
            }
        }
        let is_idle = |entry: &&Entry| entry.handle.is_some() && number.wrapping_sub(entry.last_use) > 2;
        let oldest = self.by_base.values().filter(is_idle).max_by_key(|entry| number.wrapping_sub(entry.last_use))?;
        let (base, index) = (oldest.allocation.base, oldest.index);
        self.by_base.remove(&base);
        Some(index)
    }

    /// Freed entries to report with an operation.
    pub fn take_freed(&mut self) -> Vec<u32> {
        let n = self.freed.len().min(MAX_FREED);
        let freed: Vec<(u32, u32)> = self.freed.drain(..n).collect();
        self.reported.extend(&freed);
        freed.into_iter().map(|(index, _)| index).collect()
    }
}

/// Mapped allocations of other members, by member and entry.
#[derive(Default)]
pub struct Imports {
    mapped: HashMap<(usize, u32), (u64, DevicePtr)>,
}

impl Imports {
    /// The address of a member's location in this process. Reads the member's table.
    pub fn resolve(
        &mut self,
        driver: &dyn Driver,
        area: &IpcArea,
        member: usize,
        location: Location,
    ) -> Result<DevicePtr, DriverError> {
        if location == Location::NONE {
            return Ok(0);
        }
        // SAFETY: called between the operation's barrier and the next one.
        let exported = unsafe { *area.allocation(member, location.allocation as usize) };
        let key = (member, location.allocation);
        if let Some((id, base)) = self.mapped.get(&key) {
            if *id == exported.id {
                return Ok(base + location.offset);
            }
            self.close(driver, member, location.allocation);
        }
        let base = driver.import(&IpcHandle(exported.handle))?;
        self.mapped.insert(key, (exported.id, base));
        Ok(base + location.offset)
    }

    /// Unmaps an allocation that its owner has freed.
    pub fn close(&mut self, driver: &dyn Driver, member: usize, index: u32) {
        if let Some((_, base)) = self.mapped.remove(&(member, index)) {
            driver.close_import(base);
        }
    }

    /// Unmaps everything.
    pub fn close_all(&mut self, driver: &dyn Driver) {
        self.mapped.drain().for_each(|(_, (_, base))| driver.close_import(base));
    }
}
