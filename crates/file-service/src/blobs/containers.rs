//! Requests about blob containers: making, finding, listing and deleting them. What is in one is `blobs`'.

use std::fmt::Write;

use axum::response::Response;
use corro_shares::{SharePath, Stat, TreeEntry};

use crate::context::Context;
use crate::protocol::error::Refusal;
use crate::protocol::listing::{Asked, echo, finish};
use crate::protocol::time_format::http_date;
use crate::protocol::xml::{DECLARATION, escape, push_metadata};
use crate::protocol::{metadata_headers, response};
use crate::shares::listing::{TreePage, page};
use crate::shares::share_ops::{describe_new, report};

pub(crate) async fn list(context: Context<'_>) -> Result<Response, Refusal> {
    let containers = context.on_disk(|shares, place| shares.list_containers(&place.account)).await?;
    let TreePage { asked, trees, next } = page(context.call, containers, |container| &container.name)?;
    let include = context.call.parameter("include").to_ascii_lowercase();
    let with_metadata = include.split(',').any(|word| word.trim() == "metadata");
    Ok(response::document(document(&asked, &trees, with_metadata, next.as_deref())))
}

/// What clients ask to find out what they talk to.
pub(crate) fn account() -> Response {
    let mut response = response::empty(200);
    response::set(response.headers_mut(), "x-ms-sku-name", "Standard_LRS");
    response::set(response.headers_mut(), "x-ms-account-kind", "StorageV2");
    response
}

pub(crate) async fn create(context: Context<'_>) -> Result<Response, Refusal> {
    let metadata = metadata_headers::metadata(context.call)?;
    // Nothing is shown to those who show nothing.
    if context.call.headers.contains_key("x-ms-blob-public-access") {
        return Err(Refusal::new("PublicAccessNotPermitted"));
    }
    let stat = context
        .on_disk(move |shares, place| describe_new(&shares.create_container(&place.account, &place.share)?, metadata))
        .await?;
    Ok(described(201, &stat))
}

pub(crate) async fn properties(context: Context<'_>) -> Result<Response, Refusal> {
    let (stat, properties) = context
        .on_disk(|shares, place| shares.container(&place.account, &place.share)?.describe(&SharePath::ROOT))
        .await?;
    let mut response = described(200, &stat);
    metadata_headers::set(response.headers_mut(), &properties);
    // A container cannot be leased.
    response::set(response.headers_mut(), "x-ms-lease-status", "unlocked");
    response::set(response.headers_mut(), "x-ms-lease-state", "available");
    response::set(response.headers_mut(), "x-ms-has-immutability-policy", "false");
    response::set(response.headers_mut(), "x-ms-has-legal-hold", "false");
    Ok(response)
}

pub(crate) async fn set(context: Context<'_>) -> Result<Response, Refusal> {
    let metadata = metadata_headers::metadata(context.call)?;
    let stat = context
        .on_disk(move |shares, place| {
            let container = shares.container(&place.account, &place.share)?;
            container.change_properties(&SharePath::ROOT, |kept| metadata_headers::replace_metadata(kept, &metadata))
        })
        .await?;
    Ok(described(200, &stat))
}

pub(crate) async fn delete(context: Context<'_>) -> Result<Response, Refusal> {
    let removed = context.on_disk(|shares, place| shares.delete_container(&place.account, &place.share)).await?;
    report(&context, removed);
    Ok(response::empty(202))
}

fn described(status: u16, stat: &Stat) -> Response {
    let mut response = response::empty(status);
    response::set_stat(response.headers_mut(), stat);
    response
}

fn document(asked: &Asked, containers: &[TreeEntry], with_metadata: bool, next: Option<&str>) -> String {
    let mut xml = format!("{DECLARATION}<EnumerationResults ServiceEndpoint=\"{}\">", escape(&asked.endpoint));
    echo(&mut xml, asked);
    xml.push_str("<Containers>");
    for container in containers {
        let _ = write!(
            xml,
            "<Container><Name>{}</Name><Properties><Last-Modified>{}</Last-Modified><Etag>{}</Etag>\
             <LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState>\
             <HasImmutabilityPolicy>false</HasImmutabilityPolicy><HasLegalHold>false</HasLegalHold></Properties>",
            escape(&container.name),
            http_date(container.modified),
            escape(&container.etag),
        );
        if with_metadata {
            push_metadata(&mut xml, &container.properties);
        }
        xml.push_str("</Container>");
    }
    xml.push_str("</Containers>");
    finish(xml, next)
}
