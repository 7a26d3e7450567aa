//! Command-line options of `optimizer` and `keras`. Pure.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use crate::words::{numbers, peers};

/// Valid engines and models of one benchmark.
pub struct Known {
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

pub fn parse(words: &[String], known: &Known) -> Result<Options> {
    let usage = known.usage;
    let mut options = Options {
        ranks: known.ranks.to_vec(),
        peers: None,
        models: known.models.iter().map(|model| (*model).to_owned()).collect(),
        batch: None,
        rounds: None,
        budget_ms: None,
        wheel: None,
    };
    let mut words = words.iter();
    while let Some(option) = words.next() {
        let value = words.next().with_context(|| format!("{option} needs a value\n{usage}"))?;
        match option.as_str() {
            "--ranks" => options.ranks = numbers(value)?,
            "--peers" => options.peers = Some(peers(value, known.peers)?),
            "--models" if known.models.len() > 1 => options.models = models(value, known)?,
            "--batch" => options.batch = Some(value.parse()?),
            "--rounds" => options.rounds = Some(value.parse()?),
            "--budget" => options.budget_ms = Some(value.parse()?),
            "--wheel" => options.wheel = Some(value.into()),
            _ => bail!("there is no option {option}\n{usage}"),
        }
    }
    let counts = options.ranks.iter().chain(&options.batch).chain(&options.rounds);
    ensure!({ counts }.all(|count| *count > 0), "there is at least one rank, one image in a batch and one round");
    Ok(options)
}

fn models(list: &str, known: &Known) -> Result<Vec<String>> {
    let names: Vec<String> = list.split(',').map(str::to_owned).collect();
    for name in &names {
        ensure!(
            known.models.contains(&name.as_str()),
            "there is no model {name}; there are: {}",
            known.models.join(", ")
        );
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: Known = Known { usage: "usage", ranks: &[1, 2], peers: &["ddp"], models: &["net", "shapes"] };

    fn of(line: &str) -> Result<Options> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>(), &KNOWN)
    }

    #[test]
    fn options_come_in_pairs() {
        let options = of("--ranks 8 --peers none --models shapes --batch 4 --wheel a.whl").expect("all known");
        assert_eq!((options.ranks, options.peers, options.batch), (vec![8], Some(vec![]), Some(4)));
        assert_eq!((options.models, options.wheel), (vec!["shapes".to_owned()], Some("a.whl".into())));
        assert_eq!(of("").expect("nothing is needed").ranks, [1, 2]);
        for line in ["--ranks", "--ranks 0", "--peers jax", "--models x", "--fast yes", "--batch 0", "--rounds 0"] {
            assert!(of(line).is_err(), "{line}");
        }
    }
}
