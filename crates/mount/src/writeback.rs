//! What a program has written to a file and the server does not have yet. Pure: ranges, in which order they may be sent, what a reader
//! must be shown. The same byte is never on its way twice, so an older one can never overtake a newer one.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use corro_client::files::MOST_RANGES;

/// The largest range the file service takes at once.
pub const PIECE: usize = 4 << 20;

#[derive(Debug, Default)]
pub struct Dirty {
    /// Not yet on their way: ranges by offset, apart from each other.
    runs: BTreeMap<u64, BytesMut>,
    /// On their way, apart from each other.
    sent: BTreeMap<u64, Bytes>,
    bytes: usize,
    /// Whether one of the runs may be as long as one range can be: nobody looks through all of them after every write.
    may_be_full: bool,
}

/// A range to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub offset: u64,
    pub content: Bytes,
}

/// What goes to the server in one request each: long pieces alone, many short ones together.
pub fn batches(pieces: Vec<Piece>) -> Vec<Vec<Piece>> {
    let mut batches: Vec<Vec<Piece>> = Vec::new();
    let (mut bytes, mut last): (usize, Vec<Piece>) = (0, Vec::new());
    for piece in pieces {
        if last.len() == MOST_RANGES || bytes + piece.content.len() > PIECE {
            batches.push(std::mem::take(&mut last));
            bytes = 0;
        }
        bytes += piece.content.len();
        last.push(piece);
    }
    batches.push(last);
    batches.retain(|batch| !batch.is_empty());
    batches
}

impl Dirty {
    pub fn write(&mut self, offset: u64, content: &[u8]) {
        if content.is_empty() {
            return;
        }
        let end = offset + content.len() as u64;
        // The usual case: a stream of writes, each behind the one before.
        if let Some((start, run)) = self.runs.range_mut(..=offset).next_back()
            && start + run.len() as u64 == offset
            && run.len() + content.len() <= 2 * PIECE
        {
            let start = *start;
            run.extend_from_slice(content);
            self.may_be_full |= run.len() >= PIECE;
            self.bytes += content.len();
            self.trim(offset, end, start);
            return;
        }
        self.cut(offset, end);
        // Large writes come in streams: room for the whole piece at once saves copying it as it grows.
        let room = if content.len() >= PIECE / 64 { content.len().max(PIECE) } else { content.len() };
        let mut run = BytesMut::with_capacity(room);
        run.extend_from_slice(content);
        self.may_be_full |= run.len() >= PIECE;
        self.runs.insert(offset, run);
        self.bytes += content.len();
    }

    /// Bytes that are not on their way yet.
    pub fn waiting(&self) -> usize {
        self.bytes
    }

    pub fn n_runs(&self) -> usize {
        self.runs.len()
    }

    pub fn is_clean(&self) -> bool {
        self.runs.is_empty() && self.sent.is_empty()
    }

    /// Ranges that are as long as one can be: worth sending though more may come.
    pub fn take_full(&mut self) -> Vec<Piece> {
        if !self.may_be_full {
            return Vec::new();
        }
        let taken = self.take(PIECE);
        self.may_be_full = self.runs.values().any(|run| run.len() >= PIECE);
        taken
    }

    /// Everything that may be sent now. What lies over something that is on its way has to wait for it.
    pub fn take_all(&mut self) -> Vec<Piece> {
        self.take(1)
    }

    fn take(&mut self, least: usize) -> Vec<Piece> {
        let starts: Vec<u64> =
            self.runs.iter().filter(|(_, run)| run.len() >= least).map(|(start, _)| *start).collect();
        let mut taken = Vec::new();
        for start in starts {
            let mut offset = start;
            while let Some(run) = self.runs.get(&offset).filter(|run| run.len() >= least) {
                let length = run.len().min(PIECE);
                if self.is_sent(offset, offset + length as u64) {
                    break;
                }
                let mut run = self.runs.remove(&offset).expect("looked at above");
                let content = run.split_to(length).freeze();
                self.bytes -= length;
                let next = offset + length as u64;
                if !run.is_empty() {
                    self.runs.insert(next, run);
                }
                self.sent.insert(offset, content.clone());
                taken.push(Piece { offset, content });
                offset = next;
            }
        }
        taken
    }

    /// The server has it, or never will.
    pub fn done(&mut self, offset: u64) {
        self.sent.remove(&offset);
    }

    /// Nothing that waits is sent any more.
    pub fn give_up(&mut self) {
        self.runs.clear();
        self.bytes = 0;
    }

    pub fn touches(&self, start: u64, end: u64) -> bool {
        let waits = self.runs.range(..end).next_back().is_some_and(|(at, run)| at + run.len() as u64 > start);
        waits || self.is_sent(start, end)
    }

    /// The bytes of a range, if all of them are here.
    pub fn read(&self, start: u64, end: u64) -> Option<Vec<u8>> {
        if start >= end || !self.touches(start, end) {
            return None;
        }
        let mut content = vec![0; (end - start) as usize];
        let mut covered: Vec<(u64, u64)> = Vec::new();
        let sent = self.sent.range(..end).map(|(at, piece)| (*at, piece.as_ref()));
        // Newer ones over older ones.
        let waiting = self.runs.range(..end).map(|(at, run)| (*at, run.as_ref()));
        for (at, bytes) in sent.chain(waiting) {
            let (from, to) = (at.max(start), (at + bytes.len() as u64).min(end));
            if from < to {
                let source = &bytes[(from - at) as usize..(to - at) as usize];
                content[(from - start) as usize..(to - start) as usize].copy_from_slice(source);
                covered.push((from, to));
            }
        }
        covered.sort_unstable();
        let reached =
            covered.iter().fold(start, |reached, (from, to)| if *from <= reached { reached.max(*to) } else { reached });
        (reached >= end).then_some(content)
    }

    fn is_sent(&self, start: u64, end: u64) -> bool {
        self.sent.range(..end).next_back().is_some_and(|(at, piece)| at + piece.len() as u64 > start)
    }

    /// Takes `start..end` out of what waits.
    fn cut(&mut self, start: u64, end: u64) {
        self.trim(start, end, u64::MAX);
    }

    /// The same, but the run that begins at `but` is left alone.
    fn trim(&mut self, start: u64, end: u64, but: u64) {
        let touched: Vec<u64> = (self.runs.range(..end))
            .rev()
            .take_while(|(at, run)| **at + run.len() as u64 > start || **at == but)
            .map(|(at, _)| *at)
            .filter(|at| *at != but)
            .collect();
        for at in touched {
            let mut run = self.runs.remove(&at).expect("just found");
            self.bytes -= run.len();
            let run_end = at + run.len() as u64;
            if run_end > end {
                let tail = run.split_off((end - at) as usize);
                self.bytes += tail.len();
                self.runs.insert(end, tail);
            }
            if at < start {
                run.truncate((start - at) as usize);
                self.bytes += run.len();
                self.runs.insert(at, run);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corro_test_support::rng::SplitMix64;

    #[test]
    fn a_stream_becomes_whole_pieces() {
        let mut dirty = Dirty::default();
        for number in 0..9u64 {
            dirty.write(number << 20, &vec![number as u8; 1 << 20]);
        }
        let full = dirty.take_full();
        assert_eq!(
            full.iter().map(|piece| (piece.offset, piece.content.len())).collect::<Vec<_>>(),
            [(0, PIECE), (PIECE as u64, PIECE)]
        );
        assert_eq!(dirty.waiting(), 1 << 20);
        let rest = dirty.take_all();
        assert_eq!(
            rest.iter().map(|piece| (piece.offset, piece.content.len())).collect::<Vec<_>>(),
            [(8 << 20, 1 << 20)]
        );
        full.iter().chain(&rest).for_each(|piece| dirty.done(piece.offset));
        assert!(dirty.is_clean());
    }

    #[test]
    fn short_pieces_go_together() {
        let piece = |length: usize| Piece { offset: 0, content: Bytes::from(vec![0; length]) };
        let check = |lengths: &[usize], expected: &[usize]| {
            let batches = batches(lengths.iter().map(|length| piece(*length)).collect());
            assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), expected);
        };
        check(&[], &[]);
        check(&[5], &[1]);
        check(&[PIECE, PIECE, 1, 1, PIECE], &[1, 1, 2, 1]);
        check(&[PIECE - 1, 1, 1], &[2, 1]);
        check(&[1; 2 * MOST_RANGES + 1], &[MOST_RANGES, MOST_RANGES, 1]);
    }

    #[test]
    fn what_is_on_its_way_holds_back_what_lies_over_it() {
        let mut dirty = Dirty::default();
        dirty.write(0, b"old");
        let first = dirty.take_all();
        dirty.write(1, b"EW!");
        assert_eq!(dirty.read(0, 4).as_deref(), Some(&b"oEW!"[..]));
        assert!(dirty.take_all().is_empty());
        dirty.done(first[0].offset);
        assert_eq!(dirty.take_all(), [Piece { offset: 1, content: Bytes::from_static(b"EW!") }]);
        assert_eq!(dirty.read(0, 4), None);
    }

    /// Random writes, sends in any order and arrivals in any order end with the content that plain writes make.
    #[test]
    fn random_steps_end_as_plain_writes_do() {
        const SIZE: u64 = 64;
        for seed in 0..500 {
            let mut rng = SplitMix64::new(seed);
            let (mut dirty, mut on_way) = (Dirty::default(), Vec::<Piece>::new());
            let (mut expected, mut server) = (vec![0u8; SIZE as usize], vec![0u8; SIZE as usize]);
            for step in 0..80u8 {
                match rng.below(4) {
                    0 | 1 => {
                        let start = rng.below(SIZE);
                        let length = 1 + rng.below((SIZE - start).min(12));
                        let content = vec![step + 1; length as usize];
                        expected[start as usize..(start + length) as usize].copy_from_slice(&content);
                        dirty.write(start, &content);
                    }
                    2 => on_way.extend(dirty.take_all()),
                    _ if !on_way.is_empty() => {
                        let piece = on_way.swap_remove(rng.below(on_way.len() as u64) as usize);
                        let at = piece.offset as usize;
                        server[at..at + piece.content.len()].copy_from_slice(&piece.content);
                        dirty.done(piece.offset);
                    }
                    _ => {}
                }
                let waiting: usize = dirty.runs.values().map(BytesMut::len).sum();
                assert_eq!(waiting, dirty.waiting(), "seed {seed}");
                // A reader sees what was written, wherever it is.
                let start = rng.below(SIZE);
                let end = start + 1 + rng.below(SIZE - start);
                let seen = match dirty.read(start, end) {
                    Some(seen) => seen,
                    None if dirty.touches(start, end) => continue,
                    None => server[start as usize..end as usize].to_vec(),
                };
                assert_eq!(seen, expected[start as usize..end as usize], "seed {seed}");
            }
            while !dirty.is_clean() {
                on_way.extend(dirty.take_all());
                for piece in on_way.drain(..) {
                    let at = piece.offset as usize;
                    server[at..at + piece.content.len()].copy_from_slice(&piece.content);
                    dirty.done(piece.offset);
                }
            }
            assert_eq!(server, expected, "seed {seed}");
        }
    }
}
