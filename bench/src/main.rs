//! Benchmarks of the performance that Corro promises, started by `bench/run`. Each measures real processes: the release `corro`
//! beside this binary, its commands and its HTTP interface. A run ends with a verdict; the promises are fixed in the code.
//!
//! Reading order: `benchmarks` (one file each), then the shared parts: `site` (a private server), `netns_cluster` (a server and
//! hosts in network namespaces), `api` and `clients` (requests to it), `fixture` (resources), `rank` (a job's process), `content`
//! (large files), `peers` (other engines), `allreduce`, `elastic` and `trainer` (parts of
//! those benchmarks), `goal` and `option_values` (used
//! by all), `steps` (Python training steps, for `optimizer` and `keras`), `files` (the file service and its SDK),
//! `simulated_agents`, `http` (minimal HTTP), `page_client` (an open page without a browser) and `webdriver` (a browser),
//! `slurm_files` (both shared with the tests), `stats`, `memory`, `machine`.

mod allreduce;
mod api;
mod benchmarks;
mod clients;
mod content;
mod disk;
mod elastic;
mod files;
mod fixture;
mod goal;
mod http;
mod machine;
mod memory;
mod netns_cluster;
mod option_values;
mod page_client;
mod peers;
mod rank;
mod simulated_agents;
mod site;
#[path = "../../tests/harness/slurm_files.rs"]
mod slurm_files;
mod stats;
mod steps;
mod trainer;
#[path = "../../tests/harness/webdriver.rs"]
mod webdriver;

use std::process::ExitCode;

use benchmarks::{BENCHMARKS, Run, Scale};

const USAGE_EXIT_CODE: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // First of all, so that a rank's start includes nothing of the benchmarks.
    if arguments.first().is_some_and(|word| word == rank::SUBCOMMAND) {
        return rank::run(&arguments[1..]);
    }
    if arguments.first().is_some_and(|word| word == simulated_agents::SUBCOMMAND) {
        return simulated_agents::run(&arguments[1..]);
    }
    if arguments.first().is_some_and(|word| word == allreduce::worker::SUBCOMMAND) {
        return allreduce::worker::run(&arguments[1..]);
    }
    if arguments.first().is_some_and(|word| word == elastic::worker::SUBCOMMAND) {
        return elastic::worker::run(&arguments[1..]);
    }
    if arguments.first().is_some_and(|word| word == trainer::worker::SUBCOMMAND) {
        return trainer::worker::run(&arguments[1..]);
    }
    let scale = if arguments.iter().any(|word| word == "--quick") { Scale::Quick } else { Scale::Full };
    let arguments: Vec<String> = arguments.into_iter().filter(|word| word != "--quick").collect();
    let Some((name, options)) = arguments.split_first() else {
        eprintln!("usage: corro-bench NAME [--quick] [OPTIONS]");
        return ExitCode::from(USAGE_EXIT_CODE);
    };
    let Some(benchmark) = BENCHMARKS.iter().find(|benchmark| benchmark.name == *name) else {
        let names: Vec<_> = BENCHMARKS.iter().map(|benchmark| benchmark.name).collect();
        eprintln!("unknown benchmark '{name}'; available: {}", names.join(", "));
        return ExitCode::from(USAGE_EXIT_CODE);
    };
    if matches!(benchmark.run, Run::Plain(_)) && !options.is_empty() {
        eprintln!("{name} takes no options except --quick");
        return ExitCode::from(USAGE_EXIT_CODE);
    }
    println!("benchmark: {name} ({})", if scale == Scale::Quick { "quick" } else { "full" });
    println!("promise: {}", benchmark.promise);
    machine::describe();
    println!();
    let before = machine::Usage::now();
    let result = match benchmark.run {
        Run::Plain(run) => run(scale),
        Run::Options(run) => run(scale, options),
    };
    match result {
        Ok(verdict) => {
            println!("\nload average at the end: {}", machine::load_average());
            let others = before.zip(machine::Usage::now()).and_then(|(before, now)| now.others_since(&before));
            if let Some(others) = others {
                // A large value means that the numbers are distorted by other processes.
                println!("processor used by others, by processes of jobs and by the kernel meanwhile: {others:.0} %");
            }
            println!("verdict: {}: {}", if verdict.met { "met" } else { "missed" }, verdict.figures);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("the benchmark failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}
