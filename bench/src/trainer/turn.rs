//! Text protocol of one turn, and the contract of every rank, ours (`worker`) or a peer's (`peers/training_*.py`): read `WAY
//! PRECISION BATCH STEPS`, train that many whole steps (forward, backward, reduce, RMSprop, with dropout) on a batch that stays
//! in memory, and answer `took SECONDS`; or `cannot WHY` if the combination is not supported. One-time initialisation happens
//! before the clock starts, as far as the engine permits. Between turns a rank waits and computes nothing. Pure.

use std::fmt;

use anyhow::{Context, Result};

/// Whether gradients are exchanged between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Independent ranks side by side: the upper bound of any exchange of gradients.
    Alone,
    Together,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    F32,
    /// Products of 16 bits, sums and weights of 32: TensorFlow's mixed precision.
    Bf16,
}

/// One measured combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub precision: Precision,
    /// Images per rank and step.
    pub batch: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    pub way: Way,
    pub case: Case,
    pub steps: usize,
}

impl Way {
    pub fn word(self) -> &'static str {
        match self {
            Way::Alone => "alone",
            Way::Together => "together",
        }
    }
}

impl Precision {
    pub const ALL: [Precision; 2] = [Precision::F32, Precision::Bf16];

    pub fn word(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
        }
    }

    pub fn parse(word: &str) -> Option<Precision> {
        Precision::ALL.into_iter().find(|precision| precision.word() == word)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, batch {}", self.precision.word(), self.batch)
    }
}

impl Turn {
    pub fn line(&self) -> String {
        format!("{} {} {} {}\n", self.way.word(), self.case.precision.word(), self.case.batch, self.steps)
    }

    pub fn parse(line: &str) -> Option<Turn> {
        let mut words = line.split_whitespace();
        let mut next = || words.next();
        let way = next()?;
        let way = [Way::Alone, Way::Together].into_iter().find(|known| known.word() == way)?;
        let case = Case { precision: Precision::parse(next()?)?, batch: next()?.parse().ok()? };
        Some(Turn { way, case, steps: next()?.parse().ok()? })
    }

    /// Parses the response of one rank.
    pub fn read(&self, answer: &str) -> Result<Answer> {
        read(answer, self.case.batch * self.steps)
    }
}

/// Parses the response of a rank that trained so many images.
pub fn read(answer: &str, images: usize) -> Result<Answer> {
    if let Some(why) = answer.strip_prefix(CANNOT) {
        return Ok(Answer::Cannot(why.to_owned()));
    }
    let seconds = answer.strip_prefix(TOOK).and_then(|seconds| seconds.trim().parse::<f64>().ok());
    let seconds = seconds.filter(|seconds| *seconds > 0.0).with_context(|| format!("no answer: {answer}"))?;
    Ok(Answer::Rate(images as f64 / seconds))
}

#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Images per second.
    Rate(f64),
    Cannot(String),
}

const TOOK: &str = "took ";
const CANNOT: &str = "cannot ";

/// Whether a line of a rank is a response.
pub fn is_answer(line: &str) -> bool {
    line.starts_with(TOOK) || line.starts_with(CANNOT)
}

pub fn took(seconds: f64) -> String {
    format!("{TOOK}{seconds}")
}

pub fn cannot(why: &impl fmt::Display) -> String {
    format!("{CANNOT}{why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_survives_the_way_to_a_rank_and_back() {
        let turn = Turn { way: Way::Together, case: Case { precision: Precision::Bf16, batch: 32 }, steps: 10 };
        assert_eq!(turn.line(), "together bf16 32 10\n");
        assert_eq!(Turn::parse(&turn.line()), Some(turn));
        assert_eq!(turn.read(&took(0.5)).expect("an answer"), Answer::Rate(640.0));
        assert_eq!(turn.read(&cannot(&"no tiles")).expect("an answer"), Answer::Cannot("no tiles".to_owned()));
        for line in ["", "together bf16 32", "both f32 32 1", "alone f64 32 1", "alone f32 x 1"] {
            assert_eq!(Turn::parse(line), None, "{line}");
        }
        for answer in ["", "took", "took 0", "took x"] {
            assert!(turn.read(answer).is_err(), "{answer}");
        }
    }
}
