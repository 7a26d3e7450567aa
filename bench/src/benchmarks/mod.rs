//! The benchmarks, one file each, and their table. `bench/run` prints the first line of each file as its description.

mod agents;
mod allreduce;
mod autoscale;
mod binary;
mod containers;
mod elastic;
mod failover;
mod files;
mod followers;
mod fuse;
mod hosts;
mod idle;
mod jobs;
mod keras;
mod lists;
mod optimizer;
mod pages;
mod plan;
mod slurm;
mod start;
mod submit;
mod submits;
mod trainer;
mod transfer;
mod up;
mod wheel;

use anyhow::{Context, Result, bail};

/// An entry of the table.
pub struct Benchmark {
    pub name: &'static str,
    pub promise: &'static str,
    pub run: Run,
}

/// Entry point of a benchmark.
pub enum Run {
    /// Takes no options except `--quick`.
    Plain(fn(Scale) -> Result<Verdict>),
    /// Gets the remaining command-line arguments.
    Options(fn(Scale, &[String]) -> Result<Verdict>),
}

/// Number of samples that fit the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Ends within a minute.
    Quick,
    Full,
}

impl Scale {
    pub fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Scale::Quick => quick,
            Scale::Full => full,
        }
    }
}

/// Whether the goal is met, and the numbers that show it.
#[derive(Debug)]
pub struct Verdict {
    pub met: bool,
    pub figures: String,
}

use Run::{Options, Plain};

pub const BENCHMARKS: &[Benchmark] = &[
    Benchmark { name: "agents", promise: agents::PROMISE, run: Plain(agents::run) },
    Benchmark { name: "allreduce", promise: allreduce::PROMISE, run: Options(allreduce::run) },
    Benchmark { name: "autoscale", promise: autoscale::PROMISE, run: Plain(autoscale::run) },
    Benchmark { name: "binary", promise: binary::PROMISE, run: Plain(binary::run) },
    Benchmark { name: "containers", promise: containers::PROMISE, run: Plain(containers::run) },
    Benchmark { name: "elastic", promise: elastic::PROMISE, run: Plain(elastic::run) },
    Benchmark { name: "failover", promise: failover::PROMISE, run: Plain(failover::run) },
    Benchmark { name: "files", promise: files::PROMISE, run: Plain(files::run) },
    Benchmark { name: "followers", promise: followers::PROMISE, run: Plain(followers::run) },
    Benchmark { name: "fuse", promise: fuse::PROMISE, run: Plain(fuse::run) },
    Benchmark { name: "hosts", promise: hosts::PROMISE, run: Plain(hosts::run) },
    Benchmark { name: "idle", promise: idle::PROMISE, run: Plain(idle::run) },
    Benchmark { name: "jobs", promise: jobs::PROMISE, run: Plain(jobs::run) },
    Benchmark { name: "keras", promise: keras::PROMISE, run: Options(keras::run) },
    Benchmark { name: "lists", promise: lists::PROMISE, run: Plain(lists::run) },
    Benchmark { name: "optimizer", promise: optimizer::PROMISE, run: Options(optimizer::run) },
    Benchmark { name: "pages", promise: pages::PROMISE, run: Plain(pages::run) },
    Benchmark { name: "plan", promise: plan::PROMISE, run: Options(plan::run) },
    Benchmark { name: "slurm", promise: slurm::PROMISE, run: Plain(slurm::run) },
    Benchmark { name: "start", promise: start::PROMISE, run: Options(start::run) },
    Benchmark { name: "submit", promise: submit::PROMISE, run: Plain(submit::run) },
    Benchmark { name: "submits", promise: submits::PROMISE, run: Plain(submits::run) },
    Benchmark { name: "trainer", promise: trainer::PROMISE, run: Options(trainer::run) },
    Benchmark { name: "transfer", promise: transfer::PROMISE, run: Plain(transfer::run) },
    Benchmark { name: "up", promise: up::PROMISE, run: Plain(up::run) },
    Benchmark { name: "wheel", promise: wheel::PROMISE, run: Options(wheel::run) },
];

/// The number after `--jobs`, or the default.
fn parse_jobs_option(arguments: &[String], default: usize) -> Result<usize> {
    match arguments {
        [] => Ok(default),
        [option, count] if option == "--jobs" => count.parse().context("--jobs takes a number"),
        _ => bail!("the only option is --jobs N"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `bench/run` finds its names in this folder.
    #[test]
    fn every_file_is_a_benchmark_and_every_benchmark_a_file() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/benchmarks");
        let files = std::fs::read_dir(folder).expect("the folder is there");
        let mut names: Vec<String> = files
            .filter_map(|file| file.ok()?.file_name().into_string().ok()?.strip_suffix(".rs").map(str::to_owned))
            .filter(|name| name != "mod")
            .collect();
        names.sort();
        assert_eq!(names, BENCHMARKS.iter().map(|benchmark| benchmark.name).collect::<Vec<_>>());
    }
}
