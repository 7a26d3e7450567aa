//! Scaling from one rank to two: one rank alone on each of two cores, and two ranks on both, in short turns, round after round.
//! The machine's speed drifts from minute to minute, so only turns of the same round are compared, and the median of those
//! ratios counts.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::cpu_placement::{self, CpuPlacement};
use super::gang::{Gang, Program};
use super::interleaved::{FIRST_TURN_TIMEOUT, Schedule, TURN_TIMEOUT, WARM_STEPS};
use super::turn::{Case, Exchange, Turn, TurnResult};
use crate::stats::{self, Samples};
use crate::steps::rounds::print_ratio;

pub const ONE_RANK: CpuPlacement = CpuPlacement { ranks: 1, cores: 1 };
pub const TWO_RANKS: CpuPlacement = CpuPlacement { ranks: 2, cores: 2 };
const MIN_STEPS: usize = 2;

/// All rounds of one case.
pub struct ScalingResult {
    pub case: Case,
    rounds: Vec<Round>,
}

/// Images per second in one round.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// One rank alone, on each of the two cores.
    pub single: [f64; 2],
    /// Two ranks, both cores.
    pub together: f64,
    /// The same without exchange: the limit of the machine.
    pub alone: f64,
}

impl ScalingResult {
    pub fn new(case: Case, rounds: Vec<Round>) -> Self {
        Self { case, rounds }
    }

    /// Rate of two ranks relative to the single ranks on their cores, in the same round.
    pub fn efficiency(&self, exchange: Exchange) -> Samples {
        let two = |round: &Round| match exchange {
            Exchange::Enabled => round.together,
            Exchange::Disabled => round.alone,
        };
        let ratio = |round: &Round| two(round) / round.single.iter().sum::<f64>();
        Samples::from_values(self.case.to_string(), "times", self.rounds.iter().map(ratio).collect())
    }

    fn rates(&self) -> [Samples; 4] {
        let samples = |ranks: &str, rate: fn(&Round) -> f64| {
            Samples::from_values(format!("{}: {ranks}", self.case), "images/s", self.rounds.iter().map(rate).collect())
        };
        [
            samples("1 rank, one core", |round| round.single[0]),
            samples("1 rank, other core", |round| round.single[1]),
            samples("2 ranks", |round| round.together),
            samples("2 ranks, no exchange", |round| round.alone),
        ]
    }

    pub fn json(&self) -> Value {
        let Case { precision, batch } = self.case;
        let [one, other, together, alone] = self.rates().map(|rates| rates.p50());
        let [exchanging, independent] =
            [Exchange::Enabled, Exchange::Disabled].map(|exchange| self.efficiency(exchange).p50());
        json!({
            "precision": precision.as_str(), "batch": batch, "rounds": self.rounds.len(),
            "p50ImagesPerSecond": {"oneRank": [one, other], "twoRanks": together, "twoRanksAlone": alone},
            "p50InTheSameRound": {"together": exchanging, "alone": independent},
        })
    }
}

/// Rates and ratios of all cases.
pub fn print(scaled: &[ScalingResult]) {
    println!("\nfrom 1 rank to 2 on as many cores, in turns (images/s of all ranks together; a batch is a rank's)");
    stats::print_heading();
    for scaled in scaled {
        scaled.rates().iter().for_each(Samples::print_row);
        print_ratio(&format!("{}: 2 ranks by 1 and 1", scaled.case), &scaled.efficiency(Exchange::Enabled));
        print_ratio(&format!("{}: the same, no exchange", scaled.case), &scaled.efficiency(Exchange::Disabled));
    }
}

pub fn measure(program: &Program, cases: &[Case], schedule: Schedule) -> Result<Vec<ScalingResult>> {
    let cores = TWO_RANKS.cpus_per_rank(&cpu_placement::allowed_cpus()?);
    let [one, other] = [&cores[0], &cores[1]].map(|core| Gang::start_on(program, ONE_RANK, core));
    let mut gangs = Gangs { single: [one?, other?], two: Gang::start(program, TWO_RANKS)? };
    cases.iter().map(|case| gangs.measure(*case, schedule).with_context(|| format!("at {case}"))).collect()
}

/// Gangs that are compared: one rank on each core, and two ranks on both.
struct Gangs {
    single: [Gang; 2],
    two: Gang,
}

impl Gangs {
    fn measure(&mut self, case: Case, schedule: Schedule) -> Result<ScalingResult> {
        let steps = self.warm_up(case, schedule.budget)?;
        let rounds = (0..schedule.rounds).map(|n| self.round(case, steps, n % 2 == 1));
        Ok(ScalingResult::new(case, rounds.collect::<Result<_>>()?))
    }

    /// Warms up all gangs. The number of steps per turn is the same for all.
    fn warm_up(&mut self, case: Case, budget: Duration) -> Result<usize> {
        let turn = |exchange| Turn { exchange, case, steps: WARM_STEPS };
        rate(&mut self.two, turn(Exchange::Enabled), FIRST_TURN_TIMEOUT)?;
        rate(&mut self.two, turn(Exchange::Disabled), FIRST_TURN_TIMEOUT)?;
        let [one, other] = &mut self.single;
        rate(one, turn(Exchange::Enabled), FIRST_TURN_TIMEOUT)?;
        rate(other, turn(Exchange::Enabled), FIRST_TURN_TIMEOUT)?;
        let steps = budget.as_secs_f64() * rate(one, turn(Exchange::Enabled), TURN_TIMEOUT)? / case.batch as f64;
        Ok(MIN_STEPS.max(steps.round() as usize))
    }

    /// Two ranks take their turn between those of one and the other; every second round goes backwards.
    fn round(&mut self, case: Case, steps: usize, backwards: bool) -> Result<Round> {
        let turn = |exchange| Turn { exchange, case, steps };
        let mut round = Round { single: [0.0; 2], together: 0.0, alone: 0.0 };
        let [one, other] = &mut self.single;
        for number in if backwards { [3, 2, 1, 0] } else { [0, 1, 2, 3] } {
            match number {
                0 => round.single[0] = rate(one, turn(Exchange::Enabled), TURN_TIMEOUT)?,
                1 => round.together = rate(&mut self.two, turn(Exchange::Enabled), TURN_TIMEOUT)?,
                2 => round.single[1] = rate(other, turn(Exchange::Enabled), TURN_TIMEOUT)?,
                _ => round.alone = rate(&mut self.two, turn(Exchange::Disabled), TURN_TIMEOUT)?,
            }
        }
        Ok(round)
    }
}

fn rate(gang: &mut Gang, turn: Turn, limit: Duration) -> Result<f64> {
    match gang.run_turn(&turn, limit)? {
        TurnResult::Rate(rate) => Ok(rate),
        TurnResult::Unsupported(reason) => bail!("{reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trainer::turn::Precision;

    #[test]
    fn only_turns_of_the_same_round_are_compared() {
        let case = Case { precision: Precision::F32, batch: 32 };
        let round = |speed: f64, together: f64| Round {
            single: [0.9 * speed, 1.1 * speed],
            together: 2.0 * together * speed,
            alone: 2.0 * speed,
        };
        // The machine becomes ten times as fast after the first round.
        let scaled = ScalingResult::new(case, vec![round(10.0, 0.9), round(100.0, 0.8), round(100.0, 0.95)]);
        let together = scaled.efficiency(Exchange::Enabled);
        assert!((together.p50() - 0.9).abs() < 1e-9 && (together.max() - 0.95).abs() < 1e-9);
        assert!((scaled.efficiency(Exchange::Disabled).p50() - 1.0).abs() < 1e-9);
    }
}
