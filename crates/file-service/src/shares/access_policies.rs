//! Requests that read and set the stored access policies of a share or container (`comp=acl`).

use axum::{body::Body, response::Response};
use corro_shares::SharePath;

use crate::auth::stored_policies::{document, load, parse, store};
use crate::context::OperationContext;
use crate::limits::request_body;
use crate::preconditions::Preconditions;
use crate::protocol::error::StorageError;
use crate::protocol::response;

pub(crate) async fn get(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let preconditions = Preconditions::parse(context.request, (context.state.now)())?;
    let (stat, policies) = context
        .try_on_disk(move |shares, location| {
            let (stat, properties) = location.open(shares)?.describe(&SharePath::ROOT)?;
            preconditions.check_share(&properties, false)?;
            Ok((stat, load(&properties)))
        })
        .await?;
    let mut response = response::xml_document(document(&policies));
    response::set_etag_and_modified(response.headers_mut(), &stat);
    Ok(response)
}

pub(crate) async fn set(context: OperationContext<'_>, body: Body) -> Result<Response, StorageError> {
    let body = request_body::read_whole(context.request, body, MAX_BODY).await?;
    let policies = parse(&body)?;
    let preconditions = Preconditions::parse(context.request, (context.state.now)())?;
    let stat = context
        .try_on_disk(move |shares, location| {
            let share = location.open(shares)?;
            preconditions.check_share(&share.describe(&SharePath::ROOT)?.1, false)?;
            Ok(share.change_properties(&SharePath::ROOT, |stored| store(stored, &policies))?)
        })
        .await?;
    let mut response = response::empty(200);
    response::set_etag_and_modified(response.headers_mut(), &stat);
    Ok(response)
}

const MAX_BODY: u64 = 64 << 10;
