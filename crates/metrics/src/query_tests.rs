//! Queries over parsed logs: averages, skew, choice of source, incremental results.

use super::*;
use crate::MetricStream;

fn all() -> CurveQuery {
    CurveQuery { names: Vec::new(), ranks: RankSelection::All, points: 1000, after: None }
}

/// Renders each series as `name rank: step=value …`.
fn render(result: &QueryResult) -> Vec<String> {
    let one = |series: &Series| {
        let rank = series.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string());
        let points: Vec<String> = series.points.iter().map(|p| format!("{}={}", p.step, p.value)).collect();
        format!("{} {rank}: {}", series.name, points.join(" "))
    };
    result.series.iter().map(one).collect()
}

#[test]
fn ranks_are_averaged_over_their_common_steps() {
    let mut curves = Curves::default();
    MetricStream::log(Some(0), false).push(b"step=1 loss=1\nstep=2 loss=3\nstep=3 loss=9\n", None, &mut curves);
    MetricStream::log(Some(1), false).push(b"step=1 loss=3\nstep=2 loss=5\n", None, &mut curves);
    let answer = curves.query(&all(), 1);
    assert_eq!(render(&answer), ["loss -: 1=2 2=4", "loss 0: 1=1 2=3 3=9", "loss 1: 1=3 2=5"]);
    let average = curves.query(&CurveQuery { ranks: RankSelection::Average, ..all() }, 1);
    assert_eq!(render(&average), ["loss -: 1=2 2=4"]);
    let one = curves.query(&CurveQuery { ranks: RankSelection::Some(vec![1]), ..all() }, 1);
    assert_eq!(render(&one), ["loss 1: 1=3 2=5"]);
}

/// Each rank reports every third step and no two the same: the average interpolates between them.
#[test]
fn averages_interpolate_ranks_with_different_steps() {
    let mut curves = Curves::default();
    for rank in 0..3 {
        let lines: String = (0..40).map(|n| 3 * n + rank).map(|step| format!("step={step} loss={step}\n")).collect();
        MetricStream::log(Some(rank), false).push(lines.as_bytes(), None, &mut curves);
    }
    let average = curves.query(&CurveQuery { ranks: RankSelection::Average, ..all() }, 1);
    let points = &average.series[0].points;
    // From the step at which the last rank starts to the one at which the first ends.
    assert_eq!((points[0].step, points[points.len() - 1].step, points.len()), (2.0, 117.0, 116));
    assert!(points.iter().all(|point| (point.value - point.step).abs() < 1e-9), "{points:?}");
    // Rank 0 reports another step: only the steps that all ranks now cover are new.
    MetricStream::log(Some(0), false).push(b"step=120 loss=120\n", None, &mut curves);
    let more = curves.query(&CurveQuery { ranks: RankSelection::Average, after: Some(average.next), ..all() }, 1);
    assert_eq!(render(&more), ["loss -: 118=118"]);
}

#[test]
fn skew_interpolates_ranks_with_different_steps() {
    let mut curves = Curves::default();
    for (rank, steps, rate) in [(0, [2, 6], "10.0"), (1, [3, 7], "8.0")] {
        let lines: String = steps.iter().map(|step| format!(" 50%|#| {step}/9 [0<0, {rate}it/s]\n")).collect();
        MetricStream::log(Some(rank), false).push(lines.as_bytes(), None, &mut curves);
    }
    let answer = curves.query(&CurveQuery { names: vec![RANK_SKEW.into()], ..all() }, 1);
    assert_eq!(render(&answer), ["rank_skew -: 3=20 6=20"]);
}

#[test]
fn the_average_of_many_points_is_bounded() {
    let mut curves = Curves::default();
    for rank in 0..8 {
        let lines: String = (0..400).map(|n| 8 * n + rank).map(|step| format!("step={step} loss=1\n")).collect();
        MetricStream::log(Some(rank), false).push(lines.as_bytes(), None, &mut curves);
    }
    let average = curves.query(&CurveQuery { ranks: RankSelection::Average, points: 5000, ..all() }, 1);
    assert!(
        (500..=MAX_COMBINED_STEPS + 1).contains(&average.series[0].points.len()),
        "{}",
        average.series[0].points.len()
    );
}

#[test]
fn skew_compares_the_slowest_rank_with_the_fastest() {
    let mut curves = Curves::default();
    for (rank, rate) in [(0, "10.0"), (1, "8.0")] {
        let line = format!(" 50%|#| 2/4 [0<0, {rate}it/s]\n");
        MetricStream::log(Some(rank), false).push(line.as_bytes(), None, &mut curves);
    }
    let answer = curves.query(&CurveQuery { names: vec![RANK_SKEW.into()], ..all() }, 1);
    assert_eq!(render(&answer), ["rank_skew -: 2=20"]);
    assert_eq!(answer.series[0].unit.as_deref(), Some("%"));
}

#[test]
fn unlabelled_ranks_are_averaged_per_step() {
    let mut curves = Curves::default();
    MetricStream::log(None, true).push(b"step=1 loss=1\nstep=1 loss=3\nstep=2 loss=5\n", None, &mut curves);
    assert_eq!(render(&curves.query(&all(), 1)), ["loss -: 1=2 2=5"]);
}

#[test]
fn later_queries_return_only_new_points() {
    let mut curves = Curves::default();
    let mut stream = MetricStream::log(Some(0), false);
    stream.push(b"step=1 loss=1\n", None, &mut curves);
    let first = curves.query(&all(), 1);
    assert!(first.whole);
    let again = |curves: &Curves, generation| {
        curves.query(&CurveQuery { after: Some(first.next.clone()), ..all() }, generation)
    };
    assert_eq!((again(&curves, 1).series.len(), again(&curves, 1).whole), (0, false));
    stream.push(b"step=2 loss=0\n", None, &mut curves);
    assert_eq!(render(&again(&curves, 1)), ["loss 0: 2=0"]);
    // A new generation or an invalid cursor returns all points.
    assert!(again(&curves, 2).whole);
    assert!(curves.query(&CurveQuery { after: Some("no".into()), ..all() }, 1).whole);
    // Another source replaces the curve: the query returns all points again.
    stream.push(b"{\"corro\": {\"step\": 1, \"loss\": 7}}\n", None, &mut curves);
    let exact = again(&curves, 1);
    assert_eq!((render(&exact), exact.whole), (vec!["loss 0: 1=7".to_owned()], true));
}
