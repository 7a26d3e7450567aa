//! What is told of a job's curves to whoever asks: which of several that have one name, the average of the ranks, how far they
//! are apart, and only what is new.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use corro_model::metrics::{Axis, Series, Source};

use crate::curve::{Curve, Kept, at_most};
use crate::curves::{Curves, Key};

/// What somebody wants to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// All when empty.
    pub names: Vec<String>,
    pub ranks: Ranks,
    /// Of each curve, about.
    pub points: usize,
    /// The last answer's `next`.
    pub after: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ranks {
    All,
    Average,
    Some(Vec<u32>),
}

/// What is told, and the word to go on with.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    pub series: Vec<Series>,
    pub next: String,
    pub whole: bool,
}

/// How much slower the slowest rank is than the fastest.
pub const SKEW: &str = "rank_skew";

impl Curves {
    /// `birth` tells curves that were begun anew from those before.
    pub fn answer(&self, question: &Question, birth: u64) -> Told {
        let chosen = self.chosen();
        // Whoever draws one curve must not get the points of another.
        let mut hasher = DefaultHasher::new();
        (birth, chosen.iter().map(|(key, _)| (&key.name, key.source, key.axis)).collect::<Vec<_>>()).hash(&mut hasher);
        let edition = hasher.finish();
        let after = question.after.as_deref().and_then(|after| {
            let (known, seq) = after.split_once('-')?;
            (u64::from_str_radix(known, 16).ok()? == edition).then(|| seq.parse::<u64>().ok())?
        });
        let mut series = Vec::new();
        for group in chosen.chunk_by(|(a, _), (b, _)| a.name == b.name) {
            if !question.names.is_empty() && !question.names.contains(&group[0].0.name) && group[0].0.name != SKEW {
                let feeds_skew = is_rate(&group[0].0.name) && question.names.iter().any(|name| name == SKEW);
                if !feeds_skew {
                    continue;
                }
            }
            self.tell(group, question, &mut series);
        }
        let fresh = after.unwrap_or(0);
        let finish = |(kept, mut series): (Vec<Kept>, Series)| {
            let fresh: Vec<Kept> = kept.into_iter().filter(|point| point.seq > fresh).collect();
            series.points = at_most(&fresh, question.points).iter().map(Kept::point).collect();
            series
        };
        let series: Vec<Series> = series.into_iter().map(finish).filter(|series| !series.points.is_empty()).collect();
        Told { series, next: format!("{edition:x}-{}", self.seq()), whole: after.is_none() }
    }

    /// One source and one axis for each name: lines written for us first, else whichever has told most.
    fn chosen(&self) -> Vec<(&Key, &Curve)> {
        let mut told: BTreeMap<&str, BTreeMap<(Source, Axis), u64>> = BTreeMap::new();
        for (key, curve) in self.iter() {
            *told.entry(&key.name).or_default().entry((key.source, key.axis)).or_default() += curve.count;
        }
        let best = |counts: &BTreeMap<(Source, Axis), u64>| {
            let by =
                |((source, axis), count): &(&(Source, Axis), &u64)| (*source == Source::Lines, **count, *source, *axis);
            counts.iter().max_by_key(by).map(|(which, _)| *which)
        };
        let best: BTreeMap<&str, Option<(Source, Axis)>> =
            told.iter().map(|(name, counts)| (*name, best(counts))).collect();
        self.iter().filter(|(key, _)| best.get(key.name.as_str()) == Some(&Some((key.source, key.axis)))).collect()
    }

    /// The curves of one name: the average of its ranks, and each of them.
    fn tell(&self, group: &[(&Key, &Curve)], question: &Question, out: &mut Vec<(Vec<Kept>, Series)>) {
        let wanted = |name: &str| question.names.is_empty() || question.names.iter().any(|known| known == name);
        let name = &group[0].0.name;
        let ranks: Vec<(&Key, &Curve)> = group.iter().filter(|(key, _)| key.rank.is_some()).copied().collect();
        let average = !matches!(question.ranks, Ranks::Some(_));
        if ranks.len() > 1 {
            let unknown = group.len() > ranks.len();
            if average && wanted(name) && !unknown {
                let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
                out.push(together(name, ranks[0], &ranks, mean));
            }
            if average && is_rate(name) && wanted(SKEW) {
                let skew = |values: &[f64]| {
                    let most = values.iter().copied().fold(f64::MIN, f64::max);
                    let least = values.iter().copied().fold(f64::MAX, f64::min);
                    (most - least) / most * 100.0
                };
                let (kept, mut series) = together(SKEW, ranks[0], &ranks, skew);
                (series.unit, series.source) = (Some("%".to_owned()), Source::Derived);
                out.push((kept, series));
            }
        }
        for (key, curve) in group {
            let asked = match (&question.ranks, key.rank) {
                (Ranks::All, _) | (Ranks::Average, None) => true,
                (Ranks::Average, Some(_)) => ranks.len() == 1,
                (Ranks::Some(ranks), rank) => rank.is_some_and(|rank| ranks.contains(&rank)),
            };
            if asked && wanted(name) {
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

/// Steps at which a curve of all ranks is made, at most.
const MOST_STEPS: usize = 1024;

/// A curve made of those of all ranks. Ranks need not report the same steps: between two of its points a rank is taken to lie on the line
/// between them. It begins where the last rank begins and ends where the first one ends, so that no rank is made up.
fn together(
    name: &str,
    like: (&Key, &Curve),
    ranks: &[(&Key, &Curve)],
    how: impl Fn(&[f64]) -> f64,
) -> (Vec<Kept>, Series) {
    let curves: Vec<&[Kept]> = ranks.iter().map(|(_, curve)| curve.points()).collect();
    let kept = common_steps(&curves).into_iter().filter_map(|step| {
        let points: Vec<Kept> = curves.iter().map(|points| interpolated(points, step)).collect::<Option<_>>()?;
        let values: Vec<f64> = points.iter().map(|point| point.value).collect();
        let (time, seq) =
            (points.iter().filter_map(|point| point.time).max(), points.iter().map(|point| point.seq).max()?);
        Some(Kept { step, time, value: how(&values), weight: 1, seq })
    });
    let kept: Vec<Kept> = kept.collect();
    let (axis, source, unit) = (like.0.axis, like.0.source, like.1.unit.map(str::to_owned));
    let count = kept.len() as u64;
    (kept, Series { name: name.to_owned(), rank: None, unit, axis, source, points: Vec::new(), count })
}

/// The steps that any of the curves has, where all of them are, ascending.
fn common_steps(curves: &[&[Kept]]) -> Vec<f64> {
    let first = curves.iter().filter_map(|points| points.first()).map(|point| point.step).fold(f64::MIN, f64::max);
    let last = curves.iter().filter_map(|points| points.last()).map(|point| point.step).fold(f64::MAX, f64::min);
    let all = curves.iter().flat_map(|points| points.iter()).map(|point| point.step);
    let mut steps: Vec<f64> = all.filter(|step| (first..=last).contains(step)).collect();
    steps.sort_by(f64::total_cmp);
    steps.dedup();
    if steps.len() > MOST_STEPS {
        let (stride, end) = (steps.len().div_ceil(MOST_STEPS), steps.len() - 1);
        let stays = |(idx, step): (usize, f64)| (idx % stride == 0 || idx == end).then_some(step);
        steps = steps.into_iter().enumerate().filter_map(stays).collect();
    }
    steps
}

/// Where a curve is at a step within it.
fn interpolated(points: &[Kept], step: f64) -> Option<Kept> {
    let after = points.partition_point(|point| point.step < step);
    let right = points.get(after)?;
    if right.step == step {
        return Some(*right);
    }
    let left = points.get(after.checked_sub(1)?)?;
    let share = (step - left.step) / (right.step - left.step);
    let value = left.value + (right.value - left.value) * share;
    Some(Kept { step, time: left.time, value, weight: 1, seq: left.seq.max(right.seq) })
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
