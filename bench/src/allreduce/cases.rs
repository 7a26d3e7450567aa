//! Benchmark cases and the text protocol between the benchmark and a rank. Every rank, ours or a peer's, receives the cases as
//! command-line arguments, and rank 0 prints one line per case; `worker` documents the measurement in between. Pure.

use anyhow::{Context, Result, ensure};

use super::resnet;
use crate::benchmarks::Scale;
use crate::peers::CommandOutput;

const KB: usize = 1 << 10;
const MB: usize = 1 << 20;
/// Name of the case with all gradients of one step of ResNet-50.
pub const RESNET_STEP: &str = "resnet50";

/// One call over one tensor, or a step: one call for each of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub name: String,
    /// Number of 32-bit floats of each tensor.
    pub lengths: Vec<usize>,
    /// Measuring time in microseconds; each rank derives the number of calls from it.
    pub budget_us: usize,
}

impl Case {
    pub fn of_bytes(bytes: usize, budget_us: usize) -> Self {
        Self { name: format_size(bytes), lengths: vec![bytes / 4], budget_us }
    }

    pub fn step(budget_us: usize) -> Self {
        Self { name: RESNET_STEP.to_owned(), lengths: resnet::gradients(), budget_us }
    }

    pub fn bytes(&self) -> usize {
        4 * self.lengths.iter().sum::<usize>()
    }

    /// The case as a command-line argument.
    pub fn to_argument(&self) -> String {
        let lengths: Vec<String> = self.lengths.iter().map(usize::to_string).collect();
        format!("{}:{}:{}", self.name, self.budget_us, lengths.join(","))
    }

    pub fn parse(argument: &str) -> Option<Self> {
        let mut parts = argument.splitn(3, ':');
        let (name, budget, lengths) = (parts.next()?, parts.next()?, parts.next()?);
        let lengths = lengths.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>().ok()?;
        Some(Self { name: name.to_owned(), lengths, budget_us: budget.parse().ok()? })
    }
}

/// Result of rank 0 for a case: nanoseconds per call, one value per batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    pub case: String,
    /// API variant of the calls, when there are several.
    pub variant: String,
    pub ns: Vec<f64>,
}

/// Parses the output of rank 0 and ignores other lines. A rank that ran into its time limit may lack some cases.
pub fn parse_output(output: &CommandOutput, cases: &[Case]) -> Result<Vec<Measurement>> {
    let lines = output.text.lines().filter_map(|line| line.strip_prefix("case "));
    let measured: Vec<Measurement> = lines.map(parse_line).collect::<Result<_>>()?;
    for Case { name, .. } in cases.iter().filter(|_| output.complete) {
        ensure!(measured.iter().any(|measured| measured.case == *name), "rank 0 printed no line for the case {name}");
    }
    Ok(measured)
}

fn parse_line(line: &str) -> Result<Measurement> {
    let mut words = line.split_whitespace();
    let mut next = || words.next().with_context(|| format!("truncated line: {line}"));
    let (case, variant) = (next()?.to_owned(), next()?.to_owned());
    let ns = words.map(str::parse).collect::<Result<Vec<f64>, _>>().with_context(|| format!("not numbers: {line}"))?;
    ensure!(!ns.is_empty(), "no figure for {case}");
    Ok(Measurement { case, variant, ns })
}

/// The size sweep: 4 B to 256 MB in powers of four, and commonly quoted powers of two.
pub fn sweep_sizes(scale: Scale) -> Vec<usize> {
    let quick = vec![4, KB, 16 * KB, 64 * KB, 256 * KB, MB, 4 * MB, 16 * MB, 64 * MB];
    scale.pick(quick, (1..=14).map(|power| 4_usize.pow(power)).collect())
}

/// Number of bytes with its largest whole unit.
pub fn format_size(bytes: usize) -> String {
    match bytes {
        bytes if bytes >= MB && bytes.is_multiple_of(MB) => format!("{}MB", bytes / MB),
        bytes if bytes >= KB && bytes.is_multiple_of(KB) => format!("{}KB", bytes / KB),
        bytes => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_survives_the_command_line() {
        for case in [Case::of_bytes(MB, 40_000), Case::step(1)] {
            assert_eq!(Case::parse(&case.to_argument()), Some(case));
        }
        for word in ["", "a", "a:1", "a:1:", "a:x:1", "a:1:1,,2"] {
            assert_eq!(Case::parse(word), None, "{word}");
        }
    }

    #[test]
    fn results_are_found_between_other_lines() {
        let cases = [Case::of_bytes(4, 1)];
        let complete = |text: &str| CommandOutput { text: text.to_owned(), complete: true };
        let measured = parse_output(&complete("hello\ncase 4B ordered 100 200.5\n"), &cases).expect("complete");
        assert_eq!(measured, [Measurement { case: "4B".into(), variant: "ordered".into(), ns: vec![100.0, 200.5] }]);
        for text in ["", "case 4B ordered", "case 4B ordered x", "case 1KB ordered 5"] {
            assert!(parse_output(&complete(text), &cases).is_err(), "{text}");
        }
        let stopped = CommandOutput { text: String::new(), complete: false };
        assert_eq!(parse_output(&stopped, &cases).expect("not everything is expected"), []);
    }

    #[test]
    fn the_sweep_has_every_size_that_is_promised() {
        let all = sweep_sizes(Scale::Full);
        for bytes in [4, MB, 16 * MB, 64 * MB, 256 * MB] {
            assert!(all.contains(&bytes), "{}", format_size(bytes));
        }
        assert_eq!(
            all.iter().map(|bytes| format_size(*bytes)).collect::<Vec<_>>().join(" "),
            "4B 16B 64B 256B 1KB 4KB 16KB 64KB 256KB 1MB 4MB 16MB 64MB 256MB"
        );
    }
}
