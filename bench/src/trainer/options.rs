//! Command-line options of `trainer`. Pure.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use super::turn::Precision;
use crate::words::{numbers, peers, yes_or_no};

pub const USAGE: &str =
    "options of trainer: --ranks 1,2,4  --batches 32,128  --precision f32,bf16  --peers tensorflow,pytorch|none
    --scaling yes|no  --rounds N  --budget MS (a turn)  --json FILE";

pub const PEERS: [&str; 2] = ["tensorflow", "pytorch"];

/// `None` leaves the choice to the benchmark.
#[derive(Debug, PartialEq)]
pub struct Options {
    pub ranks: Option<Vec<usize>>,
    /// Images per rank and step.
    pub batches: Vec<usize>,
    pub precisions: Option<Vec<Precision>>,
    pub peers: Vec<String>,
    /// Also measure scaling from one rank to two on as many cores.
    pub scaling: bool,
    pub rounds: Option<usize>,
    pub budget_ms: Option<u64>,
    pub json: Option<PathBuf>,
}

pub fn parse(words: &[String]) -> Result<Options> {
    let mut options = Options {
        ranks: None,
        batches: vec![32, 128],
        precisions: None,
        peers: PEERS.map(str::to_owned).to_vec(),
        scaling: true,
        rounds: None,
        budget_ms: None,
        json: None,
    };
    let mut words = words.iter();
    while let Some(option) = words.next() {
        let value = words.next().with_context(|| format!("{option} needs a value\n{USAGE}"))?;
        match option.as_str() {
            "--ranks" => options.ranks = Some(numbers(value)?),
            "--batches" => options.batches = numbers(value)?,
            "--precision" => options.precisions = Some(precisions(value)?),
            "--peers" => options.peers = peers(value, &PEERS)?,
            "--scaling" => options.scaling = yes_or_no(value)?,
            "--rounds" => options.rounds = Some(value.parse()?),
            "--budget" => options.budget_ms = Some(value.parse()?),
            "--json" => options.json = Some(value.into()),
            _ => bail!("there is no option {option}\n{USAGE}"),
        }
    }
    let counts = options.ranks.iter().flatten().chain(&options.batches);
    ensure!({ counts }.all(|count| *count > 0), "there is at least one rank, and one image in a batch");
    Ok(options)
}

fn precisions(list: &str) -> Result<Vec<Precision>> {
    let one = |word| Precision::parse(word).with_context(|| format!("there is no precision {word}\n{USAGE}"));
    list.split(',').map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Options> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_come_in_pairs() {
        let options = of("--ranks 1,8 --peers none --precision bf16 --batches 64").expect("all known");
        assert_eq!((options.ranks, options.peers, options.batches), (Some(vec![1, 8]), vec![], vec![64]));
        assert_eq!(options.precisions, Some(vec![Precision::Bf16]));
        for line in
            ["--ranks", "--ranks 0", "--peers jax", "--precision f64", "--fast yes", "--scaling perhaps", "--batches 0"]
        {
            assert!(of(line).is_err(), "{line}");
        }
    }
}
