//! What the program says beside its data. Entered by commands, instead of `println!` and `eprintln!`: those panic when
//! the stream is closed or its disk is full, and the exit code would no longer be the command's own. Names and texts of other people come
//! with what is said: no control code of theirs reaches a terminal.

use std::fmt::Display;
use std::io::{self, Write};

use crate::args::program;
use crate::output::escape_controls;
use crate::terminal_filter::ForeignText;

/// A line on standard error: notes, warnings, progress in words.
pub fn say(text: impl Display) {
    line(&mut io::stderr(), escape_lines(&as_called(&text.to_string())));
}

/// A line on standard output, where somebody reads it rather than a program.
pub fn tell(text: impl Display) {
    line(&mut foreign_stdout(), as_called(&text.to_string()));
}

/// Standard output for text of jobs and of other people, which is filtered when it is a terminal.
pub fn foreign_stdout() -> ForeignText<io::Stdout> {
    ForeignText::new(io::stdout())
}

/// Control codes are shown, line by line; tabs stay.
pub fn escape_lines(text: &str) -> String {
    let line = |line: &str| line.split('\t').map(escape_controls).collect::<Vec<_>>().join("\t");
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// The text with the commands in it as whoever called the program would write them: by the name they called it by.
pub fn as_called(text: &str) -> String {
    called(text, program())
}

fn called(text: &str, name: &str) -> String {
    text.replace("'corro ", &format!("'{name} "))
}

/// In one piece, so that lines of several processes on one terminal stay whole.
fn line(out: &mut impl Write, text: impl Display) {
    // Nobody is left to tell when the stream itself is gone.
    let _ = out.write_all(format!("{text}\n").as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    #[test]
    fn commands_are_written_with_the_name_that_was_called() {
        let text = "corro: see 'corro job why x', or 'corro up'";
        assert_eq!(called(text, "az"), "corro: see 'az job why x', or 'az up'");
        assert_eq!(called(text, "corro"), text);
    }

    #[test]
    fn control_codes_in_messages_are_shown() {
        let text = "a\tb \x1b]0;x\x07\n\u{9b}6n \r";
        assert_eq!(escape_lines(text), "a\tb \\x1b]0;x\\x07\n\\x9b6n \\x0d");
    }

    #[test]
    fn a_stream_that_takes_nothing_is_borne() {
        line(&mut Full, "lost");
        let mut out = Vec::new();
        line(&mut out, format_args!("{} {}", 1, 2));
        assert_eq!(out, b"1 2\n");
    }
}
