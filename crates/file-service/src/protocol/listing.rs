//! Parameters that all listings have: page size, prefix and marker, and the elements that repeat them in the document. Pure.

use std::fmt::Write;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::protocol::error::Refusal;
use crate::protocol::request::Call;
use crate::protocol::xml::{can_be_said, escape, push_name};

/// How many entries a listing may have: as asked, and as we do.
#[derive(Clone, Copy)]
pub(crate) struct PageLimit {
    pub asked: Option<usize>,
    pub effective: usize,
}

/// The service's own limit and default.
const MAX_PAGE: usize = 5000;

pub(crate) fn page_limit(call: &Call) -> Result<PageLimit, Refusal> {
    let text = call.parameter("maxresults");
    if text.is_empty() {
        return Ok(PageLimit { asked: None, effective: MAX_PAGE });
    }
    match text.parse::<usize>() {
        Ok(asked @ 1..) => Ok(PageLimit { asked: Some(asked), effective: asked.min(MAX_PAGE) }),
        _ => Err(Refusal::new("OutOfRangeQueryParameterValue")),
    }
}

/// What a listing was asked for, repeated in its answer.
pub(crate) struct Asked<'a> {
    pub endpoint: String,
    pub prefix: &'a str,
    pub marker: &'a str,
    pub limit: Option<usize>,
    /// The reader knows names that are written encoded, because XML cannot say them.
    pub encodes: bool,
}

pub(crate) fn echo(xml: &mut String, asked: &Asked) {
    for (element, value) in [("Prefix", asked.prefix), ("Marker", asked.marker)] {
        match value.is_empty() {
            true => {}
            false if asked.encodes => push_name(xml, element, value),
            false => {
                let _ = write!(xml, "<{element}>{}</{element}>", escape(value));
            }
        }
    }
    if let Some(limit) = asked.limit {
        let _ = write!(xml, "<MaxResults>{limit}</MaxResults>");
    }
}

pub(crate) fn finish(mut xml: String, next: Option<&str>) -> String {
    match next {
        Some(next) => {
            let _ = write!(xml, "<NextMarker>{}</NextMarker>", escape(next));
        }
        None => xml.push_str("<NextMarker />"),
    }
    xml.push_str("</EnumerationResults>");
    xml
}

/// Where the next page begins: a name, or, when that does not do, a slash, which is in no name, before name and prefix.
/// The SDKs of these versions repeat the prefix wrongly when they ask for the next page, so the marker carries it.
pub(crate) fn marker_of(name: &str, asked: &Asked) -> String {
    match can_be_said(name) && (asked.prefix.is_empty() || !asked.encodes) {
        true => name.to_owned(),
        false => {
            let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
            format!("/{}/{}", encode(name), encode(asked.prefix))
        }
    }
}

/// A marker for a name that may hold anything; [`marked`] reads it.
pub(crate) fn encoded_marker(name: &str) -> String {
    format!("/{}/", utf8_percent_encode(name, NON_ALPHANUMERIC))
}

/// The name that a marker stands for, and the prefix if it carries one.
pub(crate) fn marked(marker: &str) -> (String, Option<String>) {
    let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    match marker.strip_prefix('/').and_then(|both| both.split_once('/')) {
        Some((name, prefix)) => (decode(name), Some(decode(prefix))),
        None => (marker.to_owned(), None),
    }
}
