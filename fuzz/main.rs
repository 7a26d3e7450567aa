//! `corro-fuzz TARGET SECONDS OUT`: coverage-guided fuzzing of one of `targets::TARGETS`. Started by `fuzz/run`, which builds it
//! with coverage.

mod driver;
mod mutate;
mod targets;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: driver::CountingAllocator = driver::CountingAllocator;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (name, seconds, out) = (args.next(), args.next(), args.next());
    let target = targets::TARGETS.iter().find(|(target, _)| Some(*target) == name.as_deref());
    let (Some((name, target)), Some(Ok(seconds)), Some(out)) = (target, seconds.map(|text| text.parse()), out) else {
        eprintln!("usage: corro-fuzz TARGET SECONDS OUT\n\ntargets:");
        targets::TARGETS.iter().for_each(|(name, _)| eprintln!("  {name}"));
        return ExitCode::from(2);
    };
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let config = driver::FuzzConfig {
        name: (*name).to_owned(),
        target: *target,
        time: Duration::from_secs(seconds),
        max_len: number("CORRO_FUZZ_MAX_LEN").unwrap_or(4096) as usize,
        seed: number("CORRO_FUZZ_SEED").unwrap_or_else(|| u64::from(std::process::id())),
        corpus: Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name),
        output: PathBuf::from(out).join(name),
    };
    if driver::run(&config) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
