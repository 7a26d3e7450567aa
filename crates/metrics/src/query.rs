//! Queries over the curves of a job: chooses one source per metric, averages ranks, computes rank skew, and returns
//! only points that are new since an earlier query.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use corro_model::metrics::{Axis, Series, Source};

use crate::curve::{Curve, CurvePoint, downsample_to};
use crate::curves::{CurveKey, Curves};

/// Selection of curves and points.
#[derive(Clone, Debug, PartialEq)]
pub struct CurveQuery {
    /// Metric names; all when empty.
    pub names: Vec<String>,
    pub ranks: RankSelection,
    /// Approximate maximum number of points per curve.
    pub points: usize,
    /// `next` of an earlier result; only newer points are returned.
    pub after: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RankSelection {
    All,
    Average,
    Some(Vec<u32>),
}

/// Curves of a query, with the cursor for the next one.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryResult {
    pub series: Vec<Series>,
    pub next: String,
    pub whole: bool,
}

/// Name of a derived metric: the difference between the fastest and the slowest rank, in percent of the fastest.
pub const RANK_SKEW: &str = "rank_skew";

impl Curves {
    /// Runs a query. `generation` changes when the curves were rebuilt from the start, which invalidates old cursors.
    pub fn query(&self, query: &CurveQuery, generation: u64) -> QueryResult {
        let preferred_curves = self.preferred_curves();
        // The cursor contains a hash of the chosen curves: after a change of source a client must not append new points
        // to an old curve.
        let mut hasher = DefaultHasher::new();
        (generation, preferred_curves.iter().map(|(key, _)| (&key.name, key.source, key.axis)).collect::<Vec<_>>())
            .hash(&mut hasher);
        let curve_set_hash = hasher.finish();
        let after = query.after.as_deref().and_then(|after| {
            let (known, seq) = after.split_once('-')?;
            (u64::from_str_radix(known, 16).ok()? == curve_set_hash).then(|| seq.parse::<u64>().ok())?
        });
        let mut series = Vec::new();
        for group in preferred_curves.chunk_by(|(a, _), (b, _)| a.name == b.name) {
            if !query.names.is_empty() && !query.names.contains(&group[0].0.name) && group[0].0.name != RANK_SKEW {
                let feeds_skew = is_rate(&group[0].0.name) && query.names.iter().any(|name| name == RANK_SKEW);
                if !feeds_skew {
                    continue;
                }
            }
            self.push_series(group, query, &mut series);
        }
        let fresh = after.unwrap_or(0);
        let finish = |(kept, mut series): (Vec<CurvePoint>, Series)| {
            let fresh: Vec<CurvePoint> = kept.into_iter().filter(|point| point.seq > fresh).collect();
            series.points = downsample_to(&fresh, query.points).iter().map(CurvePoint::point).collect();
            series
        };
        let series: Vec<Series> = series.into_iter().map(finish).filter(|series| !series.points.is_empty()).collect();
        QueryResult { series, next: format!("{curve_set_hash:x}-{}", self.seq()), whole: after.is_none() }
    }

    /// One source and one axis per metric name: explicit `{"corro": …}` lines first, otherwise the source with the most
    /// points.
    fn preferred_curves(&self) -> Vec<(&CurveKey, &Curve)> {
        let mut counts_by_name: BTreeMap<&str, BTreeMap<(Source, Axis), u64>> = BTreeMap::new();
        for (key, curve) in self.iter() {
            *counts_by_name.entry(&key.name).or_default().entry((key.source, key.axis)).or_default() += curve.count;
        }
        let best = |counts: &BTreeMap<(Source, Axis), u64>| {
            let by =
                |((source, axis), count): &(&(Source, Axis), &u64)| (*source == Source::Lines, **count, *source, *axis);
            counts.iter().max_by_key(by).map(|(which, _)| *which)
        };
        let best: BTreeMap<&str, Option<(Source, Axis)>> =
            counts_by_name.iter().map(|(name, counts)| (*name, best(counts))).collect();
        self.iter().filter(|(key, _)| best.get(key.name.as_str()) == Some(&Some((key.source, key.axis)))).collect()
    }

    /// Appends the curves of one metric name: the average over ranks, the rank skew and the individual ranks.
    fn push_series(&self, group: &[(&CurveKey, &Curve)], query: &CurveQuery, out: &mut Vec<(Vec<CurvePoint>, Series)>) {
        let wanted = |name: &str| query.names.is_empty() || query.names.iter().any(|known| known == name);
        let name = &group[0].0.name;
        let ranks: Vec<(&CurveKey, &Curve)> = group.iter().filter(|(key, _)| key.rank.is_some()).copied().collect();
        let average = !matches!(query.ranks, RankSelection::Some(_));
        if ranks.len() > 1 {
            let unknown = group.len() > ranks.len();
            if average && wanted(name) && !unknown {
                let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
                out.push(combine_ranks(name, ranks[0], &ranks, mean));
            }
            if average && is_rate(name) && wanted(RANK_SKEW) {
                let skew = |values: &[f64]| {
                    let most = values.iter().copied().fold(f64::MIN, f64::max);
                    let least = values.iter().copied().fold(f64::MAX, f64::min);
                    (most - least) / most * 100.0
                };
                let (kept, mut series) = combine_ranks(RANK_SKEW, ranks[0], &ranks, skew);
                (series.unit, series.source) = (Some("%".to_owned()), Source::Derived);
                out.push((kept, series));
            }
        }
        for (key, curve) in group {
            let selected = match (&query.ranks, key.rank) {
                (RankSelection::All, _) | (RankSelection::Average, None) => true,
                (RankSelection::Average, Some(_)) => ranks.len() == 1,
                (RankSelection::Some(ranks), rank) => rank.is_some_and(|rank| ranks.contains(&rank)),
            };
            if selected && wanted(name) {
                let unit = curve.unit.map(str::to_owned);
                let (rank, axis, source, count) = (key.rank, key.axis, key.source, curve.count);
                let series = Series { name: name.clone(), rank, unit, axis, source, points: Vec::new(), count };
                out.push((curve.points().to_vec(), series));
            }
        }
    }
}

fn is_rate(name: &str) -> bool {
    name.ends_with("_per_second") && !name.starts_with("eval")
}

/// Maximum number of steps of a curve that combines ranks.
const MAX_COMBINED_STEPS: usize = 1024;

/// Combines the curves of all ranks into one. Ranks need not report the same steps: values in between are interpolated
/// linearly. The combined curve covers only the range that every rank has reported, so nothing is extrapolated.
fn combine_ranks(
    name: &str,
    like: (&CurveKey, &Curve),
    ranks: &[(&CurveKey, &Curve)],
    how: impl Fn(&[f64]) -> f64,
) -> (Vec<CurvePoint>, Series) {
    let curves: Vec<&[CurvePoint]> = ranks.iter().map(|(_, curve)| curve.points()).collect();
    let kept = common_steps(&curves).into_iter().filter_map(|step| {
        let points: Vec<CurvePoint> = curves.iter().map(|points| interpolate(points, step)).collect::<Option<_>>()?;
        let values: Vec<f64> = points.iter().map(|point| point.value).collect();
        let (time, seq) =
            (points.iter().filter_map(|point| point.time).max(), points.iter().map(|point| point.seq).max()?);
        Some(CurvePoint { step, time, value: how(&values), weight: 1, seq })
    });
    let kept: Vec<CurvePoint> = kept.collect();
    let (axis, source, unit) = (like.0.axis, like.0.source, like.1.unit.map(str::to_owned));
    let count = kept.len() as u64;
    (kept, Series { name: name.to_owned(), rank: None, unit, axis, source, points: Vec::new(), count })
}

/// The steps of all curves within the range that they have in common, ascending.
fn common_steps(curves: &[&[CurvePoint]]) -> Vec<f64> {
    let first = curves.iter().filter_map(|points| points.first()).map(|point| point.step).fold(f64::MIN, f64::max);
    let last = curves.iter().filter_map(|points| points.last()).map(|point| point.step).fold(f64::MAX, f64::min);
    let all = curves.iter().flat_map(|points| points.iter()).map(|point| point.step);
    let mut steps: Vec<f64> = all.filter(|step| (first..=last).contains(step)).collect();
    steps.sort_by(f64::total_cmp);
    steps.dedup();
    if steps.len() > MAX_COMBINED_STEPS {
        let (stride, end) = (steps.len().div_ceil(MAX_COMBINED_STEPS), steps.len() - 1);
        let stays = |(idx, step): (usize, f64)| (idx % stride == 0 || idx == end).then_some(step);
        steps = steps.into_iter().enumerate().filter_map(stays).collect();
    }
    steps
}

/// The curve's value at `step`, interpolated linearly; `None` outside of the curve.
fn interpolate(points: &[CurvePoint], step: f64) -> Option<CurvePoint> {
    let after = points.partition_point(|point| point.step < step);
    let right = points.get(after)?;
    if right.step == step {
        return Some(*right);
    }
    let left = points.get(after.checked_sub(1)?)?;
    let share = (step - left.step) / (right.step - left.step);
    let value = left.value + (right.value - left.value) * share;
    Some(CurvePoint { step, time: left.time, value, weight: 1, seq: left.seq.max(right.seq) })
}

#[cfg(test)]
#[path = "query_tests.rs"]
mod tests;
