//! What is told of logs: averages, skew, one of several sources, only what is new.

use super::*;
use crate::Stream;

fn all() -> Question {
    Question { names: Vec::new(), ranks: Ranks::All, points: 1000, after: None }
}

/// Each as `name rank: step=value …`.
fn told(told: &Told) -> Vec<String> {
    let one = |series: &Series| {
        let rank = series.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string());
        let points: Vec<String> = series.points.iter().map(|p| format!("{}={}", p.step, p.value)).collect();
        format!("{} {rank}: {}", series.name, points.join(" "))
    };
    told.series.iter().map(one).collect()
}

#[test]
fn ranks_are_averaged_where_all_have_spoken() {
    let mut curves = Curves::default();
    Stream::log(Some(0), false).push(b"step=1 loss=1\nstep=2 loss=3\nstep=3 loss=9\n", None, &mut curves);
    Stream::log(Some(1), false).push(b"step=1 loss=3\nstep=2 loss=5\n", None, &mut curves);
    let answer = curves.answer(&all(), 1);
    assert_eq!(told(&answer), ["loss -: 1=2 2=4", "loss 0: 1=1 2=3 3=9", "loss 1: 1=3 2=5"]);
    let average = curves.answer(&Question { ranks: Ranks::Average, ..all() }, 1);
    assert_eq!(told(&average), ["loss -: 1=2 2=4"]);
    let one = curves.answer(&Question { ranks: Ranks::Some(vec![1]), ..all() }, 1);
    assert_eq!(told(&one), ["loss 1: 1=3 2=5"]);
}

/// Each rank reports every third step, none the same: the average lies among them all the way.
#[test]
fn ranks_that_report_different_steps_are_averaged_between_their_points() {
    let mut curves = Curves::default();
    for rank in 0..3 {
        let lines: String = (0..40).map(|n| 3 * n + rank).map(|step| format!("step={step} loss={step}\n")).collect();
        Stream::log(Some(rank), false).push(lines.as_bytes(), None, &mut curves);
    }
    let average = curves.answer(&Question { ranks: Ranks::Average, ..all() }, 1);
    let points = &average.series[0].points;
    // From where the last begins to where the first ends.
    assert_eq!((points[0].step, points[points.len() - 1].step, points.len()), (2.0, 117.0, 116));
    assert!(points.iter().all(|point| (point.value - point.step).abs() < 1e-9), "{points:?}");
    // One reports on: what all have now is new, and nothing else.
    Stream::log(Some(0), false).push(b"step=120 loss=120\n", None, &mut curves);
    let more = curves.answer(&Question { ranks: Ranks::Average, after: Some(average.next), ..all() }, 1);
    assert_eq!(told(&more), ["loss -: 118=118"]);
}

#[test]
fn the_skew_of_ranks_that_report_different_steps_is_known() {
    let mut curves = Curves::default();
    for (rank, steps, rate) in [(0, [2, 6], "10.0"), (1, [3, 7], "8.0")] {
        let lines: String = steps.iter().map(|step| format!(" 50%|#| {step}/9 [0<0, {rate}it/s]\n")).collect();
        Stream::log(Some(rank), false).push(lines.as_bytes(), None, &mut curves);
    }
    let answer = curves.answer(&Question { names: vec![SKEW.into()], ..all() }, 1);
    assert_eq!(told(&answer), ["rank_skew -: 3=20 6=20"]);
}

#[test]
fn many_points_of_many_ranks_make_a_bounded_average() {
    let mut curves = Curves::default();
    for rank in 0..8 {
        let lines: String = (0..400).map(|n| 8 * n + rank).map(|step| format!("step={step} loss=1\n")).collect();
        Stream::log(Some(rank), false).push(lines.as_bytes(), None, &mut curves);
    }
    let average = curves.answer(&Question { ranks: Ranks::Average, points: 5000, ..all() }, 1);
    assert!((500..=MOST_STEPS + 1).contains(&average.series[0].points.len()), "{}", average.series[0].points.len());
}

#[test]
fn the_slowest_rank_is_held_against_the_fastest() {
    let mut curves = Curves::default();
    for (rank, rate) in [(0, "10.0"), (1, "8.0")] {
        let line = format!(" 50%|#| 2/4 [0<0, {rate}it/s]\n");
        Stream::log(Some(rank), false).push(line.as_bytes(), None, &mut curves);
    }
    let answer = curves.answer(&Question { names: vec![SKEW.into()], ..all() }, 1);
    assert_eq!(told(&answer), ["rank_skew -: 2=20"]);
    assert_eq!(answer.series[0].unit.as_deref(), Some("%"));
}

#[test]
fn ranks_that_nobody_tells_apart_are_averaged_as_they_come() {
    let mut curves = Curves::default();
    Stream::log(None, true).push(b"step=1 loss=1\nstep=1 loss=3\nstep=2 loss=5\n", None, &mut curves);
    assert_eq!(told(&curves.answer(&all(), 1)), ["loss -: 1=2 2=5"]);
}

#[test]
fn only_what_is_new_is_told_again() {
    let mut curves = Curves::default();
    let mut stream = Stream::log(Some(0), false);
    stream.push(b"step=1 loss=1\n", None, &mut curves);
    let first = curves.answer(&all(), 1);
    assert!(first.whole);
    let again = |curves: &Curves, birth| curves.answer(&Question { after: Some(first.next.clone()), ..all() }, birth);
    assert_eq!((again(&curves, 1).series.len(), again(&curves, 1).whole), (0, false));
    stream.push(b"step=2 loss=0\n", None, &mut curves);
    assert_eq!(told(&again(&curves, 1)), ["loss 0: 2=0"]);
    // Begun anew, or after a word that is none: everything.
    assert!(again(&curves, 2).whole);
    assert!(curves.answer(&Question { after: Some("no".into()), ..all() }, 1).whole);
    // Another curve takes the place of the first: everything, too.
    stream.push(b"{\"corro\": {\"step\": 1, \"loss\": 7}}\n", None, &mut curves);
    let exact = again(&curves, 1);
    assert_eq!((told(&exact), exact.whole), (vec!["loss 0: 1=7".to_owned()], true));
}
