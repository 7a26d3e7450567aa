//! The last lines of a stream, for error reports. Memory is bounded.

/// Keeps the last bytes of a stream.
#[derive(Clone, Debug)]
pub struct Tail {
    n_lines: usize,
    n_bytes: usize,
    /// Up to twice `n_bytes`, so that old bytes are removed in large pieces.
    buffer: Vec<u8>,
    is_cut: bool,
}

impl Tail {
    pub fn new(n_lines: usize, n_bytes: usize) -> Tail {
        Tail { n_lines, n_bytes, buffer: Vec::new(), is_cut: false }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        let recent = &bytes[bytes.len().saturating_sub(self.n_bytes)..];
        if recent.len() < bytes.len() {
            self.buffer.clear();
            self.is_cut = true;
        }
        self.buffer.extend_from_slice(recent);
        if self.buffer.len() > 2 * self.n_bytes {
            self.buffer.drain(..self.buffer.len() - self.n_bytes);
            self.is_cut = true;
        }
    }

    /// The last lines, oldest first. Bytes that are not UTF-8 are replaced; of a line with carriage returns only the
    /// last visible state is returned; empty lines at the end are omitted.
    pub fn lines(&self) -> Vec<String> {
        let start = self.buffer.len().saturating_sub(self.n_bytes);
        let is_cut = self.is_cut || start > 0;
        let mut lines: Vec<&[u8]> = self.buffer[start..].split(|byte| *byte == b'\n').collect();
        // The first line may be incomplete; it is returned only if there is no other.
        if is_cut && lines.iter().skip(1).any(|line| !line.is_empty()) {
            lines.remove(0);
        }
        let mut lines: Vec<String> = lines.into_iter().map(last_state).collect();
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines.drain(..lines.len().saturating_sub(self.n_lines));
        lines
    }
}

fn last_state(line: &[u8]) -> String {
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
    fn returns_the_last_lines() {
        check(2, 100, &[], &[]);
        check(2, 100, &[b"a\nb\nc\n"], &["b", "c"]);
        check(2, 100, &[b"a\nb", b"c\nd"], &["bc", "d"]);
        check(9, 100, &[b"a\n\nb\n\n\n"], &["a", "", "b"]);
        check(9, 100, &[b"10%\r20%\r30%\r\nend\r\n"], &["30%", "end"]);
        check(9, 100, &[b"\xff\xfe\n"], &["\u{fffd}\u{fffd}"]);
    }

    #[test]
    fn memory_is_bounded() {
        check(9, 6, &[b"12345\nabc\nde\n"], &["de"]);
        check(9, 4, &[b"123456789"], &["6789"]);
        let mut tail = Tail::new(3, 64);
        for n in 0..100_000 {
            tail.push(format!("line {n}\n").as_bytes());
            assert!(tail.buffer.len() <= 128);
        }
        assert_eq!(tail.lines(), ["line 99997", "line 99998", "line 99999"]);
    }
}
