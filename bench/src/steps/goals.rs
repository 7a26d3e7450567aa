//! Performance goals of our Python layers, evaluated on the medians of paired rounds. A goal that could not be measured is not
//! met. Pure except for `verdict`.

use crate::benchmarks::Verdict;
use crate::goal::Goal;
use crate::stats::Samples;

/// Allowed overhead of our layer in a training of one rank.
const OVERHEAD: f64 = 0.02;

/// Ratio of ours with one rank to the same training without us.
pub fn overhead(ratios: Option<&Samples>, beside: &str) -> Goal {
    match ratios.map(|ratios| 1.0 / ratios.p50() - 1.0) {
        Some(cost) => Goal {
            met: cost < OVERHEAD,
            figures: format!(
                "{:.1} % of a step at 1 rank beside {beside} (wanted: under {:.0} %)",
                100.0 * cost,
                100.0 * OVERHEAD
            ),
        },
        None => Goal { met: false, figures: format!("nothing to compare: overhead beside {beside}") },
    }
}

/// Prints all goals and failed measurements; any of the latter makes the verdict `missed`.
pub fn verdict(goals: &[Goal], broken: &[String]) -> Verdict {
    println!();
    broken.iter().for_each(|what| println!("{what}"));
    goals.iter().for_each(|goal| println!("goal {}: {}", if goal.met { "met" } else { "missed" }, goal.figures));
    let figures: Vec<&str> =
        goals.iter().map(|goal| goal.figures.as_str()).chain(broken.iter().map(String::as_str)).collect();
    Verdict { met: broken.is_empty() && goals.iter().all(|goal| goal.met), figures: figures.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overhead_is_what_a_step_takes_longer() {
        let with = |ratio: f64| overhead(Some(&Samples::of("x", "times", vec![0.5, ratio, 1.5])), "plain torch");
        assert_eq!(with(0.8).figures, "25.0 % of a step at 1 rank beside plain torch (wanted: under 2 %)");
        assert!(!with(0.98).met && with(0.985).met && with(1.1).met);
        assert!(!overhead(None, "plain torch").met);
    }
}
