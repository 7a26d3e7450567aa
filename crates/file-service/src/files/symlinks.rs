//! Requests that make and read symbolic links (`restype=symboliclink`), as the service has them for NFS shares from version 2025-07-05 on.
//! The text of a link travels percent-encoded in the header `x-ms-link-text` and is never resolved here.

use axum::response::Response;
use http::HeaderValue;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

use crate::context::Context;
use crate::protocol::error::Refusal;
use crate::protocol::response::{self, name};

const TEXT: &str = "x-ms-link-text";
/// Only what a header cannot say: most texts can be read by clients that decode nothing.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

pub(crate) async fn create(context: Context<'_>) -> Result<Response, Refusal> {
    let text = context.call.header(TEXT).ok_or(Refusal::missing_header(TEXT))?;
    let text: Vec<u8> = percent_decode_str(text).collect();
    let stat = context.on_disk(move |shares, place| place.open(shares)?.create_link(&place.path, &text)).await?;
    let mut response = response::empty(201);
    response::set_stat(response.headers_mut(), &stat);
    Ok(response)
}

pub(crate) async fn read(context: Context<'_>) -> Result<Response, Refusal> {
    let (text, stat) = context
        .on_disk(|shares, place| {
            let share = place.open(shares)?;
            Ok((share.read_link(&place.path)?, share.lstat(&place.path)?))
        })
        .await?;
    let mut response = response::empty(200);
    response::set_stat(response.headers_mut(), &stat);
    let text = percent_encode(&text, ENCODED).to_string();
    response
        .headers_mut()
        .insert(name!("x-ms-link-text"), HeaderValue::try_from(text).expect("percent-encoded is ASCII"));
    Ok(response)
}
