//! Interleaved turns of several gangs: one trains while the others wait, so that other load on the machine affects all engines
//! alike.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::gang::{Gang, Program};
use super::place::Place;
use super::table::{Results, Row};
use super::turn::{Answer, Case, Turn, Way};

/// Timeout of a first turn: Python starts, graphs are traced.
pub const FIRST: Duration = Duration::from_secs(240);
pub const LIMIT: Duration = Duration::from_secs(120);
pub const WARM_STEPS: usize = 3;
const FEWEST_STEPS: usize = 3;

pub struct Contestant {
    pub engine: &'static str,
    pub program: Program,
    pub place: Place,
    pub tries: Vec<(Way, Case)>,
}

/// Duration of a contest.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    pub rounds: usize,
    /// Approximate length of one turn.
    pub budget: Duration,
}

/// Adds to the results, and returns failed measurements.
pub fn hold(contestants: Vec<Contestant>, length: Length, results: &mut Results) -> Vec<String> {
    let mut broken = Vec::new();
    let mut gangs = Vec::new();
    for contestant in contestants {
        // Each prepares by itself. All stay until the end.
        match Ready::prepare(&contestant, length.budget, &mut broken) {
            Ok(ready) => gangs.push((contestant, ready)),
            Err(error) => broken.push(failure(&contestant, &format!("{error:#}"))),
        }
    }
    let mut cases: Vec<Case> = Vec::new();
    for turn in gangs.iter().flat_map(|(_, ready)| &ready.turns) {
        if !cases.contains(&turn.case) {
            cases.push(turn.case);
        }
    }
    for case in (0..length.rounds).flat_map(|_| &cases) {
        gangs.retain_mut(|(contestant, ready)| match ready.measure(case, contestant, results) {
            Ok(()) => true,
            Err(error) => {
                broken.push(failure(contestant, &format!("{error:#}")));
                false
            }
        });
    }
    broken
}

fn failure(contestant: &Contestant, why: &str) -> String {
    format!("no figures of {} with {}: {why}", contestant.engine, contestant.place.name())
}

/// A gang that has run each of its turns before, with the number of steps that fill one.
struct Ready {
    gang: Gang,
    turns: Vec<Turn>,
}

impl Ready {
    /// Unsupported cases are added to `broken` and left out.
    fn prepare(contestant: &Contestant, budget: Duration, broken: &mut Vec<String>) -> Result<Self> {
        let mut gang = Gang::start(&contestant.program, contestant.place)?;
        let mut turns = Vec::new();
        for (way, case) in contestant.tries.iter().copied() {
            let warm = Turn { way, case, steps: WARM_STEPS };
            gang.take(&warm, FIRST).with_context(|| format!("at {case}"))?;
            match gang.take(&warm, LIMIT)? {
                Answer::Rate(rate) => {
                    let steps = budget.as_secs_f64() * rate / (case.batch * contestant.place.ranks) as f64;
                    turns.push(Turn { steps: FEWEST_STEPS.max(steps.round() as usize), ..warm });
                }
                Answer::Cannot(why) => broken.push(failure(contestant, &format!("{case}: {why}"))),
            }
        }
        Ok(Self { gang, turns })
    }

    fn measure(&mut self, case: &Case, contestant: &Contestant, results: &mut Results) -> Result<()> {
        for turn in self.turns.iter().filter(|turn| turn.case == *case) {
            let Contestant { engine, place, .. } = *contestant;
            match self.gang.take(turn, LIMIT)? {
                Answer::Rate(rate) => results.add(Row::new(place, engine, turn.way, turn.case), rate),
                Answer::Cannot(why) => bail!("{}, which it could before: {why}", turn.case),
            }
        }
        Ok(())
    }
}
