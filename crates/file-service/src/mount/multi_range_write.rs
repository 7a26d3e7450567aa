//! Bytes in: many ranges of one file in one request, as a mount has them of a program that writes here and there. Ours alone (`comp=corro-ranges`),
//! signed and permitted as the writing of one range is. The body has first, for each range, its offset and its length (8 bytes each, the
//! greatest first), then the content of all of them in that order. Asking twice writes the same bytes to the same places. With
//! `x-corro-exclusive` the file is made first, and one that is there is left alone.

use std::io::IoSlice;

use axum::{body::Body, response::Response};
use bytes::{Buf, Bytes};

use crate::context::Context;
use crate::files::file_ops::{MAX_FILE, Making};
use crate::files::write_op::Writing;
use crate::limits::request_body::{MAX_PAUSE, MAX_RANGE, collect, with_body};
use crate::protocol::error::Refusal;
use crate::protocol::mount_headers;
use crate::protocol::request::Call;
use crate::shares::quota::reserve;

/// How many there are.
const HEADER: &str = "x-corro-ranges";
const MAX_RANGES: u64 = 1024;
/// What is said of one in front of all content.
const ENTRY: u64 = 16;

pub(crate) async fn write(context: Context<'_>, body: Body) -> Result<Response, Refusal> {
    let call = context.call;
    let asked = asked(call).and_then(|asked| {
        let making = mount_headers::is_exclusive(call)?.then(|| Making::of(&context)).transpose()?;
        Ok((asked, making, Writing::of(call, (context.service.now)())?))
    });
    let (((count, len), making, writing), body) = with_body(asked, body).await?;
    let _room = context.take_room().await?;
    let pieces = collect(body, len, MAX_PAUSE).await?;
    let ranges = taken_apart(pieces, count)?;
    let end = ranges.iter().map(|range| range.offset + range.len).max().unwrap_or(0);
    let written = context
        .decide_on_disk(move |shares, place| {
            if let Some(making) = making {
                making.perform(shares, place, 0)?;
            }
            writing.perform(&place.open(shares)?, place, |share, place| {
                reserve(share, &place.path, end)?;
                let mut slices: Vec<(u64, Vec<IoSlice>)> = (ranges.iter())
                    .map(|range| (range.offset, range.content.iter().map(|piece| IoSlice::new(piece)).collect()))
                    .collect();
                Ok(share.write_scattered(&place.path, &mut slices)?)
            })
        })
        .await
        .map_err(Refusal::kind_as_missing)?;
    Ok(written.answer(call))
}

/// How many ranges, in how many bytes.
fn asked(call: &Call) -> Result<(u64, u64), Refusal> {
    let count = call.number(HEADER)?.ok_or(Refusal::missing_header(HEADER))?;
    if count == 0 || count > MAX_RANGES {
        return Err(Refusal::header(HEADER));
    }
    match call.number("content-length")?.ok_or(Refusal::new("MissingContentLengthHeader"))? {
        len if len > MAX_RANGE + count * ENTRY => Err(Refusal::new("RequestBodyTooLarge")),
        len if len <= count * ENTRY => Err(Refusal::header("content-length")),
        len => Ok((count, len)),
    }
}

#[derive(Debug)]
struct Range {
    offset: u64,
    len: u64,
    content: Vec<Bytes>,
}

/// The ranges of a body that came in pieces, without copying their content.
fn taken_apart(pieces: Vec<Bytes>, count: u64) -> Result<Vec<Range>, Refusal> {
    let wrong = |why: &str| Refusal::new("InvalidInput").saying(format!("The ranges of the body are wrong: {why}."));
    let mut body = Pieces(pieces.into());
    let mut table = Bytes::from(body.take(count * ENTRY).concat());
    let mut ranges = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let (offset, len) = (table.get_u64(), table.get_u64());
        if offset.checked_add(len).is_none_or(|end| len == 0 || end > MAX_FILE) {
            return Err(wrong("one is empty or ends beyond the largest file"));
        }
        ranges.push(Range { offset, len, content: Vec::new() });
    }
    for range in &mut ranges {
        range.content = body.take(range.len);
        if range.content.iter().map(|piece| piece.len() as u64).sum::<u64>() < range.len {
            return Err(wrong("there is less content than they say"));
        }
    }
    if body.take(1).is_empty() { Ok(ranges) } else { Err(wrong("there is more content than they say")) }
}

struct Pieces(std::collections::VecDeque<Bytes>);

impl Pieces {
    /// The next bytes; fewer at the end.
    fn take(&mut self, mut len: u64) -> Vec<Bytes> {
        let mut taken = Vec::with_capacity(1);
        while len > 0
            && let Some(mut piece) = self.0.pop_front()
        {
            if piece.len() as u64 > len {
                self.0.push_front(piece.split_off(len as usize));
            }
            len -= piece.len() as u64;
            taken.push(piece);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(ranges: &[(u64, u64)], content: &[u8]) -> Vec<u8> {
        let table = ranges.iter().flat_map(|(offset, len)| [offset.to_be_bytes(), len.to_be_bytes()].concat());
        table.chain(content.iter().copied()).collect()
    }

    #[test]
    fn ranges_are_found_however_the_body_came() {
        let body = body(&[(7, 3), (100, 2), (0, 4)], b"abcdefghi");
        for size in 1..body.len() {
            let pieces = body.chunks(size).map(Bytes::copy_from_slice).collect();
            let ranges = taken_apart(pieces, 3).expect("as it should be");
            let found: Vec<(u64, Vec<u8>)> =
                ranges.iter().map(|range| (range.offset, range.content.concat())).collect();
            assert_eq!(found, [(7, b"abc".to_vec()), (100, b"de".to_vec()), (0, b"fghi".to_vec())], "{size}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (ranges, content) in [
            (&[(0, 3)][..], &b"ab"[..]),
            (&[(0, 3)], b"abcd"),
            (&[(0, 0), (5, 3)], b"abc"),
            (&[(u64::MAX, 3)], b"abc"),
            (&[(MAX_FILE, 3)], b"abc"),
            (&[(0, u64::MAX)], b"abc"),
        ] {
            let body = Bytes::from(body(ranges, content));
            let refusal = taken_apart(vec![body], ranges.len() as u64).expect_err("wrong");
            assert_eq!(refusal.code, "InvalidInput", "{ranges:?}");
        }
    }
}
