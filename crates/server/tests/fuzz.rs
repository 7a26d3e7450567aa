//! The fuzz targets over their corpus, and over a bounded number of mutations of it that are the same in every run.
//! `CORRO_FUZZ_RUNS` asks for more mutations, `CORRO_FUZZ_SEED` for others. A failure prints seed and input; the input goes
//! into the corpus once it is mended.

#[path = "../../../fuzz/mutate.rs"]
mod mutate;
#[path = "../../../fuzz/targets.rs"]
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use mutate::{Random, mutate, read_corpus};
use targets::{TARGETS, Target};

const RUNS: u64 = 4_000;
/// Of targets that touch the disk with every input.
const RUNS_ON_DISK: u64 = 400;
const MAX_LEN: usize = 16 * 1024;
const SEED: u64 = 0x00C0_2202_6115;

#[test]
fn the_corpus_and_its_mutations_hold() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = number("CORRO_FUZZ_SEED").unwrap_or(SEED);
    for (name, target) in TARGETS {
        let usual = if *name == "nfs" { RUNS_ON_DISK } else { RUNS };
        let runs = number("CORRO_FUZZ_RUNS").unwrap_or(usual);
        let corpus = read_corpus(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name));
        assert!(corpus.len() >= 3, "the corpus of {name} is missing");
        corpus.iter().for_each(|input| check(name, *target, input, "corpus"));
        let mut random = Random(seed);
        for run in 0..runs {
            let input = mutate(&corpus, &mut random, MAX_LEN);
            check(name, *target, &input, &format!("seed {seed}, run {run}"));
        }
    }
}

fn check(name: &str, target: Target, input: &[u8], origin: &str) {
    if catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
        panic!("the target {name} failed ({origin}) on:\n{}", input.escape_ascii());
    }
}
