//! The last lines of a stream, for error reports. Fed by `lines::pump`. Never holds more than its bound.

/// Keeps the last bytes seen and shows them as lines.
#[derive(Clone, Debug)]
pub struct Tail {
    n_lines: usize,
    n_bytes: usize,
    /// Up to twice the bound, so that old bytes leave in large pieces.
    kept: Vec<u8>,
    cut: bool,
}

impl Tail {
    pub fn new(n_lines: usize, n_bytes: usize) -> Tail {
        Tail { n_lines, n_bytes, kept: Vec::new(), cut: false }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        let recent = &bytes[bytes.len().saturating_sub(self.n_bytes)..];
        if recent.len() < bytes.len() {
            self.kept.clear();
            self.cut = true;
        }
        self.kept.extend_from_slice(recent);
        if self.kept.len() > 2 * self.n_bytes {
            self.kept.drain(..self.kept.len() - self.n_bytes);
            self.cut = true;
        }
    }

    /// The last lines, oldest first. Bytes that are not UTF-8 are replaced; of a line redrawn with carriage returns only
    /// what would be left on a screen is given; empty lines at the end are left out.
    pub fn lines(&self) -> Vec<String> {
        let start = self.kept.len().saturating_sub(self.n_bytes);
        let cut = self.cut || start > 0;
        let mut lines: Vec<&[u8]> = self.kept[start..].split(|byte| *byte == b'\n').collect();
        // Of the first line the beginning is missing; it is shown only if there is nothing better.
        if cut && lines.iter().skip(1).any(|line| !line.is_empty()) {
            lines.remove(0);
        }
        let mut lines: Vec<String> = lines.into_iter().map(on_screen).collect();
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines.drain(..lines.len().saturating_sub(self.n_lines));
        lines
    }
}

fn on_screen(line: &[u8]) -> String {
    let last = line.split(|byte| *byte == b'\r').rfind(|part| !part.is_empty());
    String::from_utf8_lossy(last.unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(n_lines: usize, n_bytes: usize, pieces: &[&[u8]], expected: &[&str]) {
        let mut tail = Tail::new(n_lines, n_bytes);
        for piece in pieces {
            tail.push(piece);
        }
        assert_eq!(tail.lines(), expected, "{pieces:?}");
    }

    #[test]
    fn gives_the_last_lines() {
        check(2, 100, &[], &[]);
        check(2, 100, &[b"a\nb\nc\n"], &["b", "c"]);
        check(2, 100, &[b"a\nb", b"c\nd"], &["bc", "d"]);
        check(9, 100, &[b"a\n\nb\n\n\n"], &["a", "", "b"]);
        check(9, 100, &[b"10%\r20%\r30%\r\nend\r\n"], &["30%", "end"]);
        check(9, 100, &[b"\xff\xfe\n"], &["\u{fffd}\u{fffd}"]);
    }

    #[test]
    fn holds_no_more_than_its_bound() {
        check(9, 6, &[b"12345\nabc\nde\n"], &["de"]);
        check(9, 4, &[b"123456789"], &["6789"]);
        let mut tail = Tail::new(3, 64);
        for n in 0..100_000 {
            tail.push(format!("line {n}\n").as_bytes());
            assert!(tail.kept.len() <= 128);
        }
        assert_eq!(tail.lines(), ["line 99997", "line 99998", "line 99999"]);
    }
}
