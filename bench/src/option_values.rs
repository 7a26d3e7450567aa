//! Parsers of option values that several benchmarks share. Pure.

use anyhow::{Context, Result, bail, ensure};

pub fn parse_numbers(list: &str) -> Result<Vec<usize>> {
    list.split(',').map(|number| number.parse().with_context(|| format!("not a number: {number}"))).collect()
}

/// Parses the value of `--peers`: names from `known`, or `none`.
pub fn parse_peers(list: &str, known: &[&str]) -> Result<Vec<String>> {
    if list == "none" {
        return Ok(Vec::new());
    }
    let names: Vec<String> = list.split(',').map(str::to_owned).collect();
    for name in &names {
        ensure!(known.contains(&name.as_str()), "unknown peer {name}; available: {}", known.join(", "));
    }
    Ok(names)
}

pub fn parse_yes_no(value: &str) -> Result<bool> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => bail!("expected yes or no, not {value}"),
    }
}
