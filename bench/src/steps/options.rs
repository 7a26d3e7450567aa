//! Command-line options of `optimizer` and `keras`. Pure.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use crate::option_values::{parse_numbers, parse_peers};

/// Values that one benchmark accepts, and its usage text.
pub struct AcceptedValues {
    pub usage: &'static str,
    pub ranks: &'static [usize],
    pub peers: &'static [&'static str],
    pub models: &'static [&'static str],
}

/// `None` leaves the choice to the benchmark.
#[derive(Debug, PartialEq)]
pub struct Options {
    pub ranks: Vec<usize>,
    pub peers: Option<Vec<String>>,
    pub models: Vec<String>,
    /// Images per rank and step.
    pub batch: Option<usize>,
    pub rounds: Option<usize>,
    pub budget_ms: Option<u64>,
    /// Replaces the wheel that `scripts/wheel` builds.
    pub wheel: Option<PathBuf>,
}

pub fn parse(arguments: &[String], accepted: &AcceptedValues) -> Result<Options> {
    let usage = accepted.usage;
    let mut options = Options {
        ranks: accepted.ranks.to_vec(),
        peers: None,
        models: accepted.models.iter().map(|model| (*model).to_owned()).collect(),
        batch: None,
        rounds: None,
        budget_ms: None,
        wheel: None,
    };
    let mut arguments = arguments.iter();
    while let Some(option) = arguments.next() {
        let value = arguments.next().with_context(|| format!("{option} needs a value\n{usage}"))?;
        match option.as_str() {
            "--ranks" => options.ranks = parse_numbers(value)?,
            "--peers" => options.peers = Some(parse_peers(value, accepted.peers)?),
            "--models" if accepted.models.len() > 1 => options.models = models(value, accepted)?,
            "--batch" => options.batch = Some(value.parse()?),
            "--rounds" => options.rounds = Some(value.parse()?),
            "--budget" => options.budget_ms = Some(value.parse()?),
            "--wheel" => options.wheel = Some(value.into()),
            _ => bail!("unknown option {option}\n{usage}"),
        }
    }
    let counts = options.ranks.iter().chain(&options.batch).chain(&options.rounds);
    ensure!({ counts }.all(|count| *count > 0), "there is at least one rank, one image in a batch and one round");
    Ok(options)
}

fn models(list: &str, accepted: &AcceptedValues) -> Result<Vec<String>> {
    let names: Vec<String> = list.split(',').map(str::to_owned).collect();
    for name in &names {
        ensure!(
            accepted.models.contains(&name.as_str()),
            "unknown model {name}; available: {}",
            accepted.models.join(", ")
        );
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCEPTED: AcceptedValues =
        AcceptedValues { usage: "usage", ranks: &[1, 2], peers: &["ddp"], models: &["net", "shapes"] };

    fn parse_line(line: &str) -> Result<Options> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>(), &ACCEPTED)
    }

    #[test]
    fn options_come_in_pairs() {
        let options = parse_line("--ranks 8 --peers none --models shapes --batch 4 --wheel a.whl").expect("all known");
        assert_eq!((options.ranks, options.peers, options.batch), (vec![8], Some(vec![]), Some(4)));
        assert_eq!((options.models, options.wheel), (vec!["shapes".to_owned()], Some("a.whl".into())));
        assert_eq!(parse_line("").expect("nothing is needed").ranks, [1, 2]);
        for line in ["--ranks", "--ranks 0", "--peers jax", "--models x", "--fast yes", "--batch 0", "--rounds 0"] {
            assert!(parse_line(line).is_err(), "{line}");
        }
    }
}
