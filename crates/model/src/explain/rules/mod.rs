//! Rules that explain why a process of a job failed: from its exit and its last lines on stderr to a cause, advice and a
//! key of the documentation. One file for each family. The most specific rule comes first; a failure that no rule knows
//! keeps the general explanation. Pure.
//!
//! Reading order: [`stderr`] (the lines of the final error), [`rule`], [`facts`], then the families.

mod collectives;
mod facts;
mod files;
mod gpu;
mod memory;
mod modules;
mod network;
mod pip;
mod project;
mod python;
mod rule;
mod shell;
mod signals;
mod stderr;
#[cfg(test)]
mod tests;
mod text;
mod variables;
mod xid;

pub use self::facts::JobFacts;
pub use self::project::{ProjectFiles, project_root};
pub use self::rule::{Failure, Finding, MAX_ADVICE};
pub use self::stderr::ErrorOutput;

use self::rule::Rule;

/// All rules, in the order in which they are tried.
const FAMILIES: [&[Rule]; 12] = [
    xid::HARDWARE,
    memory::LIMITS,
    pip::RULES,
    python::RULES,
    gpu::RULES,
    collectives::RULES,
    memory::RULES,
    network::RULES,
    shell::RULES,
    files::RULES,
    xid::OTHERS,
    signals::RULES,
];

/// Keys of the rules whose explanation depends on the job's files.
pub const KEYS_ABOUT_FILES: [&str; 4] =
    ["python-module-missing", "script-missing", "file-missing", "pip-requirements-missing"];

/// A failure that a rule recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// Key of the documentation.
    pub key: &'static str,
    pub finding: Finding,
}

/// Explanation of a failure by the first rule that knows it.
pub fn diagnose(failure: &Failure<'_>, facts: &JobFacts<'_>) -> Option<Diagnosis> {
    rules().find_map(|rule| {
        let mut evidence = rule.find(failure).into_iter();
        let finding = evidence.find_map(|found| rule.explain(&found, facts))?;
        Some(Diagnosis { key: rule.key, finding })
    })
}

/// Index of the line that matters most: the one that a rule knows, else the exception that ended the process.
pub fn find_error_line(output: &ErrorOutput<'_>) -> Option<usize> {
    let failure = Failure {
        exit: Default::default(),
        is_out_of_memory: false,
        is_out_of_processes: false,
        xids: Vec::new(),
        output: output.clone(),
    };
    let known = rules().find_map(|rule| rule.find(&failure).into_iter().find_map(|found| found.index));
    known.or_else(|| output.exceptions().next())
}

/// Keys of the documentation that rules refer to.
pub fn docs_keys() -> impl Iterator<Item = &'static str> {
    rules().map(|rule| rule.key)
}

fn rules() -> impl Iterator<Item = &'static Rule> {
    FAMILIES.iter().flat_map(|family| family.iter())
}
