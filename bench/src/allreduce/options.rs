//! Command-line options of `allreduce`. Pure.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use crate::option_values::{parse_numbers, parse_peers, parse_yes_no};

pub const USAGE: &str =
    "options of allreduce: --ranks 2,4,8  --peers openmpi,mpich,gloo,horovod|none  --hosts 4|no  --limits yes|no  --sizes 4,1048576
    --budget MS (a case)  --rounds N  --prebuilt DIR (programs of the MPI peers)  --json FILE";

pub const PEERS: [&str; 4] = ["openmpi", "mpich", "gloo", "horovod"];

/// `None` leaves the choice to the benchmark.
#[derive(Debug, PartialEq)]
pub struct Options {
    pub ranks: Vec<usize>,
    pub peers: Vec<String>,
    /// Also measure between hosts.
    pub hosts: bool,
    /// Also measure memory and kernels.
    pub limits: bool,
    pub sizes: Option<Vec<usize>>,
    pub budget_ms: Option<usize>,
    pub rounds: Option<usize>,
    pub prebuilt: Option<PathBuf>,
    pub json: Option<PathBuf>,
}

pub fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options {
        ranks: vec![2, 4, 8],
        peers: PEERS.map(str::to_owned).to_vec(),
        hosts: true,
        limits: true,
        sizes: None,
        budget_ms: None,
        rounds: None,
        prebuilt: None,
        json: None,
    };
    let mut arguments = arguments.iter();
    while let Some(option) = arguments.next() {
        let value = arguments.next().with_context(|| format!("{option} needs a value\n{USAGE}"))?;
        match option.as_str() {
            "--ranks" => options.ranks = parse_numbers(value)?,
            "--peers" => options.peers = parse_peers(value, &PEERS)?,
            "--hosts" => options.hosts = value == "4" || parse_yes_no(value)?,
            "--limits" => options.limits = parse_yes_no(value)?,
            "--sizes" => options.sizes = Some(parse_numbers(value)?),
            "--budget" => options.budget_ms = Some(value.parse()?),
            "--rounds" => options.rounds = Some(value.parse()?),
            "--prebuilt" => options.prebuilt = Some(value.into()),
            "--json" => options.json = Some(value.into()),
            _ => bail!("unknown option {option}\n{USAGE}"),
        }
    }
    ensure!(options.ranks.iter().all(|ranks| *ranks > 1), "a sum takes at least two ranks");
    let sizes = options.sizes.iter().flatten();
    ensure!({ sizes }.all(|bytes| *bytes > 0 && bytes % 4 == 0), "sizes are bytes, in steps of four");
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Options> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_come_in_pairs() {
        let options = parse_line("--ranks 2,16 --peers none --json out.json --sizes 4,64").expect("all known");
        assert_eq!((options.ranks, options.peers, options.sizes), (vec![2, 16], vec![], Some(vec![4, 64])));
        assert_eq!(parse_line("").expect("nothing is needed").ranks, [2, 4, 8]);
        for line in
            ["--ranks", "--ranks x", "--ranks 1", "--peers gloo,nccl", "--fast yes", "--hosts perhaps", "--sizes 5"]
        {
            assert!(parse_line(line).is_err(), "{line}");
        }
    }
}
