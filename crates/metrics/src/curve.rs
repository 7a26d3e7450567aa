//! One curve of bounded size. Its points lie in the order of their steps. When there are too many, steps are put into intervals of equal
//! width, and of each only the first, the last, the lowest and the highest stay: whatever is left out lies between others.

use corro_model::metrics::Point;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    pub step: f64,
    pub time: Option<i64>,
    pub value: f64,
    /// How many values it is the mean of.
    pub weight: u32,
    /// When it came, counted over all curves.
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
    /// How many there were in all.
    pub count: u64,
    /// Of the intervals; 0 while nothing is left out.
    pub width: f64,
}

impl Curve {
    pub fn points(&self) -> &[CurvePoint] {
        &self.points
    }

    /// A step that was told before is told anew; `mean` says that others tell the same step, and all of them count.
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
        // Four of each interval stay, and half of the room is to be free again.
        let least = (last.step - first.step) / (capacity as f64 / 8.0);
        let mut width = self.width.max(least.log2().ceil().exp2());
        if !width.is_finite() || width <= 0.0 {
            width = 1.0;
        }
        self.width = width;
        self.points = downsample(&self.points, width);
        // Steps beyond all measure fall into intervals of their own: then the oldest go.
        if self.points.len() > capacity {
            self.points.drain(1..=self.points.len() - capacity);
        }
    }
}

/// Which interval a step lies in.
fn interval(step: f64, width: f64) -> f64 {
    if width > 0.0 { (step / width).floor() } else { step }
}

/// The first, the last, the lowest and the highest of each interval.
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

/// No more than about so many points, with the same care.
pub fn downsample_to(points: &[CurvePoint], capacity: usize) -> Vec<CurvePoint> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return Vec::new() };
    if points.len() <= capacity {
        return points.to_vec();
    }
    let groups = (capacity / 4).max(1);
    let width = (last.step - first.step) / groups as f64;
    let mut kept = if width > 0.0 { downsample(points, width) } else { points.to_vec() };
    if kept.len() > capacity.max(4) + 4 {
        // Steps that lie unevenly: by their number instead.
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
