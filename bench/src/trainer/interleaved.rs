//! Interleaved turns of several gangs: one gang trains while the others wait, so that other load on the machine affects all
//! engines alike.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::cpu_placement::CpuPlacement;
use super::gang::{Gang, Program};
use super::table::{Results, Row};
use super::turn::{Case, Exchange, Turn, TurnResult};

/// Timeout of a first turn, in which Python starts and graphs are traced.
pub const FIRST_TURN_TIMEOUT: Duration = Duration::from_secs(240);
pub const TURN_TIMEOUT: Duration = Duration::from_secs(120);
pub const WARM_STEPS: usize = 3;
const MIN_STEPS: usize = 3;

/// One engine at one placement, and the measurements to take of it.
pub struct EngineSetup {
    pub engine: &'static str,
    pub program: Program,
    pub placement: CpuPlacement,
    pub variants: Vec<(Exchange, Case)>,
}

/// Number and length of the rounds.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    pub rounds: usize,
    /// Approximate length of one turn.
    pub budget: Duration,
}

/// Takes all measurements in interleaved turns, adds them to `results`, and returns descriptions of the failed ones.
pub fn measure_interleaved(setups: Vec<EngineSetup>, schedule: Schedule, results: &mut Results) -> Vec<String> {
    let mut failures = Vec::new();
    let mut gangs = Vec::new();
    for setup in setups {
        // Each gang warms up while no other trains; all live until the end.
        match WarmGang::prepare(&setup, schedule.budget, &mut failures) {
            Ok(gang) => gangs.push((setup, gang)),
            Err(error) => failures.push(failure(&setup, &format!("{error:#}"))),
        }
    }
    let mut cases: Vec<Case> = Vec::new();
    for turn in gangs.iter().flat_map(|(_, gang)| &gang.turns) {
        if !cases.contains(&turn.case) {
            cases.push(turn.case);
        }
    }
    for case in (0..schedule.rounds).flat_map(|_| &cases) {
        gangs.retain_mut(|(setup, gang)| match gang.measure(case, setup, results) {
            Ok(()) => true,
            Err(error) => {
                failures.push(failure(setup, &format!("{error:#}")));
                false
            }
        });
    }
    failures
}

fn failure(setup: &EngineSetup, reason: &str) -> String {
    format!("no measurement of {} with {}: {reason}", setup.engine, setup.placement.name())
}

/// A gang that has run each of its turns before, with the number of steps that fill one.
struct WarmGang {
    gang: Gang,
    turns: Vec<Turn>,
}

impl WarmGang {
    /// Unsupported cases are added to `failures` and left out.
    fn prepare(setup: &EngineSetup, budget: Duration, failures: &mut Vec<String>) -> Result<Self> {
        let mut gang = Gang::start(&setup.program, setup.placement)?;
        let mut turns = Vec::new();
        for (exchange, case) in setup.variants.iter().copied() {
            let warm = Turn { exchange, case, steps: WARM_STEPS };
            gang.run_turn(&warm, FIRST_TURN_TIMEOUT).with_context(|| format!("at {case}"))?;
            match gang.run_turn(&warm, TURN_TIMEOUT)? {
                TurnResult::Rate(rate) => {
                    let steps = budget.as_secs_f64() * rate / (case.batch * setup.placement.ranks) as f64;
                    turns.push(Turn { steps: MIN_STEPS.max(steps.round() as usize), ..warm });
                }
                TurnResult::Unsupported(reason) => failures.push(failure(setup, &format!("{case}: {reason}"))),
            }
        }
        Ok(Self { gang, turns })
    }

    fn measure(&mut self, case: &Case, setup: &EngineSetup, results: &mut Results) -> Result<()> {
        for turn in self.turns.iter().filter(|turn| turn.case == *case) {
            let EngineSetup { engine, placement, .. } = *setup;
            match self.gang.run_turn(turn, TURN_TIMEOUT)? {
                TurnResult::Rate(rate) => results.add(Row::new(placement, engine, turn.exchange, turn.case), rate),
                TurnResult::Unsupported(reason) => bail!("{}, which it supported before: {reason}", turn.case),
            }
        }
        Ok(())
    }
}
