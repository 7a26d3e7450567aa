//! Requests about blob containers: making, finding, listing and deleting them. What is in one is `blobs`'.

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
    let include = context.call.parameter("include").to_ascii_lowercase();
    let with_metadata = include.split(',').any(|word| word.trim() == "metadata");
    Ok(reply::document(xml::containers(&asked, &trees, with_metadata, next.as_deref())))
}

/// What clients ask to find out what they talk to.
pub(super) fn account() -> Response {
    let mut response = reply::empty(200);
    reply::set(response.headers_mut(), "x-ms-sku-name", "Standard_LRS");
    reply::set(response.headers_mut(), "x-ms-account-kind", "StorageV2");
    response
}

pub(super) async fn create(context: Context<'_>) -> Result<Response, Refusal> {
    let metadata = about::metadata(context.call)?;
    // Nothing is shown to those who show nothing.
    if context.call.headers.contains_key("x-ms-blob-public-access") {
        return Err(Refusal::new("PublicAccessNotPermitted"));
    }
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
    reply::set(response.headers_mut(), "x-ms-has-immutability-policy", "false");
    reply::set(response.headers_mut(), "x-ms-has-legal-hold", "false");
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
