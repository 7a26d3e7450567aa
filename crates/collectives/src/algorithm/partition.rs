//! Who owns which part of a buffer. Pure arithmetic.

use std::ops::Range;

/// Divides `n_bytes` of whole elements into `n` parts, as even as cache lines allow, so that no two ranks write one line.
pub fn split_even(n_bytes: usize, n: usize, element: usize) -> impl Fn(usize) -> Range<usize> + Copy {
    const LINE: usize = 64;
    // A line holds a whole number of elements of any size we know.
    debug_assert!(LINE.is_multiple_of(element) && n_bytes.is_multiple_of(element));
    let n_lines = n_bytes.div_ceil(LINE);
    let start = move |part: usize| (n_lines * part / n * LINE).min(n_bytes);
    move |part| start(part)..start(part + 1)
}

/// Rows of a first dimension, as Horovod's reducescatter divides them: the first ranks get one more.
pub fn split_rows(n_rows: usize, n: usize, rank: usize) -> Range<usize> {
    let (each, more) = (n_rows / n, n_rows % n);
    let start = each * rank + rank.min(more);
    start..start + each + usize::from(rank < more)
}

/// The `k`th piece of a part.
pub fn chunk_range(part: &Range<usize>, piece_bytes: usize, k: usize) -> Range<usize> {
    let start = (part.start + k * piece_bytes).min(part.end);
    start..(start + piece_bytes).min(part.end)
}

/// Tensors are brought together in runs of at most this size, which stay in the cache.
const RUN_BYTES: usize = 2 << 20;
/// A tensor of this size gains nothing from company: it is reduced where it is.
const LARGE_BYTES: usize = 512 << 10;

/// How many of the next tensors (by their bytes, at least one) are reduced as one. The same on every rank.
pub fn fused_run_len(sizes: impl IntoIterator<Item = usize>) -> usize {
    let mut total = 0;
    let mut n = 0;
    for size in sizes {
        if n > 0 && (size >= LARGE_BYTES || total + size > RUN_BYTES) {
            break;
        }
        n += 1;
        total += size;
        if size >= LARGE_BYTES {
            break;
        }
    }
    n.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_and_cover_everything() {
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
    fn small_tensors_go_together_and_large_ones_alone() {
        assert_eq!(fused_run_len([4, 4, LARGE_BYTES, 4]), 2);
        assert_eq!(fused_run_len([LARGE_BYTES, 4]), 1);
        assert_eq!(fused_run_len([RUN_BYTES / 5; 9]), 5);
        assert_eq!(fused_run_len([0, 0]), 2);
        assert_eq!(fused_run_len([]), 1);
    }

    #[test]
    fn pieces_end_with_their_part() {
        assert_eq!(
            [chunk_range(&(10..25), 10, 0), chunk_range(&(10..25), 10, 1), chunk_range(&(10..25), 10, 2)],
            [10..20, 20..25, 25..25]
        );
    }
}
