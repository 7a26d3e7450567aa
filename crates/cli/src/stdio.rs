//! Messages for people on standard error and standard output. Used instead of `println!` and `eprintln!`, which panic when the stream is closed or
//! its disk is full and would change the command's exit code. Texts may contain names that other users chose, so control characters are
//! escaped or filtered.

use std::fmt::Display;
use std::io::{self, Write};

use crate::output::escape_controls;
use crate::program_name::program_name;
use crate::terminal_filter::FilteredWriter;

/// Writes a line to standard error: notes, warnings, progress.
pub fn note(text: impl Display) {
    write_line(&mut io::stderr(), escape_lines(&with_program_name(&text.to_string())));
}

/// Writes a line to standard output: results in words. Data goes through [`crate::session::Session`].
pub fn print(text: impl Display) {
    write_line(&mut filtered_stdout(), with_program_name(&text.to_string()));
}

/// Standard output for text of jobs and of other users. Dangerous escape sequences are removed if it is a terminal.
pub fn filtered_stdout() -> FilteredWriter<io::Stdout> {
    FilteredWriter::new(io::stdout())
}

/// Escapes control characters except tabs and newlines.
pub fn escape_lines(text: &str) -> String {
    let line = |line: &str| line.split('\t').map(escape_controls).collect::<Vec<_>>().join("\t");
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Replaces `corro` in quoted command lines by the name under which the program was called.
pub fn with_program_name(text: &str) -> String {
    replace_program_name(text, program_name())
}

fn replace_program_name(text: &str, name: &str) -> String {
    text.replace("'corro ", &format!("'{name} "))
}

/// One write per line, so that lines of several processes on one terminal do not mix. Errors are ignored: there is no stream left to report
/// them to.
fn write_line(out: &mut impl Write, text: impl Display) {
    let _ = out.write_all(format!("{text}\n").as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    struct FullDisk;

    impl Write for FullDisk {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    #[test]
    fn commands_are_written_with_the_name_that_wwith_program_name() {
        let text = "corro: see 'corro job why x', or 'corro up'";
        assert_eq!(replace_program_name(text, "az"), "corro: see 'az job why x', or 'az up'");
        assert_eq!(replace_program_name(text, "corro"), text);
    }

    #[test]
    fn control_characters_in_messages_are_escaped() {
        let text = "a\tb \x1b]0;x\x07\n\u{9b}6n \r";
        assert_eq!(escape_lines(text), "a\tb \\x1b]0;x\\x07\n\\x9b6n \\x0d");
    }

    #[test]
    fn write_errors_are_ignored() {
        write_line(&mut FullDisk, "lost");
        let mut out = Vec::new();
        write_line(&mut out, format_args!("{} {}", 1, 2));
        assert_eq!(out, b"1 2\n");
    }
}
