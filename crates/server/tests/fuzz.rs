//! The fuzz targets over their corpus, and over a bounded number of mutations of it that are the same in every run.
//! `CORRO_FUZZ_RUNS` asks for more mutations, `CORRO_FUZZ_SEED` for others. A failure prints seed and input; the input goes
//! into the corpus once it is mended.

#[path = "../../../fuzz/targets.rs"]
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use targets::{TARGETS, Target};

const RUNS: u64 = 4_000;
const SEED: u64 = 0x00C0_2202_6115;
const MAX_INPUT: usize = 16 * 1024;

/// Pieces that parsers look for.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "..", "/", "%2e", "%2F", "%00", "\\", "//", "\0", "é", "\u{202e}", "bytes=", "0-", "-1", "18446744073709551616", ",",
    "SharedKey acc:", "SharedKeyLite acc:", "Bearer ", "node:", ":", "sig=", "&se=", "sp=r", "sr=f", "spr=https", "sip=",
    "x-ms-range: ", "range: ", "if-match: *", "restype=directory", "comp=list", "sharesnapshot=", "prevsharesnapshot=",
    "{", "}", "[", "]", "\"", "null", "true", "1e999", "-0", "\\ud800", "\"properties\":", "\"nodeCount\":", "\n", "\r\n",
    "resourceGroups", "workspaces", "providers", "Microsoft.BatchAI", "subscriptions",
];

#[test]
fn the_corpus_and_its_mutations_hold() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (runs, seed) = (number("CORRO_FUZZ_RUNS").unwrap_or(RUNS), number("CORRO_FUZZ_SEED").unwrap_or(SEED));
    for (name, target) in TARGETS {
        let corpus = corpus(name);
        assert!(corpus.len() >= 3, "the corpus of {name} is missing");
        corpus.iter().for_each(|input| check(name, *target, input, "corpus"));
        let mut random = Random(seed);
        for run in 0..runs {
            let input = mutate(&corpus, &mut random);
            check(name, *target, &input, &format!("seed {seed}, run {run}"));
        }
    }
}

fn check(name: &str, target: Target, input: &[u8], origin: &str) {
    if catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
        panic!("the target {name} failed ({origin}) on:\n{}", input.escape_ascii());
    }
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("readable")).collect()
}

/// One to eight small changes to an input of the corpus.
fn mutate(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(8) {
        let at = random.below(input.len() + 1);
        match random.below(7) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = random.next() as u8,
            2 => {
                let end = (at + 1 + random.below(8)).min(input.len());
                input.drain(at.min(end)..end);
            }
            3 => {
                let end = (at + random.below(64)).min(input.len());
                let piece = input[at..end].to_vec();
                input.splice(at..at, piece);
            }
            4 => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => {
                let word = WORDS[random.below(WORDS.len())];
                input.splice(at..at, word.bytes());
            }
        }
        input.truncate(MAX_INPUT);
    }
    input
}

/// SplitMix64: the same numbers everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}
