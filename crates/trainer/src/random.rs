//! All random numbers of a training. They depend on a key alone and are the same on every machine and for every number
//! of threads. Not cryptographic.

/// SplitMix64 generator seeded with a key.
#[derive(Clone, Debug)]
pub struct Random(u64);

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// Keys that differ in any word give independent streams.
    pub fn from_key(key: &[u64]) -> Random {
        Random(hash_key(key))
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_GAMMA);
        mix(self.0)
    }

    /// Uniform in [0, 1).
    pub fn uniform(&mut self) -> f32 {
        (self.draw() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Uniform in 0..n.
    pub fn below(&mut self, n: usize) -> usize {
        // Upper half of a 128-bit product; the bias is negligible for the sizes of data sets.
        ((u128::from(self.draw()) * n as u128) >> 64) as usize
    }

    /// Approximately normal with mean 0 and deviation 1 (Irwin-Hall: the sum of twelve uniforms).
    pub fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.uniform()).sum::<f32>() - 6.0
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// Hashes a key to one word.
pub fn hash_key(key: &[u64]) -> u64 {
    key.iter().fold(0x5eed, |hash, word| mix(hash ^ mix(word.wrapping_add(GOLDEN_GAMMA))))
}

/// Word `index` of a key's stream, by random access.
#[inline]
pub fn word_at(key: u64, index: u64) -> u64 {
    mix(key.wrapping_add(GOLDEN_GAMMA.wrapping_mul(index + 1)))
}

#[inline]
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_at_matches_the_stream() {
        let mut stream = Random::from_key(&[1, 2]);
        for index in 0..10 {
            assert_eq!(word_at(hash_key(&[1, 2]), index), stream.draw());
        }
    }

    #[test]
    fn every_key_word_and_their_order_matter() {
        let first = |key: &[u64]| Random::from_key(key).draw();
        let all = [first(&[]), first(&[0]), first(&[1]), first(&[0, 1]), first(&[1, 0]), first(&[0, 0])];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one));
        }
    }

    #[test]
    fn a_shuffle_is_a_permutation() {
        let mut items: Vec<u32> = (0..100).collect();
        Random::from_key(&[7]).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
