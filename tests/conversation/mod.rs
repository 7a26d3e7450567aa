//! Runs a recorded command-line session against its own server and compares the output. The text format consists of lines:
//!
//! - `# …` and blank lines are comments;
//! - `$ corro …` or `$ az …` is a command line, with quotes as in a shell and nothing else of one;
//! - below it, `  …` is its standard output, `! …` its standard error, and `= N` its exit code, unless 0;
//! - `@ NAME` begins a file for the commands to read, a line with a single `@` ends it;
//! - `% env NAME=VALUE` sets a variable for what follows;
//! - `% let NAME <- …` stores the output of a command, without its last newline, for `{NAME}` in later command lines;
//! - `% until TEXT <- …` repeats a command line until its standard output contains the text.
//!
//! Values that differ from run to run (times, ids, ports, paths) are replaced by a word in angle brackets; see `normalize`.

mod normalize;

use std::path::Path;
use std::process::Command;

use crate::harness::{Site, wait_for};

/// Runs the session and compares its output with the text; or rewrites the text on request.
pub fn check(path: &Path) {
    let expected = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let actual = Conversation::start().record(&expected);
    if std::env::var_os("CORRO_REWRITE").is_some() {
        std::fs::write(path, actual).expect("the text can be written");
        return;
    }
    if actual != expected {
        panic!(
            "{} went differently:\n{}\nCORRO_REWRITE=1 writes it anew",
            path.display(),
            difference(&expected, &actual)
        );
    }
}

/// For every command line with this prefix in a text, whether it succeeded.
pub fn command_results(text: &str, command: &str) -> Vec<bool> {
    let mut results = Vec::new();
    let mut is_wanted = false;
    for line in text.lines() {
        if let Some(line) = line.strip_prefix("$ ") {
            is_wanted = format!("{line} ").split_once(' ').is_some_and(|(_, words)| words.starts_with(command));
            if is_wanted {
                results.push(true);
            }
        } else if line.starts_with("= ") && is_wanted {
            *results.last_mut().expect("a command line came before") = false;
        }
    }
    results
}

struct Conversation {
    site: Site,
    variables: Vec<(String, String)>,
    stored_outputs: Vec<(String, String)>,
}

impl Conversation {
    fn start() -> Self {
        Self { site: Site::start(), variables: Vec::new(), stored_outputs: Vec::new() }
    }

    /// The text with the current output.
    fn record(mut self, expected: &str) -> String {
        let mut actual = String::new();
        let mut lines = expected.lines();
        while let Some(line) = lines.next() {
            if line.starts_with("  ") || line.starts_with('!') || line.starts_with("= ") {
                continue;
            }
            actual.push_str(&format!("{line}\n"));
            if let Some(command) = line.strip_prefix("$ ") {
                actual.push_str(&self.run_command(command));
            } else if let Some(name) = line.strip_prefix("@ ") {
                let content: Vec<&str> = lines.by_ref().take_while(|line| *line != "@").collect();
                self.site.write(name, format!("{}\n", content.join("\n")));
                actual.push_str(&format!("{}\n@\n", content.join("\n")));
            } else if let Some(rest) = line.strip_prefix("% env ") {
                let (name, value) = rest.split_once('=').expect("NAME=VALUE");
                self.variables.push((name.to_owned(), value.to_owned()));
            } else if let Some(rest) = line.strip_prefix("% let ") {
                let (name, command) = rest.split_once(" <- ").expect("NAME <- command line");
                let output = self.command(command).output().expect("the command runs");
                let text = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
                self.stored_outputs.push((format!("{{{name}}}"), text));
            } else if let Some(rest) = line.strip_prefix("% until ") {
                let (text, command) = rest.split_once(" <- ").expect("TEXT <- command line");
                wait_for(line, || {
                    let output = self.command(command).output().expect("the command runs");
                    String::from_utf8_lossy(&output.stdout).contains(text)
                });
            }
        }
        actual
    }

    fn command(&self, line: &str) -> Command {
        let line = self.stored_outputs.iter().fold(line.to_owned(), |line, (name, text)| line.replace(name, text));
        let mut words = words(&line).into_iter();
        let name = words.next().expect("a program");
        assert!(name == "corro" || name == "az", "only our own program takes part: {line}");
        let mut command = self.site.command(&name);
        command.args(words).env("USER", "me").env("LOGNAME", "me").env("TERM", "dumb").env_remove("COLUMNS");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    fn run_command(&self, line: &str) -> String {
        let output = self.command(line).output().unwrap_or_else(|error| panic!("{line}: {error}"));
        let text = |bytes: &[u8]| normalize::normalize(&String::from_utf8_lossy(bytes), &self.site);
        let mut actual = with_prefix(&text(&output.stdout), "  ") + &with_prefix(&text(&output.stderr), "! ");
        match output.status.code() {
            Some(0) => {}
            Some(code) => actual.push_str(&format!("= {code}\n")),
            None => actual.push_str("= killed\n"),
        }
        actual
    }
}

/// Every line with a prefix. An empty line is its prefix alone, and on standard output a visible dot.
fn with_prefix(text: &str, prefix: &str) -> String {
    let mut actual = String::new();
    for line in text.lines() {
        let line = if line.is_empty() && prefix.trim().is_empty() { "." } else { line };
        actual.push_str(format!("{prefix}{line}").trim_end());
        actual.push('\n');
    }
    if !text.is_empty() && !text.ends_with('\n') {
        actual.push_str(&format!("{prefix}(no new line at the end)\n"));
    }
    actual
}

/// Splits a command line; single and double quotes keep blanks, and there is no other syntax.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    assert!(quote.is_none(), "a quote is left open: {line}");
    words.extend(word);
    words
}

/// The first difference between two texts, with its context.
fn difference(expected: &str, actual: &str) -> String {
    let (expected, actual): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), actual.lines().collect());
    let at = expected.iter().zip(&actual).take_while(|(a, b)| a == b).count();
    let command = actual[..at.min(actual.len())].iter().rposition(|line| line.starts_with("$ ")).unwrap_or(0);
    let lines_from_difference = |lines: &[&str], prefix: &str| {
        let end = (at + 12).min(lines.len());
        lines[at.min(end)..end].iter().map(|line| format!("{prefix} {line}\n")).collect::<String>()
    };
    let before: String = actual[command..at].iter().map(|line| format!("  {line}\n")).collect();
    format!("line {}\n{before}{}{}", at + 1, lines_from_difference(&expected, "-"), lines_from_difference(&actual, "+"))
}

#[test]
fn words_of_a_command_line() {
    assert_eq!(words("a 'b c' \"\" d=\"e f\""), ["a", "b c", "", "d=e f"]);
}
