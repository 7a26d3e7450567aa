//! Requests about blob containers: create, properties, metadata, listing, deletion.

use std::fmt::Write;

use axum::response::Response;
use corro_shares::{SharePath, Stat, TreeEntry};

use crate::context::OperationContext;
use crate::protocol::error::StorageError;
use crate::protocol::listing::{ListingParams, close_listing, push_params};
use crate::protocol::time_format::http_date;
use crate::protocol::xml::{DECLARATION, escape, push_metadata};
use crate::protocol::{metadata_headers, response};
use crate::shares::listing::{SharePage, select_page};
use crate::shares::share_ops::{log_leftovers, store_properties};

pub(crate) async fn list(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let containers = context.on_disk(|shares, location| shares.list_containers(&location.account)).await?;
    let SharePage { params, entries, next } = select_page(context.request, containers, |container| &container.name)?;
    let include = context.request.parameter("include").to_ascii_lowercase();
    let with_metadata = include.split(',').any(|word| word.trim() == "metadata");
    Ok(response::xml_document(document(&params, &entries, with_metadata, next.as_deref())))
}

/// Get Account Information: clients call it to find out what they are connected to.
pub(crate) fn account() -> Response {
    let mut response = response::empty(200);
    response::set_header(response.headers_mut(), "x-ms-sku-name", "Standard_LRS");
    response::set_header(response.headers_mut(), "x-ms-account-kind", "StorageV2");
    response
}

pub(crate) async fn create(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let metadata = metadata_headers::parse_metadata(context.request)?;
    // Anonymous access does not exist here.
    if context.request.headers.contains_key("x-ms-blob-public-access") {
        return Err(StorageError::new("PublicAccessNotPermitted"));
    }
    let stat = context
        .on_disk(move |shares, location| {
            store_properties(&shares.create_container(&location.account, &location.share)?, metadata)
        })
        .await?;
    Ok(described(201, &stat))
}

pub(crate) async fn properties(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let (stat, properties) = context
        .on_disk(|shares, location| shares.container(&location.account, &location.share)?.describe(&SharePath::ROOT))
        .await?;
    let mut response = described(200, &stat);
    metadata_headers::set_headers(response.headers_mut(), &properties);
    // Containers cannot be leased here.
    response::set_header(response.headers_mut(), "x-ms-lease-status", "unlocked");
    response::set_header(response.headers_mut(), "x-ms-lease-state", "available");
    response::set_header(response.headers_mut(), "x-ms-has-immutability-policy", "false");
    response::set_header(response.headers_mut(), "x-ms-has-legal-hold", "false");
    Ok(response)
}

pub(crate) async fn set(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let metadata = metadata_headers::parse_metadata(context.request)?;
    let stat = context
        .on_disk(move |shares, location| {
            let container = shares.container(&location.account, &location.share)?;
            container
                .change_properties(&SharePath::ROOT, |stored| metadata_headers::replace_metadata(stored, &metadata))
        })
        .await?;
    Ok(described(200, &stat))
}

pub(crate) async fn delete(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let removed =
        context.on_disk(|shares, location| shares.delete_container(&location.account, &location.share)).await?;
    log_leftovers(&context, removed);
    Ok(response::empty(202))
}

fn described(status: u16, stat: &Stat) -> Response {
    let mut response = response::empty(status);
    response::set_etag_and_modified(response.headers_mut(), stat);
    response
}

fn document(params: &ListingParams, containers: &[TreeEntry], with_metadata: bool, next: Option<&str>) -> String {
    let mut xml = format!("{DECLARATION}<EnumerationResults ServiceEndpoint=\"{}\">", escape(&params.endpoint));
    push_params(&mut xml, params);
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
    close_listing(xml, next)
}
