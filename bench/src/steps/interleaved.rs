//! Interleaved rounds of several gangs: all measurements of a round are taken within seconds, so that a machine whose speed
//! drifts affects all engines alike. The starting engine rotates from round to round.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::rounds::{Results, Row};
use crate::trainer::cpu_placement::CpuPlacement;
use crate::trainer::gang::{Gang, Program};
use crate::trainer::turn::{self, TurnResult};

/// Timeout of a first turn: Python starts, graphs are traced.
const FIRST_TURN_TIMEOUT: Duration = Duration::from_secs(240);
const TURN_TIMEOUT: Duration = Duration::from_secs(120);

/// Ranks of one program at one placement.
pub struct EngineSetup {
    pub engine: &'static str,
    pub program: Program,
    pub placement: CpuPlacement,
}

/// Training case: the request to the ranks, and the images of one rank per step.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub name: String,
    pub request: String,
    pub batch: usize,
}

/// Number and length of the rounds.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    pub rounds: usize,
    /// Approximate length of one turn; at least one step.
    pub budget: Duration,
}

/// Takes all measurements in interleaved rounds, adds them to `results`, and returns descriptions of the failed ones. Every
/// gang lives until the end.
pub fn measure_interleaved(
    setups: &[EngineSetup],
    cases: &[Case],
    schedule: Schedule,
    results: &mut Results,
) -> Vec<String> {
    let mut failures = Vec::new();
    let mut gangs: Vec<(&EngineSetup, Gang)> = Vec::new();
    // All start at once: a start mostly reads Python's files and is not counted.
    for setup in setups {
        match Gang::start(&setup.program, setup.placement) {
            Ok(gang) => gangs.push((setup, gang)),
            Err(error) => failures.push(failure(setup, &error)),
        }
    }
    for case in cases {
        // A failed gang does not answer any more and is dropped for good.
        let mut turns = Vec::new();
        gangs.retain_mut(|(setup, gang)| match steps(gang, case, setup.placement, schedule.budget) {
            Ok(steps) => {
                turns.push(steps);
                true
            }
            Err(error) => {
                failures.push(failure(setup, &error));
                false
            }
        });
        for round in 0..schedule.rounds {
            let mut failed = None;
            for index in rotated(gangs.len(), round) {
                let (setup, gang) = &mut gangs[index];
                match train(gang, case, turns[index], TURN_TIMEOUT) {
                    Ok(rate) => results.add(Row::new(setup.placement, setup.engine, case), round, rate),
                    Err(error) => {
                        failures.push(failure(setup, &error));
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
    failures
}

/// All indices once, with a rotating start.
fn rotated(count: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |index| (index + round) % count)
}

/// Number of steps that fill a turn; the gang has run each of them before.
fn steps(gang: &mut Gang, case: &Case, placement: CpuPlacement, budget: Duration) -> Result<usize> {
    train(gang, case, 1, FIRST_TURN_TIMEOUT).with_context(|| format!("at {}", case.name))?;
    let rate = train(gang, case, 1, TURN_TIMEOUT)?;
    let steps = budget.as_secs_f64() * rate / (case.batch * placement.ranks) as f64;
    Ok(1.max(steps.round() as usize))
}

/// Images per second of all ranks together.
fn train(gang: &mut Gang, case: &Case, steps: usize, limit: Duration) -> Result<f64> {
    let mut total = 0.0;
    for response in gang.request(&format!("{} {steps}\n", case.request), limit)? {
        match turn::parse_response(&response, case.batch * steps)? {
            TurnResult::Rate(rate) => total += rate,
            TurnResult::Unsupported(reason) => bail!("{}: {reason}", case.name),
        }
    }
    Ok(total)
}

fn failure(setup: &EngineSetup, error: &anyhow::Error) -> String {
    format!("no measurement of {} with {}: {error:#}", setup.engine, setup.placement.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::rounds::MeasurementKey;

    fn shell(engine: &'static str, script: &str, ranks: usize) -> EngineSetup {
        let arguments = vec!["-c".to_owned(), script.to_owned()];
        let program = Program { program: "/bin/sh".into(), arguments, variables: Vec::new(), ports: false };
        EngineSetup { engine, program, placement: CpuPlacement { ranks, cores: 2 } }
    }

    fn case() -> Case {
        Case { name: "a net".to_owned(), request: "net 8".to_owned(), batch: 8 }
    }

    const SCHEDULE: Schedule = Schedule { rounds: 3, budget: Duration::from_millis(1) };

    #[test]
    fn every_round_has_a_rate_of_every_engine() {
        let slow = shell("slow", "while read net batch steps; do echo took 2; done", 2);
        let fast = shell("fast", "while read net batch steps; do echo took 1; done", 1);
        let mut results = Results::default();
        assert_eq!(measure_interleaved(&[slow, fast], &[case()], SCHEDULE, &mut results), [""; 0]);
        let at = |engine, ranks| MeasurementKey { placement: CpuPlacement { ranks, cores: 2 }, case: "a net", engine };
        let ratios = results.ratios(at("slow", 2), at("fast", 1)).expect("both were measured");
        // Two ranks that are half as fast.
        assert_eq!((ratios.count(), ratios.p50()), (3, 1.0));
    }

    #[test]
    fn an_unsupported_case_is_reported_and_the_other_engines_are_measured() {
        let broken = shell("broken", "read turn; echo cannot import it", 1);
        let whole = shell("whole", "while read net batch steps; do echo took 1; done", 1);
        let mut results = Results::default();
        let failures = measure_interleaved(&[broken, whole], &[case()], SCHEDULE, &mut results);
        assert_eq!(failures, ["no measurement of broken with 1 rank on 2 cores: at a net: a net: import it"]);
        let at = MeasurementKey { placement: CpuPlacement { ranks: 1, cores: 2 }, case: "a net", engine: "whole" };
        assert!(results.ratios(at, at).is_some());
    }
}
