//! The benchmarks, one file each, and the table of them. A file's first line is what `bench/run` shows in its list.

mod agents;
mod binary;
mod idle;
mod jobs;
mod lists;
mod plan;
mod start;
mod submit;
mod submits;
mod transfer;
mod up;

use anyhow::Result;

pub struct Benchmark {
    pub name: &'static str,
    pub promise: &'static str,
    pub run: fn(Scale) -> Result<Verdict>,
}

/// How many samples there is time for.
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

/// Whether the promise holds, and the figures that say so.
#[derive(Debug)]
pub struct Verdict {
    pub met: bool,
    pub figures: String,
}

pub const BENCHMARKS: &[Benchmark] = &[
    Benchmark { name: "agents", promise: agents::PROMISE, run: agents::run },
    Benchmark { name: "binary", promise: binary::PROMISE, run: binary::run },
    Benchmark { name: "idle", promise: idle::PROMISE, run: idle::run },
    Benchmark { name: "jobs", promise: jobs::PROMISE, run: jobs::run },
    Benchmark { name: "lists", promise: lists::PROMISE, run: lists::run },
    Benchmark { name: "plan", promise: plan::PROMISE, run: plan::run },
    Benchmark { name: "start", promise: start::PROMISE, run: start::run },
    Benchmark { name: "submit", promise: submit::PROMISE, run: submit::run },
    Benchmark { name: "submits", promise: submits::PROMISE, run: submits::run },
    Benchmark { name: "transfer", promise: transfer::PROMISE, run: transfer::run },
    Benchmark { name: "up", promise: up::PROMISE, run: up::run },
];

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
