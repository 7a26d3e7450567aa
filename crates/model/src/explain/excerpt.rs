//! Shortens the standard error of a failed process to the lines that a report carries: the last ones, and those around
//! the error where a launcher's report follows it. Pure.

use super::rules::{ErrorOutput, find_error_line};
use crate::root_cause::cause_in;

/// Lines that a node keeps of a process's standard error, and their bytes. A report of `torchrun` has 45 lines, and each
/// rank below `mpirun` adds a traceback of its own.
pub const MAX_TAIL_LINES: usize = 400;
pub const MAX_TAIL_BYTES: usize = 32 * 1024;

/// Lines of an excerpt, and their bytes.
const MAX_LINES: usize = 20;
const MAX_BYTES: usize = 4 * 1024;
/// Lines before the error, those after it, and those at the end, of an excerpt with gaps.
const LINES_BEFORE: usize = 10;
const LINES_AFTER: usize = 3;
const LINES_AT_END: usize = 3;
/// Stands for lines that are left out.
pub const GAP: &str = "…";

/// At most 20 lines and 4 KiB of the last lines.
pub fn excerpt(lines: &[String]) -> Vec<String> {
    let first = first_of_last(lines, MAX_LINES);
    if first == 0 {
        return lines.to_vec();
    }
    let text = lines.join("\n");
    let error = find_error_line(&ErrorOutput::parse(&text));
    // The last line that names another rank decides which rank is the cause of the failure.
    let names_rank = lines.iter().rposition(|line| cause_in(line).is_some());
    let mut kept: Vec<usize> = match error.filter(|error| *error < first) {
        None => (first.min(lines.len() - 1)..lines.len()).collect(),
        Some(error) => {
            let around = error.saturating_sub(LINES_BEFORE)..(error + LINES_AFTER + 1).min(lines.len());
            around.chain(lines.len().saturating_sub(LINES_AT_END)..lines.len()).collect()
        }
    };
    kept.extend(names_rank);
    kept.sort_unstable();
    kept.dedup();
    shorten(lines, kept, error)
}

/// Index of the first of the last `n_lines` lines that have at most [`MAX_BYTES`].
fn first_of_last(lines: &[String], n_lines: usize) -> usize {
    let mut bytes = 0;
    let fitting = lines.iter().rev().take(n_lines).take_while(|line| {
        bytes += line.len() + 1;
        bytes <= MAX_BYTES
    });
    lines.len() - fitting.count()
}

/// Joins the kept lines with gaps. Long lines are cut if there is no room for them.
fn shorten(lines: &[String], kept: Vec<usize>, error: Option<usize>) -> Vec<String> {
    let total: usize = kept.iter().map(|index| lines[*index].len() + 1).sum();
    let max_line = if total <= MAX_BYTES { usize::MAX } else { MAX_BYTES / kept.len().max(1) };
    let mut shown = Vec::with_capacity(kept.len() + 2);
    let mut next = kept.first().copied().unwrap_or_default();
    for index in kept {
        if index != next {
            shown.push(GAP.to_owned());
        }
        next = index + 1;
        // The line with the error may have twice as much as the others.
        let max = if Some(index) == error { max_line.saturating_mul(2) } else { max_line };
        shown.push(cut(&lines[index], max));
    }
    shown
}

fn cut(line: &str, max_bytes: usize) -> String {
    if line.len() <= max_bytes {
        return line.to_owned();
    }
    let mut end = max_bytes;
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{GAP}", &line[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    fn numbered(word: &str, n: usize) -> String {
        (1..=n).map(|number| format!("{word} {number}\n")).collect()
    }

    const TRACEBACK: &str = "Traceback (most recent call last):\n  File \"train.py\", line 1, in <module>\n    import keras\n\
                             ModuleNotFoundError: No module named 'keras'\n";

    #[test]
    fn short_output_is_kept_as_it_is() {
        for text in ["", "one", TRACEBACK, &numbered("line", 20)] {
            assert_eq!(excerpt(&lines(text)), lines(text));
        }
    }

    #[test]
    fn without_a_known_error_the_last_lines_are_kept() {
        assert_eq!(excerpt(&lines(&numbered("line", 50))), lines(&numbered("line", 50))[30..]);
    }

    #[test]
    fn the_error_is_kept_where_a_launcher_writes_much_after_it() {
        let text = format!("{}{TRACEBACK}{}", numbered("before", 30), numbered("report", 40));
        let expected = format!(
            "{}{TRACEBACK}report 1\nreport 2\nreport 3\n…\nreport 38\nreport 39\nreport 40\n",
            numbered("before", 30).lines().skip(23).map(|line| format!("{line}\n")).collect::<String>()
        );
        assert_eq!(excerpt(&lines(&text)), lines(&expected));
    }

    #[test]
    fn the_line_that_names_another_rank_is_kept() {
        let named = "rank 2 on host n1 has died";
        let text = format!("{TRACEBACK}{}{named}\n{}", numbered("a", 20), numbered("b", 20));
        let short = excerpt(&lines(&text));
        assert!(short.contains(&named.to_owned()) && short.len() <= 22, "{short:?}");
    }

    #[test]
    fn bytes_are_bounded() {
        let long = format!("{}\n", "é".repeat(3000)).repeat(30);
        let short = excerpt(&lines(&format!("{TRACEBACK}{long}")));
        assert!(short.iter().map(|line| line.len() + 1).sum::<usize>() <= 2 * MAX_BYTES, "{short:?}");
        assert!(short.iter().any(|line| line.starts_with("ModuleNotFoundError")));
        let one = vec!["x".repeat(10_000)];
        assert!(excerpt(&one)[0].len() <= MAX_BYTES + GAP.len());
    }
}
