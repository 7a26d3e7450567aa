//! Handles that SMB clients hold open. There is no SMB here, so there are none: a list of them is empty, and
//! closing them closes none. Both still say whether the thing they ask about is there.

use axum::response::Response;

use crate::context::Context;
use crate::protocol::error::Refusal;
use crate::protocol::listing::page_limit;
use crate::protocol::{response, xml};

pub(crate) async fn list(context: Context<'_>) -> Result<Response, Refusal> {
    page_limit(context.call)?;
    look(&context).await?;
    Ok(response::document(format!(
        "{}<EnumerationResults><Entries /><NextMarker /></EnumerationResults>",
        xml::DECLARATION
    )))
}

pub(crate) async fn close(context: Context<'_>) -> Result<Response, Refusal> {
    context.call.header("x-ms-handle-id").ok_or(Refusal::missing_header("x-ms-handle-id"))?;
    look(&context).await?;
    let mut response = response::empty(200);
    response::set(response.headers_mut(), "x-ms-number-of-handles-closed", "0");
    response::set(response.headers_mut(), "x-ms-number-of-handles-failed", "0");
    Ok(response)
}

async fn look(context: &Context<'_>) -> Result<(), Refusal> {
    context.on_disk(|shares, place| place.open(shares)?.stat(&place.path).map(drop)).await
}
