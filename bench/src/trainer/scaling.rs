//! Scaling from one rank to two: one rank alone on each of two cores, and two ranks on both, in short turns, round after round.
//! The machine's speed drifts from minute to minute, so only turns of the same round are compared, and the median of those
//! ratios counts.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::contest::{FIRST, LIMIT, Length, WARM_STEPS};
use super::gang::{Gang, Program};
use super::place::{self, Place};
use super::turn::{Answer, Case, Turn, Way};
use crate::stats::{self, Samples};
use crate::steps::rounds::print_ratio;

pub const ONE: Place = Place { ranks: 1, cores: 1 };
pub const TWO: Place = Place { ranks: 2, cores: 2 };
const FEWEST_STEPS: usize = 2;

/// All rounds of one case.
pub struct Scaled {
    pub case: Case,
    rounds: Vec<Round>,
}

/// Images per second in one round.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// One rank alone, on each of the two cores.
    pub ones: [f64; 2],
    /// Two ranks, both cores.
    pub together: f64,
    /// The same without exchange: the limit of the machine.
    pub alone: f64,
}

impl Scaled {
    pub fn new(case: Case, rounds: Vec<Round>) -> Self {
        Self { case, rounds }
    }

    /// Rate of two ranks relative to the single ranks on their cores, in the same round.
    pub fn efficiency(&self, way: Way) -> Samples {
        let two = |round: &Round| match way {
            Way::Together => round.together,
            Way::Alone => round.alone,
        };
        let ratio = |round: &Round| two(round) / round.ones.iter().sum::<f64>();
        Samples::of(self.case.to_string(), "times", self.rounds.iter().map(ratio).collect())
    }

    fn rates(&self) -> [Samples; 4] {
        let samples = |who: &str, rate: fn(&Round) -> f64| {
            Samples::of(format!("{}: {who}", self.case), "images/s", self.rounds.iter().map(rate).collect())
        };
        [
            samples("1 rank, one core", |round| round.ones[0]),
            samples("1 rank, other core", |round| round.ones[1]),
            samples("2 ranks", |round| round.together),
            samples("2 ranks, no exchange", |round| round.alone),
        ]
    }

    pub fn json(&self) -> Value {
        let Case { precision, batch } = self.case;
        let [one, other, together, alone] = self.rates().map(|rates| rates.p50());
        let [kept, possible] = [Way::Together, Way::Alone].map(|way| self.efficiency(way).p50());
        json!({
            "precision": precision.word(), "batch": batch, "rounds": self.rounds.len(),
            "p50ImagesPerSecond": {"oneRank": [one, other], "twoRanks": together, "twoRanksAlone": alone},
            "p50InTheSameRound": {"together": kept, "alone": possible},
        })
    }
}

/// Rates and ratios of all cases.
pub fn print(scaled: &[Scaled]) {
    println!("\nfrom 1 rank to 2 on as many cores, in turns (images/s of all ranks together; a batch is a rank's)");
    stats::heading();
    for scaled in scaled {
        scaled.rates().iter().for_each(Samples::row);
        print_ratio(&format!("{}: 2 ranks by 1 and 1", scaled.case), &scaled.efficiency(Way::Together));
        print_ratio(&format!("{}: the same, no exchange", scaled.case), &scaled.efficiency(Way::Alone));
    }
}

pub fn measure(program: &Program, cases: &[Case], length: Length) -> Result<Vec<Scaled>> {
    let cores = TWO.shares(&place::allowed()?);
    let [one, other] = [&cores[0], &cores[1]].map(|core| Gang::start_on(program, ONE, core));
    let mut gangs = Gangs { ones: [one?, other?], two: Gang::start(program, TWO)? };
    cases.iter().map(|case| gangs.measure(*case, length).with_context(|| format!("at {case}"))).collect()
}

struct Gangs {
    ones: [Gang; 2],
    two: Gang,
}

impl Gangs {
    fn measure(&mut self, case: Case, length: Length) -> Result<Scaled> {
        let steps = self.warm(case, length.budget)?;
        let rounds = (0..length.rounds).map(|n| self.round(case, steps, n % 2 == 1));
        Ok(Scaled::new(case, rounds.collect::<Result<_>>()?))
    }

    /// Warms up all gangs. The number of steps per turn is the same for all.
    fn warm(&mut self, case: Case, budget: Duration) -> Result<usize> {
        let turn = |way| Turn { way, case, steps: WARM_STEPS };
        rate(&mut self.two, turn(Way::Together), FIRST)?;
        rate(&mut self.two, turn(Way::Alone), FIRST)?;
        let [one, other] = &mut self.ones;
        rate(one, turn(Way::Together), FIRST)?;
        rate(other, turn(Way::Together), FIRST)?;
        let steps = budget.as_secs_f64() * rate(one, turn(Way::Together), LIMIT)? / case.batch as f64;
        Ok(FEWEST_STEPS.max(steps.round() as usize))
    }

    /// Two ranks take their turn between those of one and the other; every second round goes backwards.
    fn round(&mut self, case: Case, steps: usize, backwards: bool) -> Result<Round> {
        let turn = |way| Turn { way, case, steps };
        let mut round = Round { ones: [0.0; 2], together: 0.0, alone: 0.0 };
        let [one, other] = &mut self.ones;
        for number in if backwards { [3, 2, 1, 0] } else { [0, 1, 2, 3] } {
            match number {
                0 => round.ones[0] = rate(one, turn(Way::Together), LIMIT)?,
                1 => round.together = rate(&mut self.two, turn(Way::Together), LIMIT)?,
                2 => round.ones[1] = rate(other, turn(Way::Together), LIMIT)?,
                _ => round.alone = rate(&mut self.two, turn(Way::Alone), LIMIT)?,
            }
        }
        Ok(round)
    }
}

fn rate(gang: &mut Gang, turn: Turn, limit: Duration) -> Result<f64> {
    match gang.take(&turn, limit)? {
        Answer::Rate(rate) => Ok(rate),
        Answer::Cannot(why) => bail!("{why}"),
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
            ones: [0.9 * speed, 1.1 * speed],
            together: 2.0 * together * speed,
            alone: 2.0 * speed,
        };
        // The machine becomes ten times as fast after the first round.
        let scaled = Scaled::new(case, vec![round(10.0, 0.9), round(100.0, 0.8), round(100.0, 0.95)]);
        let together = scaled.efficiency(Way::Together);
        assert!((together.p50() - 0.9).abs() < 1e-9 && (together.max() - 0.95).abs() < 1e-9);
        assert!((scaled.efficiency(Way::Alone).p50() - 1.0).abs() < 1e-9);
    }
}
