//! Requests about whole shares. Their answers never carry `x-ms-file-*` headers.

use axum::response::Response;
use corro_shares::{Removed, SharePath, TreeEntry};

use super::{Context, call::Call, directories::page_limit, refusal::Refusal, reply, xml};

/// What every share says its quota is, in GiB; the disk is the real limit.
const QUOTA_GIB: u64 = 5120;

pub(super) async fn list(context: Context<'_>) -> Result<Response, Refusal> {
    let shares = context.on_disk(|shares, place| shares.list_shares(&place.account)).await?;
    let TreePage { asked, trees, next } = page(context.call, shares)?;
    Ok(reply::document(xml::shares(&asked, &trees, QUOTA_GIB, next.as_deref())))
}

/// The part of a listing of shares or containers that was asked for.
pub(super) struct TreePage<'a> {
    pub asked: xml::Asked<'a>,
    pub trees: Vec<TreeEntry>,
    pub next: Option<String>,
}

pub(super) fn page(call: &Call, mut trees: Vec<TreeEntry>) -> Result<TreePage<'_>, Refusal> {
    let (prefix, marker) = (call.parameter("prefix"), call.parameter("marker"));
    let limit = page_limit(call)?;
    trees.retain(|tree| tree.name.starts_with(prefix) && tree.name.as_str() >= marker);
    let next = trees.get(limit.effective).map(|tree| tree.name.clone());
    trees.truncate(limit.effective);
    let asked = xml::Asked { endpoint: &call.endpoint, prefix, marker, limit: limit.asked };
    Ok(TreePage { asked, trees, next })
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
    report(&context, removed);
    Ok(reply::empty(202))
}

/// A tree is gone for its users as soon as it is renamed; that its bytes are not is the operator's to know.
pub(super) fn report(context: &Context<'_>, removed: Removed) {
    if let Some(error) = removed.left_behind {
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        tracing::warn!(account = context.call.account, share = context.share, "{error}: {cause}");
    }
}
