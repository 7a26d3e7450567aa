//! A rule of the table: how a failure is recognised, and its explanation. What is recognised depends on the exit and the
//! output only, so a node can find the line that matters before it sends the output. Pure.

use super::facts::JobFacts;
use super::stderr::ErrorOutput;
use crate::explain::exit_status::ExitStatus;

/// A process that failed, as far as its exit and its output say.
#[derive(Clone, Debug)]
pub struct Failure<'a> {
    pub exit: ExitStatus,
    /// The kernel killed a process of the job because the job's memory limit was reached.
    pub is_out_of_memory: bool,
    /// The job reached its limit of processes.
    pub is_out_of_processes: bool,
    /// Numbers of the errors of the job's GPUs in the kernel's log, the most telling first.
    pub xids: Vec<u32>,
    pub output: ErrorOutput<'a>,
}

/// A kind of failure.
#[derive(Debug)]
pub struct Rule {
    /// Key of its documentation.
    pub key: &'static str,
    pub pattern: Pattern,
    pub answer: Answer,
}

/// Evidence of a failure.
#[derive(Debug)]
pub enum Pattern {
    /// A line of the final error contains one of these texts.
    Line(&'static [&'static str]),
    /// A line of the final error has this property.
    LineWith(fn(&str) -> bool),
    /// An exception of the final error contains one of these texts. For texts that programs also write when they go on.
    Raised(&'static [&'static str]),
    /// The exit, or what the node found.
    Exit(fn(&Failure<'_>) -> bool),
}

/// Explanation of a failure: its cause, and at most [`MAX_ADVICE`] pieces of advice.
#[derive(Debug)]
pub enum Answer {
    Fixed {
        cause: &'static str,
        advice: &'static [&'static str],
    },
    /// `None` if the line turns out to mean something else.
    Computed(fn(&Found<'_>, &JobFacts<'_>) -> Option<Finding>),
}

/// Evidence that was found.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// Empty for evidence that is not a line.
    pub line: &'a str,
    pub index: Option<usize>,
    pub failure: &'a Failure<'a>,
}

/// Cause and advice as sentences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub cause: String,
    pub advice: Vec<String>,
}

/// More than this nobody reads.
pub const MAX_ADVICE: usize = 3;

impl Finding {
    pub fn new<const N: usize>(cause: impl Into<String>, advice: [String; N]) -> Finding {
        const { assert!(N > 0 && N <= MAX_ADVICE) };
        Finding { cause: cause.into(), advice: advice.into() }
    }
}

impl Rule {
    /// All evidence in a failure, the last line first.
    pub fn find<'a>(&self, failure: &'a Failure<'a>) -> Vec<Found<'a>> {
        let output = &failure.output;
        let contains = |index: &usize, texts: &[&str]| texts.iter().any(|text| output.lines()[*index].contains(text));
        let found = |index: usize| Found { line: output.lines()[index], index: Some(index), failure };
        match &self.pattern {
            Pattern::Line(texts) => output.error_lines().filter(|index| contains(index, texts)).map(found).collect(),
            Pattern::LineWith(has) => output.error_lines().filter(|at| has(output.lines()[*at])).map(found).collect(),
            Pattern::Raised(texts) => output.exceptions().filter(|index| contains(index, texts)).map(found).collect(),
            Pattern::Exit(is_met) if is_met(failure) => vec![Found { line: "", index: None, failure }],
            Pattern::Exit(_) => Vec::new(),
        }
    }

    pub fn explain(&self, found: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
        match &self.answer {
            Answer::Fixed { cause, advice } => {
                let advice = advice.iter().map(|line| (*line).to_owned()).collect();
                Some(Finding { cause: (*cause).to_owned(), advice })
            }
            Answer::Computed(explain) => explain(found, facts),
        }
    }
}
