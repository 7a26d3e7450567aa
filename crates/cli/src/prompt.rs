//! Prompts on standard error: confirmations and passwords. Without a terminal a confirmation is an error, never a silent yes.

use std::io::{self, BufRead, Write};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use thiserror::Error;

use crate::stdio::escape_lines;

const QUESTION: &str = "Are you sure you want to perform this operation?";

#[derive(Debug, Error)]
pub enum ConfirmError {
    #[error("Unable to prompt for confirmation as no tty available. Use --yes.")]
    NoTerminal,
    #[error("Operation cancelled.")]
    Cancelled,
    #[error("cannot ask for confirmation")]
    Prompt(#[from] io::Error),
}

/// Prints the warning and asks for confirmation, unless `yes`. Returns if the user agrees.
pub fn confirm(yes: bool, warning: Option<&str>) -> Result<(), ConfirmError> {
    if yes {
        return Ok(());
    }
    if !rustix::termios::isatty(io::stdin()) {
        return Err(ConfirmError::NoTerminal);
    }
    if let Some(warning) = warning {
        writeln!(io::stderr(), "{}", escape_lines(warning))?;
    }
    ask(&mut io::stdin().lock(), &mut io::stderr())
}

/// Asks a question whose answer is yes unless the user says no. End of file is a no. The caller has checked that there is a terminal.
pub fn ask_unless_no(question: &str) -> io::Result<bool> {
    read_answer(question, &mut io::stdin().lock(), &mut io::stderr())
}

fn read_answer(question: &str, input: &mut impl BufRead, prompt: &mut impl Write) -> io::Result<bool> {
    loop {
        write!(prompt, "{question} [Y/n] ")?;
        prompt.flush()?;
        let mut answer = String::new();
        if input.read_line(&mut answer)? == 0 {
            writeln!(prompt)?;
            return Ok(false);
        }
        match answer.trim().to_lowercase().as_str() {
            "" | "y" | "yes" => return Ok(true),
            "n" | "no" => return Ok(false),
            _ => {}
        }
    }
}

/// Reads one line from standard input, without echo on a terminal.
pub fn read_password(name: &str) -> io::Result<String> {
    if !rustix::termios::isatty(io::stdin()) {
        writeln!(io::stderr(), "{name} (one line on standard input):")?;
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        return Ok(line);
    }
    write!(io::stderr(), "{name}: ")?;
    io::stderr().flush()?;
    let _no_echo = NoEcho::enter()?;
    let line = read_line_of_keys(io::stdin().lock());
    writeln!(io::stderr())?;
    line
}

/// Reads the keys of a terminal in non-canonical mode up to the end of the line. Ctrl-C is an error.
fn read_line_of_keys(keys: impl BufRead) -> io::Result<String> {
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
                // Remove a whole UTF-8 character: continuation bytes begin with the bits 10.
                while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
            }
            key => line.push(key),
        }
    }
    String::from_utf8(line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Terminal mode without echo, line editing and signals. Dropping it restores the previous mode.
struct NoEcho(Termios);

impl NoEcho {
    fn enter() -> io::Result<NoEcho> {
        let before = tcgetattr(io::stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
        Ok(NoEcho(before))
    }
}

impl Drop for NoEcho {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Asks until the answer is y, yes, n or no. End of file is a no.
fn ask(input: &mut impl BufRead, prompt: &mut impl Write) -> Result<(), ConfirmError> {
    loop {
        write!(prompt, "{QUESTION} (y/n): ")?;
        prompt.flush()?;
        let mut answer = String::new();
        if input.read_line(&mut answer)? == 0 {
            writeln!(prompt)?;
            return Err(ConfirmError::Cancelled);
        }
        match answer.trim().to_lowercase().as_str() {
            "y" | "yes" => return Ok(()),
            "n" | "no" => return Err(ConfirmError::Cancelled),
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
        let line = |keys: &str| read_line_of_keys(keys.as_bytes()).map_err(|error| error.kind());
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
    fn an_empty_answer_is_a_yes_where_that_is_the_default() {
        let check = |answers: &str, expected: bool| {
            let mut prompt = Vec::new();
            let answer = read_answer("Start one?", &mut answers.as_bytes(), &mut prompt).expect("asked");
            assert_eq!(answer, expected, "{answers:?}");
            assert!(prompt.starts_with(b"Start one? [Y/n] "));
        };
        check("\n", true);
        check("Yes\n", true);
        check("what\nn\n", false);
        check("", false);
    }

    #[test]
    fn yes_asks_nothing() {
        assert!(confirm(true, None).is_ok());
    }
}
