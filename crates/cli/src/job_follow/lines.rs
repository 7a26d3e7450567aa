//! Lines of a log file: labels before each, selection by rank, and the beginning of the last lines. Pure and streaming: the result does not depend on how
//! the text is split into chunks.

use std::collections::VecDeque;

/// Longer lines are printed in pieces.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// Bytes of a line that can hold the number of its rank.
const MAX_RANK_PREFIX_BYTES: usize = 32;

/// Turns the bytes of a log file into what is shown of them.
#[derive(Debug, Default)]
pub struct LinePrinter {
    label: Option<String>,
    only_rank: Option<usize>,
    /// The beginning of a line.
    partial: Vec<u8>,
}

impl LinePrinter {
    pub fn new(label: Option<String>, only_rank: Option<usize>) -> LinePrinter {
        LinePrinter { label, only_rank, partial: Vec::new() }
    }

    /// The text to show after these bytes. Without label and selection they are passed at once, else when their line is complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.label.is_none() && self.only_rank.is_none() {
            return bytes.to_vec();
        }
        let mut text = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.flush_line(&mut text);
            } else if self.partial.len() >= MAX_LINE_BYTES {
                self.partial.push(b'\n');
                self.flush_line(&mut text);
            }
        }
        text
    }

    /// The rest: a last line without an end.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut text = Vec::new();
        if !self.partial.is_empty() {
            self.partial.push(b'\n');
            self.flush_line(&mut text);
        }
        text
    }

    fn flush_line(&mut self, text: &mut Vec<u8>) {
        let line = std::mem::take(&mut self.partial);
        let shown = match self.only_rank {
            None => &line[..],
            Some(wanted) => match rank_prefix(&line) {
                Some((rank, length)) if rank == wanted => &line[length..],
                _ => return,
            },
        };
        text.extend_from_slice(self.label.as_deref().unwrap_or_default().as_bytes());
        text.extend_from_slice(shown);
    }
}

/// The rank that a line begins with, and the length of that prefix: `[3] ` of Corro and MPICH, `[1,3]<stdout>:` of Open MPI.
fn rank_prefix(line: &[u8]) -> Option<(usize, usize)> {
    let head = &line[..line.len().min(MAX_RANK_PREFIX_BYTES)];
    let end = head.iter().position(|byte| *byte == b']')?;
    let number = std::str::from_utf8(head.get(1..end)?).ok().filter(|_| head[0] == b'[')?;
    let rest = &head[end + 1..];
    match number.split_once(',') {
        None => Some((number.parse().ok()?, end + 1 + usize::from(rest.first() == Some(&b' ')))),
        Some((_, rank)) => {
            let colon = rest.iter().position(|byte| *byte == b':').filter(|_| rest.starts_with(b"<std"))?;
            let space = usize::from(rest.get(colon + 1) == Some(&b' '));
            Some((rank.parse().ok()?, end + 1 + colon + 1 + space))
        }
    }
}

/// Finds where the last lines of a file begin, while its end is read.
#[derive(Debug)]
pub struct TailScan {
    max_lines: usize,
    only_rank: Option<usize>,
    /// Offsets of the last lines, oldest first.
    starts: VecDeque<u64>,
    /// Offset of the next byte.
    offset: u64,
    /// Beginning of the current line; `None` inside a line whose beginning was not read.
    line: Option<(u64, Vec<u8>)>,
}

impl TailScan {
    /// Begins to read at `offset`: inside a line, unless it is the beginning of the file.
    pub fn new(max_lines: usize, only_rank: Option<usize>, offset: u64) -> TailScan {
        let line = (offset == 0).then(|| (0, Vec::new()));
        TailScan { max_lines, only_rank, starts: VecDeque::new(), offset, line }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.offset += piece.len() as u64;
            if let Some((_, head)) = &mut self.line {
                let missing = MAX_RANK_PREFIX_BYTES.saturating_sub(head.len());
                head.extend_from_slice(&piece[..piece.len().min(missing)]);
            }
            if piece.ends_with(b"\n") {
                self.end_line();
                self.line = Some((self.offset, Vec::new()));
            }
        }
    }

    /// The offset of the first of the last lines. `None` if what was read has fewer.
    pub fn finish(mut self) -> Option<u64> {
        if self.max_lines == 0 {
            return Some(self.offset);
        }
        if self.line.as_ref().is_some_and(|(_, head)| !head.is_empty()) {
            self.end_line();
        }
        if self.starts.len() < self.max_lines { None } else { self.starts.front().copied() }
    }

    fn end_line(&mut self) {
        let Some((start, head)) = self.line.take() else { return };
        if self.only_rank.is_some_and(|wanted| rank_prefix(&head).is_none_or(|(rank, _)| rank != wanted)) {
            return;
        }
        self.starts.push_back(start);
        if self.starts.len() > self.max_lines {
            self.starts.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labelled_lines_are_shown_when_they_are_complete() {
        let mut printer = LinePrinter::new(Some("[1] ".to_owned()), None);
        assert_eq!(printer.push(b"a\nb\nc"), b"[1] a\n[1] b\n");
        assert_eq!(printer.push(b"d"), b"");
        assert_eq!(printer.push(b"\nend"), b"[1] cd\n");
        assert_eq!(printer.finish(), b"[1] end\n");
        assert_eq!(printer.finish(), b"");
        assert_eq!(LinePrinter::default().push(b"no line"), b"no line");
        assert_eq!(printer.push(&[b'x'; MAX_LINE_BYTES]).len(), MAX_LINE_BYTES + 5, "a line without end is cut");
    }

    #[test]
    fn the_lines_of_one_rank_are_shown_without_their_number() {
        let mut printer = LinePrinter::new(None, Some(1));
        assert_eq!(printer.push(b"[0] a\n[1] b\nnone\n[1]\n[10] c\n[1] [0] d"), b"b\n\n");
        assert_eq!(printer.push(b"\n"), b"[0] d\n");
        let mut printer = LinePrinter::new(None, Some(3));
        assert_eq!(printer.push(b"[1,3]<stdout>: a\n[1,3]<stderr>:b\n[3,1]<stdout>:c\n[1,3] d\n"), b"a\nb\n");
    }

    #[test]
    fn the_last_lines_are_found_however_the_text_is_split() {
        let text = b"one\ntwo\nthree\nfour";
        let tail = |max_lines: usize, offset: usize| {
            let offsets: Vec<Option<u64>> = (1..6)
                .map(|size| {
                    let mut scan = TailScan::new(max_lines, None, offset as u64);
                    text[offset..].chunks(size).for_each(|chunk| scan.push(chunk));
                    scan.finish()
                })
                .collect();
            assert!(offsets.iter().all(|found| *found == offsets[0]), "{offsets:?}");
            offsets[0]
        };
        assert_eq!([0, 1, 2, 4].map(|n| tail(n, 0)), [Some(18), Some(14), Some(8), Some(0)]);
        assert_eq!(tail(5, 0), None);
        // The rest of a line whose beginning was not read does not count.
        assert_eq!([1, 2, 3].map(|n| tail(n, 5)), [Some(14), Some(8), None]);
    }

    #[test]
    fn lines_of_other_ranks_do_not_count() {
        let mut scan = TailScan::new(2, Some(0), 0);
        scan.push(b"[0] a\n[0] b\n[1] c\n[0] d\n[1] e\n");
        assert_eq!(scan.finish(), Some(6));
    }
}
