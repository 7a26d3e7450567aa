//! Splits a byte stream into blocks of whole lines, so that several writers can share a file without mixing
//! their lines. Never changes a byte, never holds more than one block.

use std::future::ready;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::tail::Tail;

/// Longer lines are emitted in several blocks.
pub const MAX_HELD_BYTES: usize = 64 * 1024;

/// First read size. Most processes write little; a full read enlarges the buffer to `READ_SIZE`.
const FIRST_READ_SIZE: usize = 4 * 1024;

/// Read size for busy streams: the capacity of a pipe, and more for enlarged pipes.
const READ_SIZE: usize = 128 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Several writers share the destination: only whole lines, and an unfinished last line is ended.
    Lines,
    /// One writer: every byte at once, unchanged.
    Raw,
}

/// Assembles whole lines of one stream; holds back the unfinished line.
#[derive(Debug)]
pub struct LineAssembler {
    mode: Mode,
    /// The last returned block, then the unfinished line.
    held: Vec<u8>,
    /// Length of the returned block in `held`.
    returned: usize,
    /// Whether the last returned byte did not end a line.
    mid_line: bool,
}

impl LineAssembler {
    pub fn new(mode: Mode) -> LineAssembler {
        LineAssembler { mode, held: Vec::new(), returned: 0, mid_line: false }
    }

    /// Adds bytes and returns what can be written now, possibly nothing. A carriage return ends a line too, so
    /// that progress bars are shown.
    pub fn push<'a>(&'a mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.mode == Mode::Raw || bytes.is_empty() {
            return bytes;
        }
        self.held.drain(..self.returned);
        self.returned = 0;
        let end = bytes.iter().rposition(|byte| ends_line(*byte)).map_or(0, |last| last + 1);
        // In the usual case only the unfinished line is copied.
        if self.held.is_empty() && end > 0 && bytes.len() - end <= MAX_HELD_BYTES {
            self.held.extend_from_slice(&bytes[end..]);
            self.mid_line = false;
            return &bytes[..end];
        }
        self.held.extend_from_slice(bytes);
        let unfinished = if end > 0 { bytes.len() - end } else { self.held.len() };
        self.returned = if unfinished > MAX_HELD_BYTES { self.held.len() } else { self.held.len() - unfinished };
        let block = &self.held[..self.returned];
        if let Some(last) = block.last() {
            self.mid_line = !ends_line(*last);
        }
        block
    }

    /// Ends the stream and returns what was held back.
    pub fn finish(&mut self) -> &[u8] {
        self.held.drain(..self.returned);
        if !self.held.is_empty() || self.mid_line {
            self.held.push(b'\n');
        }
        self.returned = self.held.len();
        self.mid_line = false;
        &self.held
    }
}

/// Reads to the end and passes every block to `sink`; returns the number of bytes read. Stops at the first error, which
/// closes the stream for its writer.
pub async fn pump<R: AsyncRead + Unpin>(
    reader: R,
    mode: Mode,
    tail: Option<&mut Tail>,
    sink: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<u64> {
    pump_into(reader, mode, tail, &mut SyncSink(sink)).await
}

/// An asynchronous destination. A trait and not an async closure, because the futures of closures cannot be bounded by `Send`
/// where a task is spawned.
pub trait Sink {
    fn write(&mut self, block: &[u8]) -> impl Future<Output = io::Result<()>> + Send;
}

/// As [`pump`], for an asynchronous sink. While the sink waits nothing is read, and the writer blocks once its pipe is full.
pub async fn pump_into<R: AsyncRead + Unpin>(
    mut reader: R,
    mode: Mode,
    mut tail: Option<&mut Tail>,
    sink: &mut impl Sink,
) -> io::Result<u64> {
    let mut assembler = LineAssembler::new(mode);
    let mut buffer = vec![0; FIRST_READ_SIZE];
    let mut n_read = 0;
    loop {
        let n = match reader.read(&mut buffer).await {
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if n == 0 {
            break;
        }
        n_read += n as u64;
        if let Some(tail) = tail.as_deref_mut() {
            tail.push(&buffer[..n]);
        }
        let block = assembler.push(&buffer[..n]);
        if !block.is_empty() {
            sink.write(block).await?;
        }
        if n == buffer.len() {
            buffer.resize(READ_SIZE, 0);
        }
    }
    let rest = assembler.finish();
    if !rest.is_empty() {
        sink.write(rest).await?;
    }
    Ok(n_read)
}

struct SyncSink<F>(F);

impl<F: FnMut(&[u8]) -> io::Result<()>> Sink for SyncSink<F> {
    fn write(&mut self, block: &[u8]) -> impl Future<Output = io::Result<()>> + Send {
        ready((self.0)(block))
    }
}

pub(crate) fn ends_line(byte: u8) -> bool {
    byte == b'\n' || byte == b'\r'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The blocks of one stream; the last one is that of `finish`.
    fn blocks(mode: Mode, pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut assembler = LineAssembler::new(mode);
        let mut blocks: Vec<Vec<u8>> = pieces.iter().map(|piece| assembler.push(piece).to_vec()).collect();
        blocks.push(assembler.finish().to_vec());
        blocks
    }

    fn check(mode: Mode, pieces: &[&[u8]], expected: &[&[u8]]) {
        assert_eq!(blocks(mode, pieces), expected, "{pieces:?}");
    }

    #[test]
    fn whole_lines_are_returned_and_the_rest_is_held() {
        check(Mode::Lines, &[b"a\nb\nc"], &[b"a\nb\n", b"c\n"]);
        check(Mode::Lines, &[b"a", b"b", b"c\nd"], &[b"", b"", b"abc\n", b"d\n"]);
        check(Mode::Lines, &[b"a\nb", b"c\nd\n"], &[b"a\n", b"bc\nd\n", b""]);
        check(Mode::Lines, &[b"10%\r20", b"%\r"], &[b"10%\r", b"20%\r", b""]);
        check(Mode::Lines, &[], &[b""]);
        check(Mode::Raw, &[b"a", b"b\nc"], &[b"a", b"b\nc", b""]);
    }

    #[test]
    fn a_long_line_is_split_and_ended_once() {
        let long = vec![b'x'; MAX_HELD_BYTES];
        check(Mode::Lines, &[&long, b"y", b"z"], &[b"", &[&long[..], b"y"].concat(), b"", b"z\n"]);
        check(Mode::Lines, &[&long, b"y"], &[b"", &[&long[..], b"y"].concat(), b"\n"]);
        let longer = [b"a\n", &long[..], b"b"].concat();
        check(Mode::Lines, &[&longer, b"\n"], &[&longer, b"\n", b""]);
    }

    proptest! {
        #[test]
        fn no_byte_is_lost_and_no_line_is_split(
            pieces in proptest::collection::vec(proptest::collection::vec(
                prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..40), 0..40),
        ) {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let input = pieces.concat();
            let given = blocks(Mode::Lines, &pieces);
            let (last, before) = given.split_last().expect("finish always gives one");
            for block in before.iter().filter(|block| !block.is_empty()) {
                prop_assert!(ends_line(block[block.len() - 1]), "torn: {block:?}");
            }
            let mut output = given.concat();
            if input.last().is_some_and(|byte| !ends_line(*byte)) {
                prop_assert_eq!(last.last(), Some(&b'\n'));
                output.pop();
            }
            prop_assert_eq!(output, input.clone());
            prop_assert_eq!(blocks(Mode::Raw, &pieces).concat(), input);
        }
    }

    #[tokio::test]
    async fn pump_counts_keeps_the_tail_and_stops_at_an_error() {
        let mut tail = Tail::new(1, 100);
        let mut written = Vec::new();
        let n_read = pump(&b"a\nb"[..], Mode::Lines, Some(&mut tail), |block| {
            written.extend_from_slice(block);
            Ok(())
        })
        .await
        .expect("nothing fails");
        assert_eq!((n_read, written.as_slice(), tail.lines()), (3, &b"a\nb\n"[..], vec!["b".to_owned()]));
        let full = pump(&b"a\n"[..], Mode::Raw, None, |_| Err(io::ErrorKind::StorageFull.into())).await;
        assert_eq!(full.expect_err("the sink failed").kind(), io::ErrorKind::StorageFull);
    }
}
