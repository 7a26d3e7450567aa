//! Splits log bytes into lines. Progress bars overwrite themselves with carriage returns and backspaces and use ANSI
//! escape codes: each state of a bar becomes a line of its own, without escape codes. Memory is bounded: a line is
//! truncated at [`MAX_LINE_LEN`].

/// Bytes of a line that are read; the rest is dropped.
pub const MAX_LINE_LEN: usize = 8 * 1024;

#[derive(Clone, Debug, Default)]
pub struct LineSplitter {
    partial: Vec<u8>,
}

impl LineSplitter {
    /// Adds bytes, in pieces of any size, and calls `each` with every completed line that may contain a number.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&str)) {
        let mut pieces = bytes.split(|byte| matches!(byte, b'\n' | b'\r' | 0x08)).peekable();
        while let Some(piece) = pieces.next() {
            let remaining = MAX_LINE_LEN - self.partial.len();
            let kept = &piece[..piece.len().min(remaining)];
            if pieces.peek().is_none() {
                self.partial.extend_from_slice(kept);
            } else if self.partial.is_empty() {
                emit_if_numeric(kept, &mut each);
            } else {
                self.partial.extend_from_slice(kept);
                emit_if_numeric(&std::mem::take(&mut self.partial), &mut each);
            }
        }
    }

    /// Ends the input and emits the last, unterminated line.
    pub fn finish(&mut self, mut each: impl FnMut(&str)) {
        emit_if_numeric(&std::mem::take(&mut self.partial), &mut each);
    }
}

fn emit_if_numeric(line: &[u8], each: &mut impl FnMut(&str)) {
    // Most lines of a log contain no digit and are dropped here. `nan` and `inf` may be the only values of a line.
    if line.iter().any(u8::is_ascii_digit) || contains_nan_or_inf(line) {
        each(&strip_escapes(line));
    }
}

fn contains_nan_or_inf(line: &[u8]) -> bool {
    line.windows(3).any(|three| three.eq_ignore_ascii_case(b"nan") || three.eq_ignore_ascii_case(b"inf"))
}

/// The line as text, without ANSI escape codes.
fn strip_escapes(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    if !text.contains('\x1b') {
        return text.into_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\x1b' if chars.peek() == Some(&'[') => {
                chars.next();
                // CSI sequence: parameter bytes, then one final byte.
                while chars.next_if(|next| matches!(next, '0'..='?' | ' '..='/')).is_some() {}
                chars.next();
            }
            '\x1b' => {
                chars.next();
            }
            _ => out.push(char),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pieces: &[&str], expected: &[&str]) {
        let (mut lines, mut found) = (LineSplitter::default(), Vec::new());
        for piece in pieces {
            lines.push(piece.as_bytes(), |line| found.push(line.to_owned()));
        }
        lines.finish(|line| found.push(line.to_owned()));
        assert_eq!(found, expected, "{pieces:?}");
    }

    #[test]
    fn each_state_of_a_bar_is_a_line_without_escape_codes() {
        check(&["a 1\nb 2\n"], &["a 1", "b 2"]);
        check(&["a", " ", "1\n", "", "b 2"], &["a 1", "b 2"]);
        check(&["1/2 [>.]\x08\x08\x08\x08\r2/2 [==]\n"], &["1/2 [>.]", "2/2 [==]"]);
        check(&["\x1b[1m12/390\x1b[0m \x1b[32m━━\x1b[0m\x1b[37m━━\x1b[0m \x1b[1m3s\x1b[0m"], &["12/390 ━━━━ 3s"]);
        check(&["no number here\nloss: nan\n"], &["loss: nan"]);
    }

    #[test]
    fn an_endless_line_is_truncated() {
        let mut lines = LineSplitter::default();
        for _ in 0..1000 {
            lines.push(&[b'1'; 4096], |_| panic!("the line has not ended"));
        }
        assert_eq!(lines.partial.len(), MAX_LINE_LEN);
        let mut found = 0;
        lines.push(b"2\nloss: 1\n", |_| found += 1);
        assert_eq!((found, lines.partial.len()), (2, 0));
    }
}
