//! Text protocol of one turn, and the contract of every rank, ours (`worker`) or a peer's (`peers/training_*.py`): read `WAY
//! PRECISION BATCH STEPS`, train that many whole steps (forward, backward, reduce, RMSprop, with dropout) on a batch that stays
//! in memory, and answer `took SECONDS`; or `cannot REASON` if the combination is not supported. One-time initialisation
//! happens before the clock starts, as far as the engine permits. Between turns a rank waits and computes nothing. Pure.

use std::fmt;

use anyhow::{Context, Result};

/// Whether gradients are exchanged between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// Independent ranks side by side: the upper bound of any exchange of gradients.
    Disabled,
    Enabled,
}

/// Number format of the computation.
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

/// A request to train some steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    pub exchange: Exchange,
    pub case: Case,
    pub steps: usize,
}

impl Exchange {
    pub fn as_str(self) -> &'static str {
        match self {
            Exchange::Disabled => "alone",
            Exchange::Enabled => "together",
        }
    }
}

impl Precision {
    pub const ALL: [Precision; 2] = [Precision::F32, Precision::Bf16];

    pub fn as_str(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
        }
    }

    pub fn parse(word: &str) -> Option<Precision> {
        Precision::ALL.into_iter().find(|precision| precision.as_str() == word)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, batch {}", self.precision.as_str(), self.batch)
    }
}

impl Turn {
    /// The request line to a rank.
    pub fn to_line(self) -> String {
        format!("{} {} {} {}\n", self.exchange.as_str(), self.case.precision.as_str(), self.case.batch, self.steps)
    }

    pub fn parse(line: &str) -> Option<Turn> {
        let mut words = line.split_whitespace();
        let mut next = || words.next();
        let exchange = next()?;
        let exchange = [Exchange::Disabled, Exchange::Enabled].into_iter().find(|other| other.as_str() == exchange)?;
        let case = Case { precision: Precision::parse(next()?)?, batch: next()?.parse().ok()? };
        Some(Turn { exchange, case, steps: next()?.parse().ok()? })
    }

    /// Parses the response of one rank.
    pub fn parse_response(&self, response: &str) -> Result<TurnResult> {
        parse_response(response, self.case.batch * self.steps)
    }
}

/// Parses the response of a rank that trained so many images.
pub fn parse_response(response: &str, images: usize) -> Result<TurnResult> {
    if let Some(reason) = response.strip_prefix(CANNOT) {
        return Ok(TurnResult::Unsupported(reason.to_owned()));
    }
    let seconds = response.strip_prefix(TOOK).and_then(|seconds| seconds.trim().parse::<f64>().ok());
    let seconds = seconds.filter(|seconds| *seconds > 0.0).with_context(|| format!("not a response: {response}"))?;
    Ok(TurnResult::Rate(images as f64 / seconds))
}

/// Parsed response of a rank, or the sum over all ranks.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnResult {
    /// Images per second.
    Rate(f64),
    /// The rank does not support the combination, and the reason.
    Unsupported(String),
}

const TOOK: &str = "took ";
const CANNOT: &str = "cannot ";

/// Whether a line of a rank is a response.
pub fn is_response(line: &str) -> bool {
    line.starts_with(TOOK) || line.starts_with(CANNOT)
}

pub fn format_took(seconds: f64) -> String {
    format!("{TOOK}{seconds}")
}

pub fn format_unsupported(reason: &impl fmt::Display) -> String {
    format!("{CANNOT}{reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_and_its_response_survive_formatting() {
        let turn =
            Turn { exchange: Exchange::Enabled, case: Case { precision: Precision::Bf16, batch: 32 }, steps: 10 };
        assert_eq!(turn.to_line(), "together bf16 32 10\n");
        assert_eq!(Turn::parse(&turn.to_line()), Some(turn));
        assert_eq!(turn.parse_response(&format_took(0.5)).expect("a response"), TurnResult::Rate(640.0));
        assert_eq!(
            turn.parse_response(&format_unsupported(&"no tiles")).expect("a response"),
            TurnResult::Unsupported("no tiles".to_owned())
        );
        for line in ["", "together bf16 32", "both f32 32 1", "alone f64 32 1", "alone f32 x 1"] {
            assert_eq!(Turn::parse(line), None, "{line}");
        }
        for response in ["", "took", "took 0", "took x"] {
            assert!(turn.parse_response(response).is_err(), "{response}");
        }
    }
}
