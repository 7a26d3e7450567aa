//! The end of a process's standard error, split into the lines of the final error and those before it. Finds Python's
//! tracebacks: the exception that ended the process and those that led to it, also where a launcher reports the end
//! after them. Pure.

use std::ops::Range;

/// Lines that are searched if there is no traceback, or only that of a launcher, from its beginning back.
const MAX_LINES_BEFORE_REPORT: usize = 60;

/// Texts at the beginning of exceptions that follow from the end of another process.
const CONSEQUENCES: [&str; 11] = [
    "BrokenPipeError",
    "CalledProcessError",
    "ConnectionResetError",
    "EOFError",
    "HorovodInternalError",
    "KeyboardInterrupt",
    "SystemExit",
    "horovod.common.exceptions.HorovodInternalError",
    "subprocess.CalledProcessError",
    "torch.distributed.elastic.multiprocessing.api.SignalException",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError",
];
/// Texts in exceptions that follow from the end of another process.
const CONSEQUENCE_TEXTS: [&str; 3] =
    ["Connection closed by peer", "Connection reset by peer", "remote process exited or there was a network error"];

/// Output of a process, as rules search it.
#[derive(Clone, Debug)]
pub struct ErrorOutput<'a> {
    /// Lines without the prefixes by which launchers name ranks.
    lines: Vec<&'a str>,
    /// Exceptions of the final error, the one that ended the process last.
    raised: Vec<Raised>,
    /// Lines that are not evidence: source lines of tracebacks, and exceptions that follow from the end of another process.
    hidden: Vec<Range<usize>>,
    /// First line of the final error.
    start: usize,
}

/// An exception in a traceback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Raised {
    /// First line of the traceback.
    header: usize,
    /// The line with the exception's name.
    line: usize,
    /// It was raised while the one before it was handled.
    is_chained: bool,
}

impl<'a> ErrorOutput<'a> {
    pub fn parse(text: &'a str) -> ErrorOutput<'a> {
        let lines: Vec<&str> = text.lines().map(strip_rank).collect();
        let mut raised = find_exceptions(&lines);
        let Some(last) = raised.iter().rposition(|exception| !is_consequence(&lines, *exception)) else {
            let end = raised.first().map_or(lines.len(), |first| first.header);
            let hidden = raised.iter().map(|one| one.header..one.line).collect();
            return ErrorOutput { lines, raised, hidden, start: end.saturating_sub(MAX_LINES_BEFORE_REPORT) };
        };
        let hidden = raised.iter().enumerate().map(|(index, one)| one.header..one.line + usize::from(index > last));
        let hidden = hidden.collect();
        let mut first = last;
        while first > 0 && raised[first].is_chained {
            first -= 1;
        }
        let start = raised[first].header;
        raised.truncate(last + 1);
        raised.drain(..first);
        ErrorOutput { lines, raised, hidden, start }
    }

    /// All lines, oldest first.
    pub fn lines(&self) -> &[&'a str] {
        &self.lines
    }

    /// Indices of the lines of the final error, last first.
    pub fn error_lines(&self) -> impl Iterator<Item = usize> {
        let is_hidden = |index: usize| self.hidden.iter().any(|lines| lines.contains(&index));
        (self.start..self.lines.len()).rev().filter(move |index| !is_hidden(*index))
    }

    /// Indices of the lines with the exceptions of the final error, last first.
    pub fn exceptions(&self) -> impl Iterator<Item = usize> {
        self.raised.iter().rev().map(|one| one.line)
    }

    /// File of the innermost frame before an exception, as Python names it.
    pub fn innermost_file(&self, exception: usize) -> Option<&'a str> {
        let mut before = self.lines[..exception.min(self.lines.len())].iter().rev();
        before.find_map(|line| line.trim_start().strip_prefix("File \"")?.split('"').next())
    }
}

fn find_exceptions(lines: &[&str]) -> Vec<Raised> {
    let mut found: Vec<Raised> = Vec::new();
    let mut header = lines.first().filter(|line| line.starts_with("    ")).map(|_| 0);
    for (index, line) in lines.iter().enumerate() {
        if line.starts_with("Traceback (most recent call last):") {
            header = Some(index);
        } else if line.starts_with(' ') && line.trim_start().starts_with("File \"") {
            // A syntax error of the script itself has no header, and a long traceback may have lost it.
            header = header.or(Some(index));
        } else if let Some(first) = header
            && is_exception(line)
        {
            let after = found.last().map_or(0, |before| before.line + 1);
            let is_chained = !found.is_empty() && lines[after..first].iter().any(|line| chains(line));
            found.push(Raised { header: first, line: index, is_chained });
            header = None;
        }
    }
    found
}

/// Python's sentences between an exception and one that was raised because of it.
fn chains(line: &str) -> bool {
    line.starts_with("During handling of the above exception, another exception occurred:")
        || line.starts_with("The above exception was the direct cause of the following exception:")
}

/// Whether a line after a traceback states the exception: `KeyError: 'x'`, `socket.gaierror: …`, `MemoryError`.
fn is_exception(line: &str) -> bool {
    let name = line.split(':').next().unwrap_or_default();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
    // Not the level of a log line, such as `ERROR: …`.
    let is_level = name.chars().all(|c| c.is_ascii_uppercase());
    let is_class = name.contains('.') || name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_');
    let ends = line.len() == name.len() || line[name.len()..].starts_with(": ") || line.ends_with(':');
    is_name && !is_level && is_class && ends
}

fn is_consequence(lines: &[&str], exception: Raised) -> bool {
    let line = lines[exception.line];
    let before = exception.header.checked_sub(1).map_or("", |before| lines[before]);
    let name = line.split(':').next().unwrap_or_default();
    CONSEQUENCES.contains(&name)
        || CONSEQUENCE_TEXTS.iter().any(|text| line.contains(text))
        || before.starts_with("Exception ignored in")
        || before.starts_with("Error in atexit")
}

/// Removes the rank before a line: `[rank0]: ` of PyTorch, `[0] ` of Corro, `[0]<stderr>:` of horovodrun, `[1,0]<stderr>:`
/// of mpirun.
fn strip_rank(line: &str) -> &str {
    let Some((rank, rest)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) else { return line };
    let digits = rank.strip_prefix("rank").unwrap_or(rank);
    if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_digit() || c == ',') {
        return line;
    }
    if let Some(text) = rest.strip_prefix("<stderr>:").or_else(|| rest.strip_prefix("<stdout>:")) {
        // Open MPI writes a space since version 5. Frames of a traceback stay indented without theirs.
        return text.strip_prefix(' ').unwrap_or(text);
    }
    let text = rest.strip_prefix(':').unwrap_or(rest);
    text.strip_prefix(' ').unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exceptions of the final error, and its other lines, in their order.
    fn check(text: &str, exceptions: &[&str], others: &[&str]) {
        let output = ErrorOutput::parse(text);
        let mut raised: Vec<&str> = output.exceptions().map(|index| output.lines()[index]).collect();
        raised.reverse();
        assert_eq!(raised, exceptions, "{text}");
        let is_other = |index: &usize| !output.exceptions().any(|one| one == *index);
        let mut found: Vec<&str> = output.error_lines().filter(is_other).map(|index| output.lines()[index]).collect();
        found.reverse();
        assert_eq!(found, others, "{text}");
    }

    const FRAME: &str = "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    run()\n";

    #[test]
    fn the_final_error_is_the_last_traceback_with_those_that_led_to_it() {
        let during = "\nDuring handling of the above exception, another exception occurred:\n\n";
        check("", &[], &[]);
        check("one\ntwo", &[], &["one", "two"]);
        check(&format!("warning\n{FRAME}KeyError: 'a'\nbye"), &["KeyError: 'a'"], &["bye"]);
        check(&format!("{FRAME}KeyError: 'a'\nlogged\n{FRAME}MemoryError"), &["MemoryError"], &[]);
        check(
            &format!("{FRAME}KeyError: 'a'\n{during}{FRAME}ValueError: b"),
            &["KeyError: 'a'", "ValueError: b"],
            &["", during.trim(), ""],
        );
        check(
            "  File \"a.py\", line 3\n    print \"x\"\n    ^\nSyntaxError: invalid syntax",
            &["SyntaxError: invalid syntax"],
            &[],
        );
        check("    run()\nOSError: [Errno 24] x", &["OSError: [Errno 24] x"], &[]);
        check("usage: a\na.py: error: x", &[], &["usage: a", "a.py: error: x"]);
    }

    #[test]
    fn what_follows_from_the_end_of_another_process_is_passed_over() {
        let failed = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ";
        check(&format!("{FRAME}KeyError: 'a'\nnoise\n{FRAME}{failed}\nend"), &["KeyError: 'a'"], &["noise", "end"]);
        check(&format!("crash\n{FRAME}{failed}\nend"), &[failed], &["crash", "end"]);
        let ignored = "Exception ignored in: <function f at 0x7f>";
        check(&format!("{FRAME}KeyError: 'a'\n{ignored}\n{FRAME}TypeError: x"), &["KeyError: 'a'"], &[ignored]);
    }

    #[test]
    fn ranks_before_lines_are_removed() {
        for prefix in ["[rank0]: ", "[3] ", "[0]<stderr>:", "[1,0]<stderr>:", "[1,12]<stderr>: "] {
            let text: Vec<String> =
                format!("{FRAME}KeyError: 'a'").lines().map(|line| format!("{prefix}{line}")).collect();
            check(&text.join("\n"), &["KeyError: 'a'"], &[]);
        }
        assert_eq!(strip_rank("[2026-01-01 10:00:00] x"), "[2026-01-01 10:00:00] x");
        assert_eq!(strip_rank("[]"), "[]");
    }

    #[test]
    fn the_innermost_file_is_that_of_the_failing_line() {
        let text = "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    run()\n  File \"/b/c.py\", line 2, in run\n    x\nKeyError: 'a'";
        assert_eq!(ErrorOutput::parse(text).innermost_file(5), Some("/b/c.py"));
        assert_eq!(ErrorOutput::parse("x").innermost_file(0), None);
    }
}
