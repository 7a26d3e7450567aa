//! Questions to the user: confirmation before something is destroyed, and secrets. On standard error, so that standard output stays data; never asks
//! for confirmation where nobody can answer.

use std::io::{self, BufRead, Write};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use thiserror::Error;

use crate::talk::escape_lines;

const QUESTION: &str = "Are you sure you want to perform this operation?";

#[derive(Debug, Error)]
pub enum NotConfirmed {
    #[error("Unable to prompt for confirmation as no tty available. Use --yes.")]
    NoTerminal,
    #[error("Operation cancelled.")]
    Cancelled,
    #[error("cannot ask for confirmation")]
    Ask(#[from] io::Error),
}

/// Says what will be lost, then asks. Returns when the user agrees.
pub fn confirm_loss(yes: bool, loss: Option<&str>) -> Result<(), NotConfirmed> {
    if yes {
        return Ok(());
    }
    if !rustix::termios::isatty(io::stdin()) {
        return Err(NotConfirmed::NoTerminal);
    }
    if let Some(loss) = loss {
        writeln!(io::stderr(), "{}", escape_lines(loss))?;
    }
    ask(&mut io::stdin().lock(), &mut io::stderr())
}

/// Reads one line from standard input; a terminal does not show it while it is typed.
pub fn read_hidden(name: &str) -> io::Result<String> {
    if !rustix::termios::isatty(io::stdin()) {
        writeln!(io::stderr(), "{name} (one line on standard input):")?;
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        return Ok(line);
    }
    write!(io::stderr(), "{name}: ")?;
    io::stderr().flush()?;
    let _hidden = HiddenInput::enter()?;
    let line = hidden_line(io::stdin().lock());
    writeln!(io::stderr())?;
    line
}

/// The keys up to the end of the line, as a terminal hands them over one by one. Ctrl-C is an error.
fn hidden_line(keys: impl BufRead) -> io::Result<String> {
    const CTRL_C: u8 = 3;
    const CTRL_D: u8 = 4;
    const CTRL_U: u8 = 21;
    const BACKSPACE: [u8; 2] = [8, 127];
    let mut line: Vec<u8> = Vec::new();
    for key in keys.bytes() {
        match key? {
            b'\n' | b'\r' | CTRL_D => break,
            CTRL_C => return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted by Ctrl-C")),
            CTRL_U => line.clear(),
            key if BACKSPACE.contains(&key) => {
                // A character may have several bytes; all but its first begin with the bits 10.
                while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
            }
            key => line.push(key),
        }
    }
    String::from_utf8(line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// The terminal hands over single keys, Ctrl-C too, and shows none of them, until this is dropped.
struct HiddenInput(Termios);

impl HiddenInput {
    fn enter() -> io::Result<HiddenInput> {
        let before = tcgetattr(io::stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
        Ok(HiddenInput(before))
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        // Nobody is left to tell.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Asks until the answer is y, yes, n or no. The end of input is a no.
fn ask(input: &mut impl BufRead, talk: &mut impl Write) -> Result<(), NotConfirmed> {
    loop {
        write!(talk, "{QUESTION} (y/n): ")?;
        talk.flush()?;
        let mut answer = String::new();
        if input.read_line(&mut answer)? == 0 {
            writeln!(talk)?;
            return Err(NotConfirmed::Cancelled);
        }
        match answer.trim().to_lowercase().as_str() {
            "y" | "yes" => return Ok(()),
            "n" | "no" => return Err(NotConfirmed::Cancelled),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(answers: &str, agreed: bool, questions: usize) {
        let mut talk = Vec::new();
        let result = ask(&mut answers.as_bytes(), &mut talk);
        let talk = String::from_utf8(talk).expect("UTF-8");
        assert_eq!(result.is_ok(), agreed, "{answers:?}");
        assert_eq!(
            talk.matches("Are you sure you want to perform this operation? (y/n): ").count(),
            questions,
            "{answers:?}"
        );
    }

    #[test]
    fn a_hidden_line_can_be_corrected_and_given_up() {
        let line = |keys: &str| hidden_line(keys.as_bytes()).map_err(|error| error.kind());
        assert_eq!(line("secret\rmore"), Ok("secret".to_owned()));
        assert_eq!(line("axä\x7f\x7fb\n"), Ok("ab".to_owned()));
        assert_eq!(line("\x7fwrong\x15right"), Ok("right".to_owned()));
        assert_eq!(line("half\x03"), Err(io::ErrorKind::Interrupted));
    }

    #[test]
    fn asks_until_it_understands() {
        check("y\n", true, 1);
        check("YES\n", true, 1);
        check("n\n", false, 1);
        check("no\n", false, 1);
        check("\nmaybe\ny\n", true, 3);
        check("what", false, 2);
        check("", false, 1);
    }

    #[test]
    fn yes_asks_nothing() {
        assert!(confirm_loss(true, None).is_ok());
    }
}
