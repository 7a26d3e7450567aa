//! Performance goals of the trainer, evaluated on the measurements. A goal that could not be measured is not met. Pure.

use super::scaling::ScalingResult;
use super::table::{Results, TENSORFLOW};
use super::turn::{Exchange, Precision};
use crate::goal::{Goal, worst_ratio};

/// Goal for two ranks on two cores, as a fraction of twice the images of one rank on one core.
const MIN_SCALING: f64 = 0.95;

/// Compares with the better of TensorFlow with and without exchange, at every placement.
pub fn against_tensorflow(results: &Results, precision: Precision) -> Goal {
    let ratios =
        results.cases().into_iter().filter(|(_, case)| case.precision == precision).filter_map(|(placement, case)| {
            let ratio = results.ratio(placement, case, TENSORFLOW)?;
            Some((ratio, format!("batch {}, {}", case.batch, placement.name())))
        });
    worst_ratio(ratios, 1.0, &format!("times TensorFlow's {} step", precision.as_str()))
}

/// Scaling from one rank on one core to two ranks on two; the machine's own part is printed too. bf16 decides nothing here.
pub fn scaling(scaled: &[ScalingResult]) -> Goal {
    let f32_only = scaled.iter().filter(|scaled| scaled.case.precision == Precision::F32);
    let fractions = f32_only.map(|scaled| {
        let [together, alone] =
            [Exchange::Enabled, Exchange::Disabled].map(|exchange| scaled.efficiency(exchange).p50());
        (together, format!("{}, {alone:.3} with nothing exchanged", scaled.case))
    });
    worst_ratio(
        fractions.filter(|(fraction, _)| !fraction.is_nan()),
        MIN_SCALING,
        "of twice one rank with two on two cores, in turns",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trainer::cpu_placement::CpuPlacement;
    use crate::trainer::scaling::{ONE_RANK, Round, TWO_RANKS};
    use crate::trainer::table::{OURS, Row};
    use crate::trainer::turn::Case;

    const F32: Case = Case { precision: Precision::F32, batch: 32 };

    fn results(rates: &[(CpuPlacement, &'static str, Exchange, Case, f64)]) -> Results {
        let mut results = Results::default();
        for (placement, engine, exchange, case, rate) in rates {
            results.add(Row::new(*placement, engine, *exchange, *case), *rate);
        }
        results
    }

    #[test]
    fn the_worst_placement_decides_for_each_precision() {
        let bf16 = Case { precision: Precision::Bf16, batch: 32 };
        let results = results(&[
            (ONE_RANK, OURS, Exchange::Enabled, F32, 300.0),
            (ONE_RANK, TENSORFLOW, Exchange::Disabled, F32, 200.0),
            (TWO_RANKS, OURS, Exchange::Enabled, F32, 300.0),
            (TWO_RANKS, TENSORFLOW, Exchange::Disabled, F32, 250.0),
            (TWO_RANKS, TENSORFLOW, Exchange::Enabled, F32, 100.0),
            (ONE_RANK, OURS, Exchange::Enabled, bf16, 300.0),
            (ONE_RANK, TENSORFLOW, Exchange::Disabled, bf16, 400.0),
        ]);
        let expected = "at worst 1.20 times TensorFlow's f32 step (batch 32, 2 ranks on 2 cores; goal 1)";
        assert_eq!(against_tensorflow(&results, Precision::F32), Goal { met: true, figures: expected.to_owned() });
        assert!(!against_tensorflow(&results, Precision::Bf16).met);
    }

    #[test]
    fn two_ranks_train_nearly_twice_as_much() {
        let bf16 = Case { precision: Precision::Bf16, batch: 32 };
        let scaled =
            |case, together| ScalingResult::new(case, vec![Round { single: [95.0, 105.0], together, alone: 196.0 }]);
        let with = |rate| scaling(&[scaled(F32, rate), scaled(F32, 198.0), scaled(bf16, 100.0)]);
        let expected = "at worst 0.95 of twice one rank with two on two cores, in turns (f32, batch 32, 0.980 with nothing exchanged; goal 0.95)";
        assert_eq!(with(190.0), Goal { met: true, figures: expected.to_owned() });
        assert!(!with(189.0).met);
    }

    #[test]
    fn a_goal_without_measurement_is_not_met() {
        let none = results(&[]);
        let unmeasured = ScalingResult::new(F32, vec![]);
        assert!(!scaling(&[]).met && !scaling(&[unmeasured]).met && !against_tensorflow(&none, Precision::F32).met);
    }
}
