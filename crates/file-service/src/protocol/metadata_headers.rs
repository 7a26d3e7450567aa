//! Metadata (`x-ms-meta-…`) and content settings (`Content-Type` and others) in request and response headers. Stored
//! under the names of the response headers. Pure.

use corro_shares::{MAX_PROPERTIES, Properties};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::protocol::error::StorageError;
use crate::protocol::request::StorageRequest;

const METADATA: &str = "x-ms-meta-";
/// Azure's limit for names and values together, in bytes.
const MAX_METADATA: usize = 8 << 10;

/// Request header of the file service, request header of the blob service, stored and response name.
const CONTENT_HEADERS: [(&str, &str, &str); 6] = [
    ("x-ms-content-type", "x-ms-blob-content-type", "content-type"),
    ("x-ms-content-encoding", "x-ms-blob-content-encoding", "content-encoding"),
    ("x-ms-content-language", "x-ms-blob-content-language", "content-language"),
    ("x-ms-content-disposition", "x-ms-blob-content-disposition", "content-disposition"),
    ("x-ms-content-md5", "x-ms-blob-content-md5", "content-md5"),
    ("x-ms-cache-control", "x-ms-blob-cache-control", "cache-control"),
];

/// Request header and stored name of each content setting, for the service that is addressed.
fn content_header_names(request: &StorageRequest) -> impl Iterator<Item = (&'static str, &'static str)> {
    let is_blob_service = request.is_blob_service;
    CONTENT_HEADERS
        .into_iter()
        .map(move |(of_files, of_blob, name)| (if is_blob_service { of_blob } else { of_files }, name))
}

/// Metadata and content settings of the request.
pub(crate) fn parse_properties(request: &StorageRequest) -> Result<Properties, StorageError> {
    let mut properties = parse_metadata(request)?;
    set_content(request, &mut properties)?;
    Ok(properties)
}

/// Metadata of the request.
pub(crate) fn parse_metadata(request: &StorageRequest) -> Result<Properties, StorageError> {
    let mut metadata = Properties::default();
    for (name, value) in &request.headers {
        let Some(key) = name.as_str().strip_prefix(METADATA) else { continue };
        // The name becomes an XML element in listings.
        let is_element = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let value = value.to_str().map_err(|_| invalid_metadata(key))?;
        if !is_element || !metadata.set(name.as_str(), value.trim()) {
            return Err(invalid_metadata(key));
        }
    }
    match metadata.size() > MAX_METADATA {
        true => Err(StorageError::new("MetadataTooLarge")),
        false => Ok(metadata),
    }
}

/// Replaces all content settings.
pub(crate) fn replace_content(properties: &mut Properties, new: &Properties) {
    for (.., name) in CONTENT_HEADERS {
        properties.remove(name);
        if let Some(value) = new.get(name) {
            let stored = properties.set(name, value);
            debug_assert!(stored, "it is a valid property");
        }
    }
}

fn set_content(request: &StorageRequest, properties: &mut Properties) -> Result<(), StorageError> {
    for (header, name) in content_header_names(request) {
        if !request.headers.contains_key(header) {
            continue;
        }
        let value = request.header(header).ok_or(StorageError::invalid_header(header))?.trim();
        if !value.is_empty() && !properties.set(name, value) {
            return Err(StorageError::invalid_header(header));
        }
    }
    match properties.size() > MAX_PROPERTIES {
        true => {
            Err(StorageError::new("InvalidHeaderValue").with_message("The content settings are longer than 8 KiB."))
        }
        false => Ok(()),
    }
}

pub(crate) fn has_content_settings(request: &StorageRequest) -> bool {
    content_header_names(request).any(|(header, _)| request.headers.contains_key(header))
}

/// Replaces all metadata.
pub(crate) fn replace_metadata(properties: &mut Properties, new: &Properties) {
    properties.retain(|name| !name.starts_with(METADATA));
    for (name, value) in new.iter() {
        let stored = properties.set(name, value);
        debug_assert!(stored, "it is a valid property");
    }
}

/// Name, without its prefix, and value of each metadata entry.
pub(crate) fn metadata_entries(properties: &Properties) -> impl Iterator<Item = (&str, &str)> {
    properties.iter().filter_map(|(name, value)| Some((name.strip_prefix(METADATA)?, value)))
}

/// Sets stored properties as response headers. Known names only, because a job can store any.
pub(crate) fn set_headers(headers: &mut HeaderMap, properties: &Properties) {
    for (name, value) in properties.iter() {
        let is_header = name.starts_with(METADATA)
            || name.starts_with("x-ms-copy-")
            || CONTENT_HEADERS.iter().any(|(.., content)| *content == name);
        if let (true, Ok(name), Ok(value)) = (is_header, HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.insert(name, value);
        }
    }
}

fn invalid_metadata(key: &str) -> StorageError {
    StorageError::new("InvalidMetadata").with_message(format!(
        "The metadata '{key}' is invalid: a name is letters, digits, '_' and '-', a value printable ASCII."
    ))
}
