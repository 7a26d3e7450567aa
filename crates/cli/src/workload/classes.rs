//! A ten-class set made on the spot: each class has a centre, a sample is its centre plus noise. The same seed gives the
//! same samples everywhere. Hard enough that training shows, easy enough that a linear model learns it.

pub const CLASSES: usize = 10;
pub const FEATURES: usize = 64;

/// Noise relative to the distance of centres; chosen so that a good model reaches about nine in ten.
const NOISE: f32 = 2.6;
const CENTRES_SEED: u64 = 0x5eed;

pub struct Samples {
    /// `FEATURES` values a sample.
    pub features: Vec<f32>,
    pub labels: Vec<usize>,
}

impl Samples {
    pub fn draw(count: usize, seed: u64) -> Self {
        let mut centres = Random::new(CENTRES_SEED);
        let centres: Vec<f32> = (0..CLASSES * FEATURES).map(|_| centres.normal()).collect();
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xda7a);
        let mut features = Vec::with_capacity(count * FEATURES);
        let mut labels = Vec::with_capacity(count);
        for _ in 0..count {
            let label = (random.next() % CLASSES as u64) as usize;
            let centre = &centres[label * FEATURES..][..FEATURES];
            features.extend(centre.iter().map(|c| c + NOISE * random.normal()));
            labels.push(label);
        }
        Self { features, labels }
    }
}

/// SplitMix64: small, seeded, the same on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to, but not including, 1.
    fn uniform(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Mean 0, deviation 1 (Irwin-Hall: twelve uniforms).
    pub fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.uniform()).sum::<f32>() - 6.0
    }
}
