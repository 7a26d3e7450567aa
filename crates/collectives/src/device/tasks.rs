//! Table of tasks for the kernel that combines tensors: each task reads some vectors, combines them elementwise in order, and writes the
//! result to some others. One launch executes all tasks of an operation. Pure, except that it writes the table to given memory.
//!
//! Words of 64 bits. A task is `[elements, sources | destinations << 16 | aligned << 32, source addresses…, destination addresses…]`; a
//! source address of 0 stands for zeros. After the tasks come the chunks, one for each block of the kernel: `[first word of the task |
//! number of its words << 32, first element]`.

use crate::device::driver::DevicePtr;

/// Bytes that one block of the kernel writes to each destination.
pub const CHUNK_BYTES: usize = 64 * 1024;
/// Most addresses of a task; a constant of the kernel.
pub const MAX_POINTERS: usize = 64;
const HEADER_WORDS: usize = 2;
const CHUNK_WORDS: usize = 2;
/// Vectors of this alignment are read and written 16 bytes at a time.
pub const VECTOR_BYTES: u64 = 16;

/// Tasks over elements of one size.
#[derive(Debug)]
pub struct TaskTable {
    words: Vec<u64>,
    chunks: Vec<u64>,
    element: usize,
    /// Sources of each task, as long as all have the same number.
    n_sources: Option<Option<usize>>,
}

impl TaskTable {
    pub fn new(element: usize) -> TaskTable {
        TaskTable { words: Vec::new(), chunks: Vec::new(), element, n_sources: None }
    }

    /// Adds a task; one without elements is dropped.
    pub fn push(&mut self, n_elements: u64, sources: &[DevicePtr], destinations: &[DevicePtr]) {
        assert!(!sources.is_empty() && sources.len() + destinations.len() <= MAX_POINTERS, "a task has its addresses");
        if n_elements == 0 || destinations.is_empty() {
            return;
        }
        let aligned = sources.iter().chain(destinations).all(|address| address % VECTOR_BYTES == 0);
        let first_word = self.words.len() as u64;
        let header = sources.len() as u64 | (destinations.len() as u64) << 16 | u64::from(aligned) << 32;
        self.words.extend([n_elements, header]);
        self.words.extend(sources);
        self.words.extend(destinations);
        let n_words = self.words.len() as u64 - first_word;
        let elements_per_chunk = (CHUNK_BYTES / self.element) as u64;
        for first in (0..n_elements).step_by(elements_per_chunk as usize) {
            self.chunks.extend([first_word | n_words << 32, first]);
        }
        self.n_sources = match self.n_sources {
            None => Some(Some(sources.len())),
            Some(Some(n)) if n == sources.len() => Some(Some(n)),
            Some(_) => Some(None),
        };
    }

    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub fn n_chunks(&self) -> usize {
        self.chunks.len() / CHUNK_WORDS
    }

    /// Word at which the chunks begin.
    pub fn first_chunk(&self) -> usize {
        self.words.len()
    }

    /// Number of sources, if it is the same for all tasks.
    pub fn n_sources(&self) -> Option<usize> {
        self.n_sources.flatten()
    }

    pub fn n_bytes(&self) -> usize {
        (self.words.len() + self.chunks.len()) * size_of::<u64>()
    }

    /// Writes the table.
    ///
    /// # Safety
    /// `to` must be writable for [`TaskTable::n_bytes`] and aligned to 8 bytes.
    pub unsafe fn write(&self, to: *mut u64) {
        // SAFETY: the two parts are `n_bytes` together, by the function's contract writable.
        unsafe {
            std::ptr::copy_nonoverlapping(self.words.as_ptr(), to, self.words.len());
            std::ptr::copy_nonoverlapping(self.chunks.as_ptr(), to.add(self.words.len()), self.chunks.len());
        }
    }
}

/// One chunk of a table, as the kernel reads it.
#[derive(Debug, PartialEq, Eq)]
pub struct Chunk {
    pub first_element: u64,
    pub n_elements: u64,
    pub sources: Vec<DevicePtr>,
    pub destinations: Vec<DevicePtr>,
}

/// Reads a chunk of a written table, for drivers without a device.
///
/// # Safety
/// `table` must be a written table, and the chunk one of its chunks.
pub unsafe fn read_chunk(table: *const u64, first_chunk: usize, chunk: usize, element: usize) -> Chunk {
    // SAFETY: the words of a chunk and of its task lie in the table, by the function's contract.
    unsafe {
        let entry = table.add(first_chunk + chunk * CHUNK_WORDS);
        let (task, first_element) = (table.add((*entry & 0xffff_ffff) as usize), *entry.add(1));
        let (n_elements, header) = (*task, *task.add(1));
        let (n_sources, n_destinations) = ((header & 0xffff) as usize, (header >> 16 & 0xffff) as usize);
        let address = |index: usize| *task.add(HEADER_WORDS + index);
        Chunk {
            first_element,
            n_elements: (n_elements - first_element).min((CHUNK_BYTES / element) as u64),
            sources: (0..n_sources).map(address).collect(),
            destinations: (n_sources..n_sources + n_destinations).map(address).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(table: &TaskTable) -> Vec<u64> {
        let mut words = vec![0u64; table.n_bytes() / 8];
        // SAFETY: the vector has the table's size.
        unsafe { table.write(words.as_mut_ptr()) };
        words
    }

    #[test]
    fn chunks_cover_every_element_once() {
        let mut table = TaskTable::new(4);
        let per_chunk = (CHUNK_BYTES / 4) as u64;
        table.push(per_chunk * 2 + 5, &[16, 0], &[32, 48]);
        table.push(0, &[16], &[32]);
        table.push(7, &[20, 24], &[28]);
        assert_eq!((table.n_chunks(), table.n_sources()), (4, Some(2)));
        let words = written(&table);
        // SAFETY: a written table and its chunks.
        let chunks: Vec<Chunk> =
            (0..4).map(|chunk| unsafe { read_chunk(words.as_ptr(), table.first_chunk(), chunk, 4) }).collect();
        let ranges: Vec<(u64, u64)> = chunks.iter().map(|chunk| (chunk.first_element, chunk.n_elements)).collect();
        assert_eq!(ranges, [(0, per_chunk), (per_chunk, per_chunk), (2 * per_chunk, 5), (0, 7)]);
        assert_eq!((&chunks[0].sources, &chunks[0].destinations), (&vec![16, 0], &vec![32, 48]));
        assert_eq!((&chunks[3].sources, &chunks[3].destinations), (&vec![20, 24], &vec![28]));
    }

    #[test]
    fn alignment_is_that_of_all_addresses() {
        for (sources, destinations, aligned) in
            [([16, 32], [48], true), ([16, 36], [48], false), ([16, 0], [52], false)]
        {
            let mut table = TaskTable::new(4);
            table.push(3, &sources, &destinations);
            assert_eq!(written(&table)[1] >> 32 == 1, aligned, "{sources:?} {destinations:?}");
        }
    }

    #[test]
    fn different_numbers_of_sources_are_reported() {
        let mut table = TaskTable::new(1);
        assert_eq!(table.n_sources(), None);
        table.push(1, &[1], &[2]);
        table.push(1, &[1, 3], &[2]);
        table.push(1, &[1, 3], &[2]);
        assert_eq!(table.n_sources(), None);
    }
}
