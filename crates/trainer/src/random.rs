//! All chance of a training: numbers that follow from a key alone, the same on every machine, for every number of threads. Nothing here
//! is secret or unpredictable.

/// SplitMix64 from a key.
#[derive(Clone, Debug)]
pub struct Random(u64);

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// Keys that differ in any word give streams that have nothing in common.
    pub fn from_key(key: &[u64]) -> Random {
        Random(hash_key(key))
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_GAMMA);
        mix(self.0)
    }

    /// From 0 up to, but not including, 1.
    pub fn uniform(&mut self) -> f32 {
        (self.draw() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// From 0 up to, but not including, `n`.
    pub fn below(&mut self, n: usize) -> usize {
        // The high half of a product of 128 bits: no bias worth a thought for the sizes of data sets.
        ((u128::from(self.draw()) * n as u128) >> 64) as usize
    }

    /// Mean 0, deviation 1 (Irwin-Hall: twelve uniforms).
    pub fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.uniform()).sum::<f32>() - 6.0
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// One word of a key.
pub fn hash_key(key: &[u64]) -> u64 {
    key.iter().fold(0x5eed, |hash, word| mix(hash ^ mix(word.wrapping_add(GOLDEN_GAMMA))))
}

/// The word of that number in the stream of a key, without those before it.
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
    fn words_are_the_stream() {
        let mut stream = Random::from_key(&[1, 2]);
        for index in 0..10 {
            assert_eq!(word_at(hash_key(&[1, 2]), index), stream.draw());
        }
    }

    #[test]
    fn keys_matter_in_every_word_and_in_their_order() {
        let first = |key: &[u64]| Random::from_key(key).draw();
        let all = [first(&[]), first(&[0]), first(&[1]), first(&[0, 1]), first(&[1, 0]), first(&[0, 0])];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one));
        }
    }

    #[test]
    fn a_shuffle_keeps_everything() {
        let mut items: Vec<u32> = (0..100).collect();
        Random::from_key(&[7]).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
