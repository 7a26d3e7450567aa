//! What is promised, held against what was measured. A goal that could not be measured is not met. Pure.

use super::place::Place;
use super::table::{OURS, Results, TENSORFLOW};
use super::turn::{Case, Precision, Way};
use crate::goal::{Goal, worst};

/// Of twice the images that one rank trains on one core, so much with two ranks on two.
const SCALING: f64 = 0.95;
pub const ONE: Place = Place { ranks: 1, cores: 1 };
pub const TWO: Place = Place { ranks: 2, cores: 2 };

/// At every place the better of TensorFlow with and without exchange.
pub fn against_tensorflow(results: &Results, precision: Precision) -> Goal {
    let ratios =
        results.cases().into_iter().filter(|(_, case)| case.precision == precision).filter_map(|(at, case)| {
            let ratio = results.ratio(at, case, TENSORFLOW)?;
            Some((ratio, format!("batch {}, {}", case.batch, at.name())))
        });
    worst(ratios, 1.0, &format!("times TensorFlow's {} step", precision.word()))
}

/// From one rank on one core to two ranks on two.
pub fn scaling(results: &Results) -> Goal {
    let plain = results.cases().into_iter().filter(|(at, case)| *at == TWO && case.precision == Precision::F32);
    let parts = plain.filter_map(|(_, case)| Some((efficiency(results, case, Way::Together)?, case.to_string())));
    worst(parts, SCALING, "of twice one rank with two on two cores")
}

/// The images of two ranks by twice those of one.
pub fn efficiency(results: &Results, case: Case, way: Way) -> Option<f64> {
    Some(results.of(TWO, case, OURS, way)? / (2.0 * results.of(ONE, case, OURS, way)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trainer::table::Row;

    const F32: Case = Case { precision: Precision::F32, batch: 32 };

    fn results(rates: &[(Place, &'static str, Way, Case, f64)]) -> Results {
        let mut results = Results::default();
        for (place, engine, way, case, rate) in rates {
            results.add(Row::new(*place, engine, *way, *case), *rate);
        }
        results
    }

    #[test]
    fn the_worst_place_decides_and_precisions_are_apart() {
        let bf16 = Case { precision: Precision::Bf16, batch: 32 };
        let results = results(&[
            (ONE, OURS, Way::Together, F32, 300.0),
            (ONE, TENSORFLOW, Way::Alone, F32, 200.0),
            (TWO, OURS, Way::Together, F32, 300.0),
            (TWO, TENSORFLOW, Way::Alone, F32, 250.0),
            (TWO, TENSORFLOW, Way::Together, F32, 100.0),
            (ONE, OURS, Way::Together, bf16, 300.0),
            (ONE, TENSORFLOW, Way::Alone, bf16, 400.0),
        ]);
        let expected = "at worst 1.20 times TensorFlow's f32 step (batch 32, 2 ranks on 2 cores; wanted 1)";
        assert_eq!(against_tensorflow(&results, Precision::F32), Goal { met: true, figures: expected.to_owned() });
        assert!(!against_tensorflow(&results, Precision::Bf16).met);
    }

    #[test]
    fn two_ranks_train_nearly_twice_as_much() {
        let with = |rate| {
            let rates = [(ONE, OURS, Way::Together, F32, 100.0), (TWO, OURS, Way::Together, F32, rate)];
            scaling(&results(&rates)).met
        };
        assert!(with(190.0) && !with(189.0));
    }

    #[test]
    fn what_was_not_measured_is_not_met() {
        let none = results(&[]);
        assert!(!scaling(&none).met && !against_tensorflow(&none, Precision::F32).met);
    }
}
