//! Puts a prefix before every line of a stream, for output of several ranks in one place. Never changes or delays a
//! byte. A carriage return begins a line too: a progress bar overwrites its own line, prefix included.

use crate::lines::ends_line;

/// Prefixer of one stream.
#[derive(Debug)]
pub struct LinePrefixer {
    prefix: String,
    last: u8,
}

impl LinePrefixer {
    pub fn new(prefix: impl Into<String>) -> LinePrefixer {
        LinePrefixer { prefix: prefix.into(), last: b'\n' }
    }

    /// Appends the next bytes of the stream to `out`.
    pub fn apply(&mut self, block: &[u8], out: &mut Vec<u8>) {
        if self.prefix.is_empty() {
            return out.extend_from_slice(block);
        }
        for piece in block.split_inclusive(|byte| ends_line(*byte)) {
            // The second half of "\r\n" is not a line of its own.
            let starts_line = ends_line(self.last) && !(self.last == b'\r' && piece == b"\n");
            if starts_line {
                out.extend_from_slice(self.prefix.as_bytes());
            }
            out.extend_from_slice(piece);
            self.last = piece[piece.len() - 1];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(blocks: &[&str], expected: &str) {
        let mut prefixer = LinePrefixer::new("[0]:");
        let mut out = Vec::new();
        for block in blocks {
            prefixer.apply(block.as_bytes(), &mut out);
        }
        assert_eq!(String::from_utf8_lossy(&out), expected, "{blocks:?}");
    }

    #[test]
    fn every_line_gets_one_prefix() {
        check(&["a\nb\n"], "[0]:a\n[0]:b\n");
        check(&["\n\n"], "[0]:\n[0]:\n");
        check(&["a\r\nb\r", "\n", "c\n"], "[0]:a\r\n[0]:b\r\n[0]:c\n");
        check(&["10%\r20%\r"], "[0]:10%\r[0]:20%\r");
        check(&["long", "er\nx\n"], "[0]:longer\n[0]:x\n");
    }
}
