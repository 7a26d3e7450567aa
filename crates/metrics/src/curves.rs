//! All curves of one job, of bounded size together.

use std::collections::BTreeMap;

use corro_model::metrics::{Axis, Source};

use crate::curve::{Curve, Kept};

/// Of one job. A name more than that is not kept.
const MOST_CURVES: usize = 1024;
/// Of all curves together, about; 48 bytes each.
const MOST_POINTS: usize = 1 << 18;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub name: String,
    pub source: Source,
    pub axis: Axis,
    /// `None` comes before all numbers.
    pub rank: Option<u32>,
}

#[derive(Clone, Debug, Default)]
pub struct Curves {
    by_key: BTreeMap<Key, Curve>,
    /// How many points were added so far.
    seq: u64,
}

impl Curves {
    pub fn add(
        &mut self,
        key: Key,
        unit: Option<&'static str>,
        (step, time, value): (f64, Option<i64>, f64),
        mean: bool,
    ) {
        let full = self.by_key.len() >= MOST_CURVES;
        if !step.is_finite() || (full && !self.by_key.contains_key(&key)) {
            return;
        }
        self.seq += 1;
        let most = (MOST_POINTS / (self.by_key.len() + 1)).clamp(256, 4096);
        let curve = self.by_key.entry(key).or_default();
        curve.unit = unit.or(curve.unit);
        curve.add(Kept { step, time, value, weight: 1, seq: self.seq }, mean, most);
    }

    pub fn seq(&self) -> u64 {
        self.seq
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Curve)> {
        self.by_key.iter()
    }

    pub fn points(&self, key: &Key) -> impl Iterator<Item = &Kept> {
        self.by_key.get(key).into_iter().flat_map(|curve| curve.points())
    }
}
