//! Performance goals of the trainer, evaluated on the measurements. A goal that could not be measured is not met. Pure.

use super::scaling::Scaled;
use super::table::{Results, TENSORFLOW};
use super::turn::{Precision, Way};
use crate::goal::{Goal, worst};

/// Goal for two ranks on two cores, as a fraction of twice the images of one rank on one core.
const SCALING: f64 = 0.95;

/// Compares with the better of TensorFlow with and without exchange, at every placement.
pub fn against_tensorflow(results: &Results, precision: Precision) -> Goal {
    let ratios =
        results.cases().into_iter().filter(|(_, case)| case.precision == precision).filter_map(|(at, case)| {
            let ratio = results.ratio(at, case, TENSORFLOW)?;
            Some((ratio, format!("batch {}, {}", case.batch, at.name())))
        });
    worst(ratios, 1.0, &format!("times TensorFlow's {} step", precision.word()))
}

/// Scaling from one rank on one core to two ranks on two; the machine's own part is printed too. bf16 decides nothing here.
pub fn scaling(scaled: &[Scaled]) -> Goal {
    let plain = scaled.iter().filter(|scaled| scaled.case.precision == Precision::F32);
    let parts = plain.map(|scaled| {
        let [together, alone] = [Way::Together, Way::Alone].map(|way| scaled.efficiency(way).p50());
        (together, format!("{}, {alone:.3} with nothing exchanged", scaled.case))
    });
    worst(parts.filter(|(part, _)| !part.is_nan()), SCALING, "of twice one rank with two on two cores, in turns")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trainer::place::Place;
    use crate::trainer::scaling::{ONE, Round, TWO};
    use crate::trainer::table::{OURS, Row};
    use crate::trainer::turn::Case;

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
        let bf16 = Case { precision: Precision::Bf16, batch: 32 };
        let scaled = |case, together| Scaled::new(case, vec![Round { ones: [95.0, 105.0], together, alone: 196.0 }]);
        let with = |rate| scaling(&[scaled(F32, rate), scaled(F32, 198.0), scaled(bf16, 100.0)]);
        let expected = "at worst 0.95 of twice one rank with two on two cores, in turns (f32, batch 32, 0.980 with nothing exchanged; wanted 0.95)";
        assert_eq!(with(190.0), Goal { met: true, figures: expected.to_owned() });
        assert!(!with(189.0).met);
    }

    #[test]
    fn what_was_not_measured_is_not_met() {
        let none = results(&[]);
        let unmeasured = Scaled::new(F32, vec![]);
        assert!(!scaling(&[]).met && !scaling(&[unmeasured]).met && !against_tensorflow(&none, Precision::F32).met);
    }
}
