//! Atomic append of one block at the end of a file (`comp=corro-append`), safe to retry.

use std::io::{IoSlice, Read, Seek, SeekFrom};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use corro_shares::{Share, SharePath};

use crate::context::Context;
use crate::limits::request_body::{MAX_PAUSE, MAX_RANGE, collect, with_body};
use crate::mount::mount_ops::{set_number, told};
use crate::preconditions::Guard;
use crate::protocol::error::Refusal;
use crate::protocol::request::Call;
use crate::shares::quota::reserve;

/// How far back a block is looked for that an earlier server may have appended.
const MAX_SEARCH: u64 = 64 << 20;

/// Appends the body as one block at the end as it is at that moment, and says where that was.
pub(crate) async fn append(context: Context<'_>, body: Body) -> Result<Response, Refusal> {
    let call = context.call;
    let asked = asked_append(call).and_then(|asked| Ok((asked, Guard::of(call, (context.service.now)())?)));
    let (((block, len), guard), body) = with_body(asked, body).await?;
    let _room = context.take_room().await?;
    let pieces = collect(body, len, MAX_PAUSE).await?;
    let service = context.service_handle();
    let (start, stat) = context
        .decide_on_disk(move |shares, place| {
            let share = place.open(shares)?;
            share.stat_file(&place.path)?;
            guard.check_write(&share, &place.path)?;
            let start = match block.again {
                Some(after) => match service.appended.find(&block.writer, block.number) {
                    Some(start) => Some(start),
                    // Its memory begins later than the first try: only the file can tell.
                    None if !service.appended.knows(&block.writer) => search(&share, &place.path, after, &pieces),
                    None => None,
                },
                None => None,
            };
            let start = match start {
                Some(start) => start,
                None => {
                    let end = share.stat_file(&place.path)?.len;
                    reserve(&share, &place.path, end.saturating_add(len))?;
                    let slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
                    share.appender(&place.path)?.append_at_end(&slices)?
                }
            };
            service.appended.note(block.writer, block.number, start);
            Ok((start, share.stat(&place.path)?))
        })
        .await
        .map_err(Refusal::kind_as_missing)?;
    let mut response = told(201, &stat);
    set_number(response.headers_mut(), "x-corro-offset", start);
    Ok(response)
}

struct Block {
    writer: String,
    number: u64,
    /// This was asked before; the block lies nowhere before this offset.
    again: Option<u64>,
}

fn asked_append(call: &Call) -> Result<(Block, u64), Refusal> {
    const WRITER: &str = "x-corro-writer";
    let writer = call.header(WRITER).ok_or(Refusal::missing_header(WRITER))?;
    if writer.is_empty() || writer.len() > 100 {
        return Err(Refusal::header(WRITER));
    }
    let number = call.number("x-corro-block")?.ok_or(Refusal::missing_header("x-corro-block"))?;
    let again = call.number("x-corro-again")?;
    match call.number("content-length")?.ok_or(Refusal::new("MissingContentLengthHeader"))? {
        0 => Err(Refusal::header("content-length")),
        len if len > MAX_RANGE => Err(Refusal::new("RequestBodyTooLarge")),
        len => Ok((Block { writer: writer.to_owned(), number, again }, len)),
    }
}

/// Where the block lies, at or after `after`.
fn search(share: &Share, path: &SharePath, after: u64, pieces: &[Bytes]) -> Option<u64> {
    let (mut file, stat) = share.open_file(path).ok()?;
    let block = pieces.concat();
    let from = after.max(stat.len.saturating_sub(MAX_SEARCH));
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut content = Vec::new();
    file.take(MAX_SEARCH).read_to_end(&mut content).ok()?;
    let found = content.windows(block.len()).position(|window| window == block)?;
    Some(from + found as u64)
}
