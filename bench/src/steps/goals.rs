//! Performance goals of our Python layers, evaluated on the medians of paired rounds. A goal that could not be measured is not
//! met. Pure except for `verdict`.

use crate::benchmarks::Verdict;
use crate::goal::Goal;
use crate::stats::Samples;

/// Allowed overhead of our layer in a training of one rank.
const OVERHEAD: f64 = 0.02;

/// Ratio of ours with one rank to the same training without us.
pub fn overhead(ratios: Option<&Samples>, baseline: &str) -> Goal {
    match ratios.map(|ratios| 1.0 / ratios.p50() - 1.0) {
        Some(cost) => Goal {
            met: cost < OVERHEAD,
            figures: format!(
                "{:.1} % of a step at 1 rank compared with {baseline} (goal: under {:.0} %)",
                100.0 * cost,
                100.0 * OVERHEAD
            ),
        },
        None => Goal { met: false, figures: format!("not measured: overhead compared with {baseline}") },
    }
}

/// Prints all goals and failed measurements; any of the latter makes the verdict `missed`.
pub fn verdict(goals: &[Goal], failures: &[String]) -> Verdict {
    println!();
    failures.iter().for_each(|failure| println!("{failure}"));
    goals.iter().for_each(|goal| println!("goal {}: {}", if goal.met { "met" } else { "missed" }, goal.figures));
    let figures: Vec<&str> =
        goals.iter().map(|goal| goal.figures.as_str()).chain(failures.iter().map(String::as_str)).collect();
    Verdict { met: failures.is_empty() && goals.iter().all(|goal| goal.met), figures: figures.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_overhead_is_the_additional_time_of_a_step() {
        let goal_at =
            |ratio: f64| overhead(Some(&Samples::from_values("x", "times", vec![0.5, ratio, 1.5])), "plain torch");
        assert_eq!(goal_at(0.8).figures, "25.0 % of a step at 1 rank compared with plain torch (goal: under 2 %)");
        assert!(!goal_at(0.98).met && goal_at(0.985).met && goal_at(1.1).met);
        assert!(!overhead(None, "plain torch").met);
    }
}
