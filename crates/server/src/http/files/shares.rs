//! Requests about whole shares. Their answers never carry `x-ms-file-*` headers.

use axum::response::Response;
use corro_shares::SharePath;

use super::{Context, directories::page_limit, refusal::Refusal, reply, xml};

/// What every share says its quota is, in GiB; the disk is the real limit.
const QUOTA_GIB: u64 = 5120;

pub(super) async fn list(context: Context<'_>) -> Result<Response, Refusal> {
    let mut shares = context.on_disk(|shares, place| shares.list_shares(&place.account)).await?;
    let call = context.call;
    let (prefix, marker) = (call.parameter("prefix"), call.parameter("marker"));
    let limit = page_limit(call)?;
    shares.retain(|share| share.name.starts_with(prefix) && share.name.as_str() >= marker);
    let next = shares.get(limit.effective).map(|share| share.name.clone());
    shares.truncate(limit.effective);
    let asked = xml::Asked { endpoint: &call.endpoint, prefix, marker, limit: limit.asked };
    Ok(reply::document(xml::shares(&asked, &shares, QUOTA_GIB, next.as_deref())))
}

pub(super) async fn create(context: Context<'_>) -> Result<Response, Refusal> {
    let stat = context
        .on_disk(|shares, place| shares.create_share(&place.account, &place.share)?.stat(&SharePath::ROOT))
        .await?;
    let mut response = reply::empty(201);
    reply::set_stat(response.headers_mut(), &stat);
    Ok(response)
}

pub(super) async fn properties(context: Context<'_>) -> Result<Response, Refusal> {
    let stat = context.on_disk(|shares, place| place.open(shares)?.stat(&SharePath::ROOT)).await?;
    let mut response = reply::empty(200);
    reply::set_stat(response.headers_mut(), &stat);
    reply::set(response.headers_mut(), "x-ms-share-quota", &QUOTA_GIB.to_string());
    Ok(response)
}

/// Metadata and quota are accepted and not kept.
pub(super) async fn set(context: Context<'_>) -> Result<Response, Refusal> {
    let stat = context.on_disk(|shares, place| place.open(shares)?.stat(&SharePath::ROOT)).await?;
    let mut response = reply::empty(200);
    reply::set_stat(response.headers_mut(), &stat);
    Ok(response)
}

pub(super) async fn delete(context: Context<'_>) -> Result<Response, Refusal> {
    let removed = context.on_disk(|shares, place| shares.delete_share(&place.account, &place.share)).await?;
    if let Some(error) = removed.left_behind {
        // The share is gone for its users; that its bytes are not is the operator's to know.
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        tracing::warn!(account = context.call.account, share = context.share, "{error}: {cause}");
    }
    Ok(reply::empty(202))
}
