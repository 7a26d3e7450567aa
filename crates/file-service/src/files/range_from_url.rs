//! Writes one range of a file from another file of this server (`x-ms-copy-source` and `x-ms-source-range`). The bytes
//! are copied before the response.

use axum::response::Response;
use base64::{Engine, engine::general_purpose::STANDARD};
use corro_model::storage::sas::Permission;
use corro_shares::Share;

use crate::auth::Grant;
use crate::context::{Location, OperationContext};
use crate::files::copy_source;
use crate::files::write_op::WriteOp;
use crate::limits::buffer_pool::read_chunk;
use crate::limits::request_body::MAX_RANGE_BYTES;
use crate::protocol::error::StorageError;
use crate::protocol::request::{StorageRequest, Target};
use crate::protocol::{crc64, range, response};

pub(crate) async fn write(context: OperationContext<'_>, grant: &Grant) -> Result<Response, StorageError> {
    let request = context.request;
    let (offset, len) = range::parse_write_range(request)?;
    let (start, source_len) = range::parse_source_range(request)?;
    match request.header("x-ms-write") {
        Some(word) if word.eq_ignore_ascii_case("update") => {}
        Some(_) => return Err(StorageError::invalid_header("x-ms-write")),
        None => return Err(StorageError::missing_header("x-ms-write")),
    }
    if len != source_len {
        return Err(StorageError::invalid_header("x-ms-source-range")
            .with_message("The two ranges do not have the same length."));
    }
    if len > MAX_RANGE_BYTES {
        return Err(StorageError::new("RequestBodyTooLarge"));
    }
    if matches!(request.number("content-length")?, Some(1..)) {
        return Err(StorageError::invalid_header("content-length"));
    }
    let checks = SourceChecks::parse(request)?;
    let source = copy_source::resolve(&context, grant, "x-ms-copy-source", Permission::Read).await?;
    let write_op = WriteOp::parse(request, (context.state.now)())?;
    let _permit = context.acquire_upload_permit().await?;
    let (result, crc) = context
        .try_on_disk(move |shares, location| {
            let Target { share, path } = &source.target;
            let from = match &source.snapshot {
                None => shares.share(&source.account, share),
                Some(id) => shares.snapshot(&source.account, share, id),
            };
            let missing = |error| StorageError::from(error).type_mismatch_as_not_found();
            let (file, stat) = from.and_then(|from| from.open_file(path)).map_err(missing)?;
            if start + len > stat.len {
                return Err(StorageError::range_not_satisfiable(stat.len));
            }
            let bytes = read_chunk(&file, start, len as usize).map_err(|_| StorageError::new("InvalidRange"))?;
            let crc = crc64::checksum(&bytes);
            checks.check(crc)?;
            let update = |share: &Share, location: &Location| Ok(share.write_range(&location.path, offset, &bytes)?);
            Ok((write_op.execute(&location.open(shares)?, location, update)?, crc))
        })
        .await
        .map_err(StorageError::type_mismatch_as_not_found)?;
    let mut response = result.to_response(request);
    response::set_header(response.headers_mut(), "x-ms-content-crc64", &STANDARD.encode(crc.to_le_bytes()));
    Ok(response)
}

/// CRC-64 conditions on the source bytes.
struct SourceChecks {
    content: Option<u64>,
    matches: Option<u64>,
    differs: Option<u64>,
}

impl SourceChecks {
    fn parse(request: &StorageRequest) -> Result<Self, StorageError> {
        let crc = |name: &'static str| {
            let Some(value) = request.headers.get(name) else { return Ok(None) };
            let bytes = STANDARD.decode(value.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
            bytes.map(|bytes| Some(u64::from_le_bytes(bytes))).ok_or(StorageError::invalid_header(name))
        };
        Ok(SourceChecks {
            content: crc("x-ms-source-content-crc64")?,
            matches: crc("x-ms-source-if-match-crc64")?,
            differs: crc("x-ms-source-if-none-match-crc64")?,
        })
    }

    fn check(&self, found: u64) -> Result<(), StorageError> {
        match () {
            () if self.content.is_some_and(|crc| crc != found) => Err(StorageError::new("Crc64Mismatch")),
            () if self.matches.is_some_and(|crc| crc != found) => Err(StorageError::new("SourceConditionNotMet")),
            () if self.differs == Some(found) => Err(StorageError::new("SourceConditionNotMet")),
            () => Ok(()),
        }
    }
}
