//! Requests about blob containers: enough of the blob service that a container can be made, found, listed and deleted.
//! What is in one is reached by mounting it.

use axum::response::Response;
use corro_shares::{SharePath, Stat};

use super::{
    Context, about,
    refusal::Refusal,
    reply,
    shares::{TreePage, describe_new, page, report},
    xml,
};

pub(super) async fn list(context: Context<'_>) -> Result<Response, Refusal> {
    let containers = context.on_disk(|shares, place| shares.list_containers(&place.account)).await?;
    let TreePage { asked, trees, next } = page(context.call, containers, |container| &container.name)?;
    Ok(reply::document(xml::containers(&asked, &trees, next.as_deref())))
}

pub(super) async fn create(context: Context<'_>) -> Result<Response, Refusal> {
    let metadata = about::metadata(context.call)?;
    let stat = context
        .on_disk(move |shares, place| describe_new(&shares.create_container(&place.account, &place.share)?, metadata))
        .await?;
    Ok(described(201, &stat))
}

pub(super) async fn properties(context: Context<'_>) -> Result<Response, Refusal> {
    let (stat, properties) = context
        .on_disk(|shares, place| shares.container(&place.account, &place.share)?.describe(&SharePath::ROOT))
        .await?;
    let mut response = described(200, &stat);
    about::set(response.headers_mut(), &properties);
    // A container cannot be leased.
    reply::set(response.headers_mut(), "x-ms-lease-status", "unlocked");
    reply::set(response.headers_mut(), "x-ms-lease-state", "available");
    Ok(response)
}

pub(super) async fn set(context: Context<'_>) -> Result<Response, Refusal> {
    let metadata = about::metadata(context.call)?;
    let stat = context
        .on_disk(move |shares, place| {
            let container = shares.container(&place.account, &place.share)?;
            container.change_properties(&SharePath::ROOT, |kept| about::replace_metadata(kept, &metadata))
        })
        .await?;
    Ok(described(200, &stat))
}

pub(super) async fn delete(context: Context<'_>) -> Result<Response, Refusal> {
    let removed = context.on_disk(|shares, place| shares.delete_container(&place.account, &place.share)).await?;
    report(&context, removed);
    Ok(reply::empty(202))
}

fn described(status: u16, stat: &Stat) -> Response {
    let mut response = reply::empty(status);
    reply::set_stat(response.headers_mut(), stat);
    response
}
