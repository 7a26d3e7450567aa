//! Partition of buffers among ranks, and of tensors into fused runs. Pure.

use std::ops::Range;

/// Divides `n_bytes` into `n` parts of whole elements, as even as cache lines allow, so that no two ranks write the same line.
pub fn split_even(n_bytes: usize, n: usize, element: usize) -> impl Fn(usize) -> Range<usize> + Copy {
    const CACHE_LINE_BYTES: usize = 64;
    // A line holds a whole number of elements of every dtype.
    debug_assert!(CACHE_LINE_BYTES.is_multiple_of(element) && n_bytes.is_multiple_of(element));
    let n_lines = n_bytes.div_ceil(CACHE_LINE_BYTES);
    let start = move |part: usize| (n_lines * part / n * CACHE_LINE_BYTES).min(n_bytes);
    move |part| start(part)..start(part + 1)
}

/// The rows of `rank` in Horovod's reducescatter: the first ranks get one more if the rows do not divide evenly.
pub fn split_rows(n_rows: usize, n: usize, rank: usize) -> Range<usize> {
    let (each, more) = (n_rows / n, n_rows % n);
    let start = each * rank + rank.min(more);
    start..start + each + usize::from(rank < more)
}

/// The `k`th chunk of a part; shorter or empty at its end.
pub fn chunk_range(part: &Range<usize>, chunk_bytes: usize, k: usize) -> Range<usize> {
    let start = (part.start + k * chunk_bytes).min(part.end);
    start..(start + chunk_bytes).min(part.end)
}

/// Maximum bytes of a fused run. Runs of this size stay in the cache.
const MAX_RUN_BYTES: usize = 2 << 20;
/// Tensors of this size are reduced in place: fusion would only copy them.
const UNFUSED_BYTES: usize = 512 << 10;

/// Number of tensors, from the first, that are fused into one operation; at least one. `sizes` are in bytes and equal on every rank.
pub fn fused_run_len(sizes: impl IntoIterator<Item = usize>) -> usize {
    let mut total = 0;
    let mut n = 0;
    for size in sizes {
        if n > 0 && (size >= UNFUSED_BYTES || total + size > MAX_RUN_BYTES) {
            break;
        }
        n += 1;
        total += size;
        if size >= UNFUSED_BYTES {
            break;
        }
    }
    n.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_contiguous_and_cover_everything() {
        for n in [1, 2, 3, 7, 64] {
            for n_bytes in [0, 4, 60, 64, 68, 1000, 4096, 1_000_000] {
                let part = split_even(n_bytes, n, 4);
                assert_eq!((part(0).start, part(n - 1).end), (0, n_bytes));
                for k in 1..n {
                    assert_eq!(part(k - 1).end, part(k).start);
                }
                let longest = (0..n).map(|k| part(k).len()).max().unwrap_or(0);
                assert!(longest <= n_bytes / n + 128, "{n_bytes} over {n}: {longest}");
            }
        }
    }

    #[test]
    fn the_first_ranks_get_one_row_more() {
        let lengths = |n_rows, n| (0..n).map(|rank| split_rows(n_rows, n, rank).len()).collect::<Vec<_>>();
        assert_eq!(lengths(7, 3), [3, 2, 2]);
        assert_eq!(lengths(1, 2), [1, 0]);
        assert_eq!(lengths(0, 2), [0, 0]);
        assert_eq!((split_rows(7, 3, 0).end, split_rows(7, 3, 1).end, split_rows(7, 3, 2).end), (3, 5, 7));
    }

    #[test]
    fn small_tensors_are_fused_and_large_ones_are_not() {
        assert_eq!(fused_run_len([4, 4, UNFUSED_BYTES, 4]), 2);
        assert_eq!(fused_run_len([UNFUSED_BYTES, 4]), 1);
        assert_eq!(fused_run_len([MAX_RUN_BYTES / 5; 9]), 5);
        assert_eq!(fused_run_len([0, 0]), 2);
        assert_eq!(fused_run_len([]), 1);
    }

    #[test]
    fn chunks_end_with_their_part() {
        assert_eq!(
            [chunk_range(&(10..25), 10, 0), chunk_range(&(10..25), 10, 1), chunk_range(&(10..25), 10, 2)],
            [10..20, 20..25, 25..25]
        );
    }
}
