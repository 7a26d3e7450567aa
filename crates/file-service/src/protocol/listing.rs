//! Parameters that all listings have: page size, prefix and marker, and the elements that repeat them in the document. Pure.

use std::fmt::Write;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::protocol::error::StorageError;
use crate::protocol::request::StorageRequest;
use crate::protocol::xml::{escape, is_representable, push_name};

/// Page size of a listing: as requested, and as applied.
#[derive(Clone, Copy)]
pub(crate) struct PageLimit {
    pub requested: Option<usize>,
    pub effective: usize,
}

/// Azure's limit and default.
const MAX_PAGE_ENTRIES: usize = 5000;

pub(crate) fn page_limit(request: &StorageRequest) -> Result<PageLimit, StorageError> {
    let text = request.parameter("maxresults");
    if text.is_empty() {
        return Ok(PageLimit { requested: None, effective: MAX_PAGE_ENTRIES });
    }
    match text.parse::<usize>() {
        Ok(requested @ 1..) => Ok(PageLimit { requested: Some(requested), effective: requested.min(MAX_PAGE_ENTRIES) }),
        _ => Err(StorageError::new("OutOfRangeQueryParameterValue")),
    }
}

/// Parameters of a listing, which its document repeats.
pub(crate) struct ListingParams<'a> {
    pub endpoint: String,
    pub prefix: &'a str,
    pub marker: &'a str,
    pub limit: Option<usize>,
    /// The client understands percent-encoded names, used for characters that XML cannot represent.
    pub encodes_names: bool,
}

pub(crate) fn push_params(xml: &mut String, params: &ListingParams) {
    for (element, value) in [("Prefix", params.prefix), ("Marker", params.marker)] {
        match value.is_empty() {
            true => {}
            false if params.encodes_names => push_name(xml, element, value),
            false => {
                let _ = write!(xml, "<{element}>{}</{element}>", escape(value));
            }
        }
    }
    if let Some(limit) = params.limit {
        let _ = write!(xml, "<MaxResults>{limit}</MaxResults>");
    }
}

pub(crate) fn close_listing(mut xml: String, next: Option<&str>) -> String {
    match next {
        Some(next) => {
            let _ = write!(xml, "<NextMarker>{}</NextMarker>", escape(next));
        }
        None => xml.push_str("<NextMarker />"),
    }
    xml.push_str("</EnumerationResults>");
    xml
}

/// Marker of the next page: a plain name if possible, else `/`, encoded name, `/`, encoded prefix. SDKs of these
/// versions repeat the prefix wrongly on the next request, so the marker carries it.
pub(crate) fn next_marker(name: &str, params: &ListingParams) -> String {
    match is_representable(name) && (params.prefix.is_empty() || !params.encodes_names) {
        true => name.to_owned(),
        false => {
            let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
            format!("/{}/{}", encode(name), encode(params.prefix))
        }
    }
}

/// Marker for an arbitrary name; read by [`parse_marker`].
pub(crate) fn encoded_marker(name: &str) -> String {
    format!("/{}/", utf8_percent_encode(name, NON_ALPHANUMERIC))
}

/// Name in a marker, and the prefix if the marker carries one.
pub(crate) fn parse_marker(marker: &str) -> (String, Option<String>) {
    let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    match marker.strip_prefix('/').and_then(|both| both.split_once('/')) {
        Some((name, prefix)) => (decode(name), Some(decode(prefix))),
        None => (marker.to_owned(), None),
    }
}
