//! Interleaved rounds of several gangs: all measurements of a round are taken within seconds, so that a machine whose speed
//! drifts affects all engines alike. The starting engine rotates from round to round.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::rounds::{Results, Row};
use crate::trainer::gang::{Gang, Program};
use crate::trainer::place::Place;
use crate::trainer::turn::{self, Answer};

/// Timeout of a first turn: Python starts, graphs are traced.
const FIRST: Duration = Duration::from_secs(240);
const LIMIT: Duration = Duration::from_secs(120);

/// Ranks of one program at one placement.
pub struct Contestant {
    pub engine: &'static str,
    pub program: Program,
    pub place: Place,
}

/// Training case: the request to the ranks, and the images of one rank per step.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub name: String,
    pub words: String,
    pub batch: usize,
}

/// Duration of a contest.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    pub rounds: usize,
    /// Approximate length of one turn; at least one step.
    pub budget: Duration,
}

/// Adds to the results, and returns failed measurements. Every gang lives until the end of the contest.
pub fn hold(contestants: &[Contestant], cases: &[Case], length: Length, results: &mut Results) -> Vec<String> {
    let mut broken = Vec::new();
    let mut gangs: Vec<(&Contestant, Gang)> = Vec::new();
    // All start at once: the start is mostly Python reading its files, and is not counted.
    for contestant in contestants {
        match Gang::start(&contestant.program, contestant.place) {
            Ok(gang) => gangs.push((contestant, gang)),
            Err(error) => broken.push(failure(contestant, &error)),
        }
    }
    for case in cases {
        // A failed gang does not answer any more and is dropped for good.
        let mut turns = Vec::new();
        gangs.retain_mut(|(contestant, gang)| match steps(gang, case, contestant.place, length.budget) {
            Ok(steps) => {
                turns.push(steps);
                true
            }
            Err(error) => {
                broken.push(failure(contestant, &error));
                false
            }
        });
        for round in 0..length.rounds {
            let mut failed = None;
            for index in rotated(gangs.len(), round) {
                let (contestant, gang) = &mut gangs[index];
                match train(gang, case, turns[index], LIMIT) {
                    Ok(rate) => results.add(Row::new(contestant.place, contestant.engine, case), round, rate),
                    Err(error) => {
                        broken.push(failure(contestant, &error));
                        failed = Some(index);
                        break;
                    }
                }
            }
            if let Some(index) = failed {
                gangs.remove(index);
                turns.remove(index);
            }
        }
    }
    broken
}

/// All indices once, with a rotating start.
fn rotated(count: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |index| (index + round) % count)
}

/// Number of steps that fill a turn; the gang has run each of them before.
fn steps(gang: &mut Gang, case: &Case, place: Place, budget: Duration) -> Result<usize> {
    train(gang, case, 1, FIRST).with_context(|| format!("at {}", case.name))?;
    let rate = train(gang, case, 1, LIMIT)?;
    let steps = budget.as_secs_f64() * rate / (case.batch * place.ranks) as f64;
    Ok(1.max(steps.round() as usize))
}

/// Images per second of all ranks together.
fn train(gang: &mut Gang, case: &Case, steps: usize, limit: Duration) -> Result<f64> {
    let mut together = 0.0;
    for answer in gang.ask(&format!("{} {steps}\n", case.words), limit)? {
        match turn::read(&answer, case.batch * steps)? {
            Answer::Rate(rate) => together += rate,
            Answer::Cannot(why) => bail!("{}: {why}", case.name),
        }
    }
    Ok(together)
}

fn failure(contestant: &Contestant, why: &anyhow::Error) -> String {
    format!("no figures of {} with {}: {why:#}", contestant.engine, contestant.place.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::rounds::At;

    fn shell(engine: &'static str, script: &str, ranks: usize) -> Contestant {
        let arguments = vec!["-c".to_owned(), script.to_owned()];
        let program = Program { program: "/bin/sh".into(), arguments, variables: Vec::new(), ports: false };
        Contestant { engine, program, place: Place { ranks, cores: 2 } }
    }

    fn case() -> Case {
        Case { name: "a net".to_owned(), words: "net 8".to_owned(), batch: 8 }
    }

    const LENGTH: Length = Length { rounds: 3, budget: Duration::from_millis(1) };

    #[test]
    fn every_round_has_a_rate_of_everybody() {
        let slow = shell("slow", "while read net batch steps; do echo took 2; done", 2);
        let fast = shell("fast", "while read net batch steps; do echo took 1; done", 1);
        let mut results = Results::default();
        assert_eq!(hold(&[slow, fast], &[case()], LENGTH, &mut results), [""; 0]);
        let at = |engine, ranks| At { place: Place { ranks, cores: 2 }, case: "a net", engine };
        let ratios = results.ratios(at("slow", 2), at("fast", 1)).expect("both were measured");
        // Two that are half as fast.
        assert_eq!((ratios.count(), ratios.p50()), (3, 1.0));
    }

    #[test]
    fn one_that_cannot_says_why_and_the_others_are_measured() {
        let broken = shell("broken", "read turn; echo cannot import it", 1);
        let whole = shell("whole", "while read net batch steps; do echo took 1; done", 1);
        let mut results = Results::default();
        let said = hold(&[broken, whole], &[case()], LENGTH, &mut results);
        assert_eq!(said, ["no figures of broken with 1 rank on 2 cores: at a net: a net: import it"]);
        let at = At { place: Place { ranks: 1, cores: 2 }, case: "a net", engine: "whole" };
        assert!(results.ratios(at, at).is_some());
    }
}
