//! Command-line options of `trainer`. Pure.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use super::turn::Precision;
use crate::option_values::{parse_numbers, parse_peers, parse_yes_no};

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

pub fn parse(arguments: &[String]) -> Result<Options> {
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
    let mut arguments = arguments.iter();
    while let Some(option) = arguments.next() {
        let value = arguments.next().with_context(|| format!("{option} needs a value\n{USAGE}"))?;
        match option.as_str() {
            "--ranks" => options.ranks = Some(parse_numbers(value)?),
            "--batches" => options.batches = parse_numbers(value)?,
            "--precision" => options.precisions = Some(precisions(value)?),
            "--peers" => options.peers = parse_peers(value, &PEERS)?,
            "--scaling" => options.scaling = parse_yes_no(value)?,
            "--rounds" => options.rounds = Some(value.parse()?),
            "--budget" => options.budget_ms = Some(value.parse()?),
            "--json" => options.json = Some(value.into()),
            _ => bail!("unknown option {option}\n{USAGE}"),
        }
    }
    let counts = options.ranks.iter().flatten().chain(&options.batches);
    ensure!({ counts }.all(|count| *count > 0), "there is at least one rank, and one image in a batch");
    Ok(options)
}

fn precisions(list: &str) -> Result<Vec<Precision>> {
    let one = |word| Precision::parse(word).with_context(|| format!("unknown precision {word}\n{USAGE}"));
    list.split(',').map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Options> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_come_in_pairs() {
        let options = parse_line("--ranks 1,8 --peers none --precision bf16 --batches 64").expect("all known");
        assert_eq!((options.ranks, options.peers, options.batches), (Some(vec![1, 8]), vec![], vec![64]));
        assert_eq!(options.precisions, Some(vec![Precision::Bf16]));
        for line in
            ["--ranks", "--ranks 0", "--peers jax", "--precision f64", "--fast yes", "--scaling perhaps", "--batches 0"]
        {
            assert!(parse_line(line).is_err(), "{line}");
        }
    }
}
