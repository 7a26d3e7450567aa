//! Bytes in, from another file of this server instead of from a body: one range of a file (`x-ms-copy-source` and
//! `x-ms-source-range`), copied before the answer.

use axum::response::Response;
use base64::{Engine, engine::general_purpose::STANDARD};
use corro_model::storage::sas::Permission;
use corro_shares::Share;

use crate::auth::Access;
use crate::context::{Context, Place};
use crate::files::copy_source;
use crate::files::write_op::Writing;
use crate::limits::buffer_pool::read_piece;
use crate::limits::request_body::MAX_RANGE;
use crate::protocol::error::Refusal;
use crate::protocol::request::{Call, Target};
use crate::protocol::{crc64, range, response};

pub(crate) async fn write(context: Context<'_>, access: &Access) -> Result<Response, Refusal> {
    let call = context.call;
    let (offset, len) = range::of_write(call)?;
    let (start, source_len) = range::of_source(call)?;
    match call.header("x-ms-write") {
        Some(word) if word.eq_ignore_ascii_case("update") => {}
        Some(_) => return Err(Refusal::header("x-ms-write")),
        None => return Err(Refusal::missing_header("x-ms-write")),
    }
    if len != source_len {
        return Err(Refusal::header("x-ms-source-range").saying("The two ranges do not have the same length."));
    }
    if len > MAX_RANGE {
        return Err(Refusal::new("RequestBodyTooLarge"));
    }
    if matches!(call.number("content-length")?, Some(1..)) {
        return Err(Refusal::header("content-length"));
    }
    let checks = SourceChecks::of(call)?;
    let source = copy_source::find(&context, access, "x-ms-copy-source", Permission::Read).await?;
    let writing = Writing::of(call, (context.service.now)())?;
    let _room = context.take_room().await?;
    let (written, crc) = context
        .decide_on_disk(move |shares, place| {
            let Target { share, path } = &source.target;
            let from = match &source.snapshot {
                None => shares.share(&source.account, share),
                Some(id) => shares.snapshot(&source.account, share, id),
            };
            let missing = |error| Refusal::from(error).kind_as_missing();
            let (file, stat) = from.and_then(|from| from.open_file(path)).map_err(missing)?;
            if start + len > stat.len {
                return Err(Refusal::range_beyond(stat.len));
            }
            let bytes = read_piece(&file, start, len as usize).map_err(|_| Refusal::new("InvalidRange"))?;
            let crc = crc64::of(&bytes);
            checks.check(crc)?;
            let update = |share: &Share, place: &Place| Ok(share.write_range(&place.path, offset, &bytes)?);
            Ok((writing.perform(&place.open(shares)?, place, update)?, crc))
        })
        .await
        .map_err(Refusal::kind_as_missing)?;
    let mut response = written.answer(call);
    response::set(response.headers_mut(), "x-ms-content-crc64", &STANDARD.encode(crc.to_le_bytes()));
    Ok(response)
}

/// What a request says about the bytes of its source.
struct SourceChecks {
    content: Option<u64>,
    matches: Option<u64>,
    differs: Option<u64>,
}

impl SourceChecks {
    fn of(call: &Call) -> Result<Self, Refusal> {
        let crc = |name: &'static str| {
            let Some(value) = call.headers.get(name) else { return Ok(None) };
            let bytes = STANDARD.decode(value.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
            bytes.map(|bytes| Some(u64::from_le_bytes(bytes))).ok_or(Refusal::header(name))
        };
        Ok(SourceChecks {
            content: crc("x-ms-source-content-crc64")?,
            matches: crc("x-ms-source-if-match-crc64")?,
            differs: crc("x-ms-source-if-none-match-crc64")?,
        })
    }

    fn check(&self, found: u64) -> Result<(), Refusal> {
        match () {
            () if self.content.is_some_and(|crc| crc != found) => Err(Refusal::new("Crc64Mismatch")),
            () if self.matches.is_some_and(|crc| crc != found) => Err(Refusal::new("SourceConditionNotMet")),
            () if self.differs == Some(found) => Err(Refusal::new("SourceConditionNotMet")),
            () => Ok(()),
        }
    }
}
