//! Hash map for ids that the coordinator assigns itself. Peers cannot choose these ids to cause collisions, so a multiplicative hash is
//! enough, and it is cheaper than SipHash: every tensor of every step needs several lookups.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Hash map keyed by integer ids.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Multiplicative (Fibonacci) hasher for integers.
#[derive(Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        // The map uses the highest and the lowest bits of the hash. The rotation moves well-mixed bits of the product to both ends.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}
