//! Records what a test did not test. A test that misses something calls [`missing_component`] or [`unsupported_machine`]
//! and returns; `scripts/check` collects the records in the file named by [`RECORD_VARIABLE`] and ends with their list.
//!
//! A component can be installed: a program, a package, a client. With `CORRO_TEST_REQUIRE=all`, which CI sets, a missing one
//! fails the test. Processors, GPUs, kernel features and downloaded data sets cannot be installed by a script: without
//! them a test is recorded as not done, and fails only where `CORRO_TEST_REQUIRE` also names `machine`.

use std::fmt::Display;
use std::io::Write;

/// File to which each record is appended, one line each: test, kind, reason, separated by tabs.
pub const RECORD_VARIABLE: &str = "CORRO_TEST_SKIPPED";
/// Comma-separated kinds that must be there: `all` (every component), `machine`.
pub const REQUIRE_VARIABLE: &str = "CORRO_TEST_REQUIRE";

/// Something that could have been installed is not there: `reason` says what, and which part is not tested.
///
/// # Panics
/// If `CORRO_TEST_REQUIRE` contains `all`.
#[track_caller]
pub fn missing_component(reason: impl Display) {
    record("component", "all", &reason.to_string());
}

/// This machine, its kernel or this user's rights do not allow the test, or a data set is not there.
///
/// # Panics
/// If `CORRO_TEST_REQUIRE` contains `machine`.
#[track_caller]
pub fn unsupported_machine(reason: impl Display) {
    record("machine", "machine", &reason.to_string());
}

/// The variables of this module, which a test takes from a child that runs as another user: it could not write the file.
pub const VARIABLES: [&str; 2] = [RECORD_VARIABLE, REQUIRE_VARIABLE];

/// Records again what a child process printed as skipped.
pub fn record_child(output: &str) {
    for reason in output.lines().filter_map(|line| line.strip_prefix(PRINTED)) {
        unsupported_machine(format_args!("in a child process: {reason}"));
    }
}

const PRINTED: &str = "SKIPPED: ";
/// Characters of a reason that are recorded: some quote a whole log.
const MAX_REASON_CHARS: usize = 200;

#[track_caller]
fn record(kind: &str, requirement: &str, reason: &str) {
    let required = std::env::var(REQUIRE_VARIABLE).unwrap_or_default();
    assert!(!requires(&required, requirement), "not tested, and {REQUIRE_VARIABLE} is {required}: {reason}");
    let line = record_line(test_name(), kind, reason);
    eprint!("{PRINTED}{line}");
    let Some(path) = std::env::var_os(RECORD_VARIABLE).filter(|path| !path.is_empty()) else { return };
    // One write in append mode, so that records of concurrent tests do not mix.
    let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
        panic!("cannot record a skipped test in {}: {error}", path.display());
    }
}

fn requires(required: &str, requirement: &str) -> bool {
    required.split(',').any(|word| word.trim() == requirement)
}

/// `libtest` names the thread of a test after it; other threads are named by their program.
fn test_name() -> String {
    let program = std::env::args().next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    // Cargo appends a hash to the name of a test program.
    let program = program.rsplit_once('-').map_or(program, |(name, _)| name);
    match std::thread::current().name() {
        Some(test) => format!("{program}::{test}"),
        None => program.to_owned(),
    }
}

fn record_line(test: String, kind: &str, reason: &str) -> String {
    let reason: String =
        reason.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MAX_REASON_CHARS).collect();
    format!("{test}\t{kind}\t{reason}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_requirements_is_read_word_by_word() {
        for (required, requirement, expected) in [
            ("", "all", false),
            ("all", "all", true),
            ("all", "machine", false),
            ("all, machine", "machine", true),
            ("allow", "all", false),
        ] {
            assert_eq!(requires(required, requirement), expected, "{required:?} {requirement:?}");
        }
    }

    #[test]
    fn a_record_is_one_line_of_three_fields() {
        assert_eq!(record_line("t".to_owned(), "component", "no\tprogram\nhere"), "t\tcomponent\tno program here\n");
    }

    #[test]
    fn tests_are_named_with_their_program() {
        assert!(test_name().ends_with("::skip::tests::tests_are_named_with_their_program"), "{}", test_name());
    }
}
