//! Asks before something is destroyed. Entered by delete and terminate commands without `--yes`.
//! Talks on standard error, so that standard output stays data; never asks where nobody can answer.

use std::io::{self, BufRead, Write};

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
