//! Listing of shares and containers: selection of a page, and the XML document of shares. Pure.

use std::fmt::Write;

use corro_shares::{Properties, SnapshotId, TreeEntry};

use crate::protocol::error::StorageError;
use crate::protocol::listing::{ListingParams, close_listing, page_limit, push_params};
use crate::protocol::request::StorageRequest;
use crate::protocol::time_format::http_date;
use crate::protocol::xml::{DECLARATION, escape, push_metadata};

/// A share in a listing, or one of its snapshots.
pub(crate) struct ListedShare {
    pub snapshot: Option<SnapshotId>,
    pub share: TreeEntry,
}

/// A page of a listing of shares or containers.
pub(crate) struct SharePage<'a, T> {
    pub params: ListingParams<'a>,
    pub entries: Vec<T>,
    pub next: Option<String>,
}

pub(crate) fn select_page<T>(
    request: &StorageRequest,
    mut entries: Vec<T>,
    name: impl Fn(&T) -> &String,
) -> Result<SharePage<'_, T>, StorageError> {
    let (prefix, marker) = (request.parameter("prefix"), request.parameter("marker"));
    let limit = page_limit(request)?;
    entries.retain(|entry| name(entry).starts_with(prefix) && name(entry).as_str() >= marker);
    // A page ends between two names: snapshots stay with their share.
    let mut end = limit.effective.min(entries.len());
    while end < entries.len() && end > 0 && name(&entries[end]) == name(&entries[end - 1]) {
        end += 1;
    }
    let next = entries.get(end).map(|entry| name(entry).clone());
    entries.truncate(end);
    let params = ListingParams {
        endpoint: request.endpoint(),
        prefix,
        marker,
        limit: limit.requested,
        encodes_names: request.supports_encoded_names(),
    };
    Ok(SharePage { params, entries, next })
}

pub(crate) fn shares_document(
    params: &ListingParams,
    shares: &[ListedShare],
    describe: impl Fn(&Properties) -> String,
    with_metadata: bool,
    next: Option<&str>,
) -> String {
    let mut xml = format!("{DECLARATION}<EnumerationResults ServiceEndpoint=\"{}\">", escape(&params.endpoint));
    push_params(&mut xml, params);
    xml.push_str("<Shares>");
    for ListedShare { snapshot, share } in shares {
        let _ = write!(xml, "<Share><Name>{}</Name>", escape(&share.name));
        if let Some(id) = snapshot {
            let _ = write!(xml, "<Snapshot>{}</Snapshot>", id.as_str());
        }
        let _ = write!(
            xml,
            "<Properties><Last-Modified>{}</Last-Modified><Etag>{}</Etag>{}</Properties>",
            http_date(share.modified),
            escape(&share.etag),
            describe(&share.properties),
        );
        if with_metadata {
            push_metadata(&mut xml, &share.properties);
        }
        xml.push_str("</Share>");
    }
    xml.push_str("</Shares>");
    close_listing(xml, next)
}
