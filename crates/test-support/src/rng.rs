//! SplitMix64: a pseudorandom generator whose numbers depend on the seed only. For tests; not for secrets.

pub struct SplitMix64(u64);

impl SplitMix64 {
    pub fn new(seed: u64) -> SplitMix64 {
        // Neighbouring seeds must not give sequences that are shifted copies of each other.
        SplitMix64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// At least `low` and below `high`; `low` where the range is empty.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next_u64() % high.saturating_sub(low).max(1)
    }

    /// Below `bound`, which is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    /// An index of a slice of `len` elements, which is at least 1.
    pub fn index(&mut self, len: usize) -> usize {
        (self.next_u64() % len as u64) as usize
    }

    /// True with a probability of 1 in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.next_u64().is_multiple_of(n)
    }

    pub fn pick<T>(&mut self, from: impl IntoIterator<Item = T>) -> Option<T> {
        let mut from: Vec<T> = from.into_iter().collect();
        if from.is_empty() { None } else { Some(from.swap_remove(self.index(from.len()))) }
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_numbers_and_another_gives_others() {
        let numbers = |seed| {
            let mut rng = SplitMix64::new(seed);
            [rng.next_u64(), rng.next_u64(), rng.between(10, 20), rng.below(3)]
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        // From the published reference implementation with state 0.
        assert_eq!(SplitMix64::new(0).next_u64(), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn numbers_stay_within_their_range() {
        let mut rng = SplitMix64::new(1);
        for _ in 0..1_000 {
            assert!((5..9).contains(&rng.between(5, 9)));
            assert!(rng.below(4) < 4 && rng.index(2) < 2);
        }
        assert_eq!(rng.between(3, 3), 3);
        assert_eq!(rng.pick([0u8; 0]), None);
    }
}
