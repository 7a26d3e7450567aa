//! All curves of one job, with a bound on their number and on the total number of points.

use std::collections::BTreeMap;

use corro_model::metrics::{Axis, Source};

use crate::curve::{Curve, CurvePoint};

/// Maximum number of curves per job. Metrics beyond it are ignored.
const MAX_CURVES: usize = 1024;
/// Approximate maximum number of points over all curves of a job, 48 bytes each.
const MAX_POINTS: usize = 1 << 18;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CurveKey {
    pub name: String,
    pub source: Source,
    pub axis: Axis,
    /// `None` sorts before all ranks.
    pub rank: Option<u32>,
}

#[derive(Clone, Debug, Default)]
pub struct Curves {
    by_key: BTreeMap<CurveKey, Curve>,
    /// Number of points added so far; the sequence number of the last point.
    seq: u64,
}

impl Curves {
    pub fn add(
        &mut self,
        key: CurveKey,
        unit: Option<&'static str>,
        (step, time, value): (f64, Option<i64>, f64),
        mean: bool,
    ) {
        let full = self.by_key.len() >= MAX_CURVES;
        if !step.is_finite() || (full && !self.by_key.contains_key(&key)) {
            return;
        }
        self.seq += 1;
        let capacity = (MAX_POINTS / (self.by_key.len() + 1)).clamp(256, 4096);
        let curve = self.by_key.entry(key).or_default();
        curve.unit = unit.or(curve.unit);
        curve.add(CurvePoint { step, time, value, weight: 1, seq: self.seq }, mean, capacity);
    }

    pub fn seq(&self) -> u64 {
        self.seq
    }

    pub fn iter(&self) -> impl Iterator<Item = (&CurveKey, &Curve)> {
        self.by_key.iter()
    }

    pub fn points(&self, key: &CurveKey) -> impl Iterator<Item = &CurvePoint> {
        self.by_key.get(key).into_iter().flat_map(|curve| curve.points())
    }
}
