//! Creates and reads symbolic links (`restype=symboliclink`), as the service does for NFS shares since version
//! 2025-07-05. The target path travels percent-encoded in `x-ms-link-text` and is never resolved here.

use axum::response::Response;
use http::HeaderValue;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

use crate::context::OperationContext;
use crate::protocol::error::StorageError;
use crate::protocol::response::{self, header_name};

const LINK_TEXT_HEADER: &str = "x-ms-link-text";
/// Encodes only what a header cannot carry, so that clients without decoding can read most targets.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

pub(crate) async fn create(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let text = context.request.header(LINK_TEXT_HEADER).ok_or(StorageError::missing_header(LINK_TEXT_HEADER))?;
    let text: Vec<u8> = percent_decode_str(text).collect();
    let stat =
        context.on_disk(move |shares, location| location.open(shares)?.create_link(&location.path, &text)).await?;
    let mut response = response::empty(201);
    response::set_etag_and_modified(response.headers_mut(), &stat);
    Ok(response)
}

pub(crate) async fn read(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let (text, stat) = context
        .on_disk(|shares, location| {
            let share = location.open(shares)?;
            Ok((share.read_link(&location.path)?, share.lstat(&location.path)?))
        })
        .await?;
    let mut response = response::empty(200);
    response::set_etag_and_modified(response.headers_mut(), &stat);
    let text = percent_encode(&text, ENCODED).to_string();
    response
        .headers_mut()
        .insert(header_name!("x-ms-link-text"), HeaderValue::try_from(text).expect("percent-encoded is ASCII"));
    Ok(response)
}
