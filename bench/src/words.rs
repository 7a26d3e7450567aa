//! Option values that several benchmarks share. Pure.

use anyhow::{Context, Result, bail, ensure};

pub fn numbers(list: &str) -> Result<Vec<usize>> {
    list.split(',').map(|number| number.parse().with_context(|| format!("no number: {number}"))).collect()
}

/// Parses a list of the peers of a benchmark, or none.
pub fn peers(list: &str, known: &[&str]) -> Result<Vec<String>> {
    if list == "none" {
        return Ok(Vec::new());
    }
    let names: Vec<String> = list.split(',').map(str::to_owned).collect();
    for name in &names {
        ensure!(known.contains(&name.as_str()), "there is no peer {name}; there are: {}", known.join(", "));
    }
    Ok(names)
}

pub fn yes_or_no(word: &str) -> Result<bool> {
    match word {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => bail!("neither yes nor no: {word}"),
    }
}
