//! Requests about directories: create, properties, metadata, listing, deletion.

use axum::response::Response;
use corro_shares::{Kind, PageRequest, Properties, ShareError, Stat};

use crate::context::OperationContext;
use crate::files::directory_listing::{self, Details, Directory};
use crate::files::file_headers::parent_id;
use crate::protocol::error::StorageError;
use crate::protocol::listing::{ListingParams, page_limit, parse_marker};
use crate::protocol::request::StorageRequest;
use crate::protocol::smb_properties::SmbSettings;
use crate::protocol::{metadata_headers, response};
use crate::shares::permissions;

pub(crate) async fn create(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let mut properties = metadata_headers::parse_metadata(context.request)?;
    let mut smb = SmbSettings::parse(context.request, Kind::Directory)?;
    let (stat, properties, parent) = context
        .try_on_disk(move |shares, location| {
            let share = location.open(shares)?;
            permissions::resolve(&mut smb, shares, location)?;
            let stat = share.create_dir(&location.path)?;
            smb.apply_to_new(&mut properties, &stat);
            if !properties.is_empty() {
                share.change_properties_keep_mtime(&location.path, |stored, _| {
                    stored.clone_from(&properties);
                    Ok::<_, ShareError>(())
                })?;
            }
            Ok((stat, properties, parent_id(&share, &location.path)))
        })
        .await?;
    Ok(changed_response(context.request, 201, (&stat, &properties), parent))
}

pub(crate) async fn properties(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let found = context
        .on_disk(|shares, location| {
            let share = location.open(shares)?;
            share.stat_dir(&location.path)?;
            let (stat, properties) = share.describe(&location.path)?;
            Ok((stat, properties, parent_id(&share, &location.path)))
        })
        .await;
    let (stat, properties, parent) = found.map_err(StorageError::type_mismatch_as_not_found)?;
    let mut response = changed_response(context.request, 200, (&stat, &properties), parent);
    metadata_headers::set_headers(response.headers_mut(), &properties);
    response::set_header(response.headers_mut(), "x-ms-server-encrypted", "true");
    Ok(response)
}

/// `comp=metadata` replaces the metadata, `comp=properties` the SMB properties.
pub(crate) async fn set(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let metadata = metadata_headers::parse_metadata(context.request)?;
    let only_metadata = context.request.parameter("comp").eq_ignore_ascii_case("metadata");
    let mut smb =
        if only_metadata { SmbSettings::default() } else { SmbSettings::parse(context.request, Kind::Directory)? };
    let changed = context
        .try_on_disk(move |shares, location| {
            let share = location.open(shares)?;
            share.stat_dir(&location.path)?;
            permissions::resolve(&mut smb, shares, location)?;
            share.change_properties_with(&location.path, |stored, before, at| {
                if only_metadata {
                    metadata_headers::replace_metadata(stored, &metadata);
                }
                smb.apply_to_existing(stored, before, at);
            })?;
            let (stat, properties) = share.describe(&location.path)?;
            Ok((stat, properties, parent_id(&share, &location.path)))
        })
        .await;
    let (stat, properties, parent) = changed.map_err(StorageError::type_mismatch_as_not_found)?;
    Ok(changed_response(context.request, 200, (&stat, &properties), parent))
}

pub(crate) async fn list(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let request = context.request;
    let limit = page_limit(request)?;
    let marker = request.parameter("marker");
    let (from, prefix) = parse_marker(marker);
    let prefix = prefix.unwrap_or_else(|| request.parameter("prefix").to_owned());
    let asked_prefix = prefix.clone();
    let details = Details::parse(request.parameter("include"), request.flag("x-ms-file-extended-info")?);
    let described = details.needs_properties();
    let (page, stat) = context
        .on_disk(move |shares, location| {
            let share = location.open(shares)?;
            let request = PageRequest { prefix: &prefix, from: &from, limit: limit.effective, described };
            let page = share.list_page(&location.path, request)?;
            Ok((page, share.stat_dir(&location.path)?))
        })
        .await?;
    let params = ListingParams {
        endpoint: request.endpoint(),
        prefix: &asked_prefix,
        marker,
        limit: limit.requested,
        encodes_names: request.supports_encoded_names(),
    };
    let location = Directory { share: &context.share, path: context.path.as_str(), stat: &stat };
    let xml = directory_listing::document(&params, location, &page, details);
    let mut response = response::xml_document(xml);
    response::set_etag_and_modified(response.headers_mut(), &stat);
    Ok(response)
}

pub(crate) async fn delete(context: OperationContext<'_>) -> Result<Response, StorageError> {
    context.on_disk(|shares, location| location.open(shares)?.delete_dir(&location.path)).await?;
    Ok(response::empty(202))
}

fn changed_response(request: &StorageRequest, status: u16, about: (&Stat, &Properties), parent: u64) -> Response {
    let mut response = response::empty(status);
    response::set_etag_and_modified(response.headers_mut(), about.0);
    response::set_smb_headers(response.headers_mut(), request, about, parent);
    response::set_header(response.headers_mut(), "x-ms-request-server-encrypted", "true");
    response
}
