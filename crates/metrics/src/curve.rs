//! One curve of bounded size. Points are sorted by step. A full curve is downsampled: steps are grouped into intervals
//! of equal width, and of each interval only the first, last, lowest and highest point stay. Every dropped point
//! therefore lies between two that stay.

use corro_model::metrics::Point;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    pub step: f64,
    pub time: Option<i64>,
    pub value: f64,
    /// Number of values that `value` is the mean of.
    pub weight: u32,
    /// Sequence number over all curves of the job, in order of arrival.
    pub seq: u64,
}

impl CurvePoint {
    pub fn point(&self) -> Point {
        Point { step: self.step, time: self.time, value: self.value }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Curve {
    points: Vec<CurvePoint>,
    pub unit: Option<&'static str>,
    /// Number of distinct steps added, dropped ones included.
    pub count: u64,
    /// Width of the downsampling intervals; 0 while no point was dropped.
    pub width: f64,
}

impl Curve {
    pub fn points(&self) -> &[CurvePoint] {
        &self.points
    }

    /// Adds a point. A step that exists already is replaced, or with `mean` averaged with the values that other ranks
    /// reported for it.
    pub fn add(&mut self, point: CurvePoint, mean: bool, capacity: usize) {
        let at = self.points.partition_point(|known| known.step < point.step);
        match self.points.get_mut(at).filter(|known| known.step == point.step) {
            Some(known) if mean => {
                let weight = f64::from(known.weight);
                known.value = (known.value * weight + point.value) / (weight + 1.0);
                known.weight = known.weight.saturating_add(1);
                known.seq = point.seq;
            }
            Some(known) => *known = point,
            None => {
                self.count += 1;
                self.points.insert(at, point);
            }
        }
        if self.points.len() > capacity.max(8) {
            self.coarsen(capacity.max(8));
        }
    }

    fn coarsen(&mut self, capacity: usize) {
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else { return };
        // Four points of each interval stay. The width is chosen so that at least half of the capacity is free again.
        let least = (last.step - first.step) / (capacity as f64 / 8.0);
        let mut width = self.width.max(least.log2().ceil().exp2());
        if !width.is_finite() || width <= 0.0 {
            width = 1.0;
        }
        self.width = width;
        self.points = downsample(&self.points, width);
        // Steps that are extremely far apart each fall into an interval of their own. Then the oldest points are
        // dropped.
        if self.points.len() > capacity {
            self.points.drain(1..=self.points.len() - capacity);
        }
    }
}

/// Index of the interval that contains a step.
fn interval(step: f64, width: f64) -> f64 {
    if width > 0.0 { (step / width).floor() } else { step }
}

/// The first, last, lowest and highest point of each interval.
pub fn downsample(points: &[CurvePoint], width: f64) -> Vec<CurvePoint> {
    let mut kept = Vec::with_capacity(points.len() / 2);
    for group in points.chunk_by(|a, b| interval(a.step, width) == interval(b.step, width)) {
        let by_value = |a: &&CurvePoint, b: &&CurvePoint| a.value.total_cmp(&b.value);
        let (low, high) = (group.iter().min_by(by_value), group.iter().max_by(by_value));
        let corners = [group.first(), group.last(), low, high];
        let stays = |point: &&CurvePoint| corners.iter().flatten().any(|corner| corner.step == point.step);
        kept.extend(group.iter().filter(stays).copied());
    }
    kept
}

/// Downsamples to about `capacity` points, keeping ends and extremes.
pub fn downsample_to(points: &[CurvePoint], capacity: usize) -> Vec<CurvePoint> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return Vec::new() };
    if points.len() <= capacity {
        return points.to_vec();
    }
    let groups = (capacity / 4).max(1);
    let width = (last.step - first.step) / groups as f64;
    let mut kept = if width > 0.0 { downsample(points, width) } else { points.to_vec() };
    if kept.len() > capacity.max(4) + 4 {
        // Steps are spaced unevenly, so intervals did not help: take every n-th point.
        let stride = kept.len().div_ceil(capacity.max(1));
        let end = kept.len() - 1;
        kept =
            kept.into_iter().enumerate().filter(|(idx, _)| idx % stride == 0 || *idx == end).map(|(_, p)| p).collect();
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(step: f64, value: f64, seq: u64) -> CurvePoint {
        CurvePoint { step, time: None, value, weight: 1, seq }
    }

    #[test]
    fn a_long_curve_keeps_its_ends_and_its_extremes() {
        let mut curve = Curve::default();
        for step in 0..100_000_u32 {
            let value = if step == 77_777 { 99.0 } else { f64::from(step % 10) };
            curve.add(at(f64::from(step), value, u64::from(step)), false, 256);
        }
        let points = curve.points();
        assert!(points.len() <= 256 && points.len() > 64, "{} points", points.len());
        assert_eq!((points[0].step, points[points.len() - 1].step, curve.count), (0.0, 99_999.0, 100_000));
        assert!(points.iter().any(|point| point.value == 99.0));
        let few = downsample_to(points, 40);
        assert!(few.len() <= 48 && few.iter().any(|point| point.value == 99.0), "{} points", few.len());
    }

    #[test]
    fn a_repeated_step_is_replaced_or_averaged() {
        let mut curve = Curve::default();
        curve.add(at(1.0, 2.0, 1), false, 8);
        curve.add(at(1.0, 4.0, 2), false, 8);
        assert_eq!(curve.points()[0].value, 4.0);
        curve.add(at(1.0, 8.0, 3), true, 8);
        curve.add(at(1.0, 0.0, 4), true, 8);
        assert_eq!((curve.points()[0].value, curve.points()[0].weight, curve.count), (4.0, 3, 1));
    }

    proptest! {
        #[test]
        fn curves_stay_bounded_and_sorted(steps in proptest::collection::vec((any::<f64>(), any::<f64>()), 0..300)) {
            let mut curve = Curve::default();
            for (seq, (step, value)) in steps.into_iter().enumerate() {
                if step.is_finite() {
                    curve.add(at(step, value, seq as u64), false, 16);
                }
                prop_assert!(curve.points().len() <= 16);
                prop_assert!(curve.points().is_sorted_by(|a, b| a.step < b.step));
            }
        }
    }
}
