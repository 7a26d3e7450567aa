//! Block-wise difference between a file and its version in a snapshot. Reads only ranges in which one of the two has
//! data.

use std::{fs::File, os::unix::fs::FileExt};

use crate::{Share, ShareError, SharePath, Stat};

/// Granularity of differences.
const BLOCK_BYTES: u64 = 4 << 10;
/// Bytes compared per step.
const COMPARE_BYTES: usize = 1 << 20;

/// Ranges as first and last byte.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SnapshotDiff {
    /// Changed data.
    pub written: Vec<(u64, u64)>,
    /// Data that became a hole.
    pub cleared: Vec<(u64, u64)>,
}

impl Share {
    /// Difference of `path` from its version in `earlier`. If it did not exist there, all of it is changed data.
    pub fn diff_since(&self, path: &SharePath, earlier: &Share) -> Result<(SnapshotDiff, Stat), ShareError> {
        let (now, stat) = self.data_ranges(path)?;
        let before = match earlier.data_ranges(path) {
            Ok((before, _)) => before,
            Err(ShareError::NotFound(_) | ShareError::WrongKind(_)) => {
                return Ok((SnapshotDiff { written: now, cleared: Vec::new() }, stat));
            }
            Err(error) => return Err(error),
        };
        let (file, _) = self.open_content(path)?;
        let (old, _) = earlier.open_content(path)?;
        let failed = |source| ShareError::Io { attempt: "compare", path: path.clone(), source };
        let mut difference = SnapshotDiff::default();
        for (first, last) in merged(&now, &before) {
            let mut start = first;
            while start <= last && start < stat.len {
                let end = (start + COMPARE_BYTES as u64).min(last + 1).min(stat.len);
                compare(&file, &old, (start, end), &now, &mut difference).map_err(failed)?;
                start = end;
            }
        }
        Ok((difference, stat))
    }
}

fn compare(
    file: &File,
    old: &File,
    (start, end): (u64, u64),
    data: &[(u64, u64)],
    difference: &mut SnapshotDiff,
) -> std::io::Result<()> {
    let (mut ours, mut theirs) = (vec![0; (end - start) as usize], vec![0; (end - start) as usize]);
    fill(file, &mut ours, start)?;
    fill(old, &mut theirs, start)?;
    let mut block = start;
    while block < end {
        let next = (block + BLOCK_BYTES).min(end);
        let at = (block - start) as usize..(next - start) as usize;
        if ours[at.clone()] != theirs[at] {
            let is_data = data.iter().any(|(first, last)| *first < next && *last >= block);
            let list = if is_data { &mut difference.written } else { &mut difference.cleared };
            push_range(list, block, next - 1);
        }
        block = next;
    }
    Ok(())
}

/// Bytes beyond the end read as zero.
fn fill(file: &File, buffer: &mut [u8], start: u64) -> std::io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], start + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn push_range(list: &mut Vec<(u64, u64)>, first: u64, last: u64) {
    match list.last_mut() {
        Some((_, end)) if *end + 1 == first => *end = last,
        _ => list.push((first, last)),
    }
}

/// Union of two sorted lists, in whole blocks, sorted and without overlaps.
fn merged(a: &[(u64, u64)], b: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut all: Vec<_> =
        a.iter().chain(b).map(|(first, last)| (first / BLOCK_BYTES * BLOCK_BYTES, last | (BLOCK_BYTES - 1))).collect();
    all.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (first, last) in all {
        match merged.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = (*end).max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_merged_in_whole_blocks() {
        let check = |a: &[(u64, u64)], b: &[(u64, u64)], expected: &[(u64, u64)]| assert_eq!(merged(a, b), expected);
        check(&[], &[], &[]);
        check(&[(0, 10)], &[(5, 4095)], &[(0, 4095)]);
        check(&[(0, 10), (8192, 8192)], &[(4096, 4096)], &[(0, 12287)]);
        check(&[(20_000, 20_001)], &[(0, 0)], &[(0, 4095), (16_384, 20_479)]);
    }
}
