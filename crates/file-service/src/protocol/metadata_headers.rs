//! What a request says about a thing besides its content, and the same on the way back: metadata and content settings.
//! Pure. The names under which they are kept are those of the answer's headers.

use corro_shares::{MAX_PROPERTIES, Properties};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::protocol::error::Refusal;
use crate::protocol::request::Call;

const METADATA: &str = "x-ms-meta-";
/// The service's limit for names and values together.
const MAX_METADATA: usize = 8 << 10;

/// The header of a request, that of one about a blob, and the name it is kept and answered under.
const CONTENT: [(&str, &str, &str); 6] = [
    ("x-ms-content-type", "x-ms-blob-content-type", "content-type"),
    ("x-ms-content-encoding", "x-ms-blob-content-encoding", "content-encoding"),
    ("x-ms-content-language", "x-ms-blob-content-language", "content-language"),
    ("x-ms-content-disposition", "x-ms-blob-content-disposition", "content-disposition"),
    ("x-ms-content-md5", "x-ms-blob-content-md5", "content-md5"),
    ("x-ms-cache-control", "x-ms-blob-cache-control", "cache-control"),
];

/// Header and name of each, as the service that is asked calls them.
fn content_headers(call: &Call) -> impl Iterator<Item = (&'static str, &'static str)> {
    let of_blobs = call.of_blobs;
    CONTENT.into_iter().map(move |(of_files, of_blob, name)| (if of_blobs { of_blob } else { of_files }, name))
}

/// Everything the request says.
pub(crate) fn of(call: &Call) -> Result<Properties, Refusal> {
    let mut properties = metadata(call)?;
    set_content(call, &mut properties)?;
    Ok(properties)
}

/// The metadata alone.
pub(crate) fn metadata(call: &Call) -> Result<Properties, Refusal> {
    let mut metadata = Properties::default();
    for (name, value) in &call.headers {
        let Some(key) = name.as_str().strip_prefix(METADATA) else { continue };
        // Each becomes an element of a listing.
        let is_element = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let value = value.to_str().map_err(|_| invalid_metadata(key))?;
        if !is_element || !metadata.set(name.as_str(), value.trim()) {
            return Err(invalid_metadata(key));
        }
    }
    match metadata.size() > MAX_METADATA {
        true => Err(Refusal::new("MetadataTooLarge")),
        false => Ok(metadata),
    }
}

/// `new` takes the place of all content settings that were kept.
pub(crate) fn replace_content(properties: &mut Properties, new: &Properties) {
    for (.., name) in CONTENT {
        properties.remove(name);
        if let Some(value) = new.get(name) {
            let kept = properties.set(name, value);
            debug_assert!(kept, "it was kept before");
        }
    }
}

fn set_content(call: &Call, properties: &mut Properties) -> Result<(), Refusal> {
    for (header, name) in content_headers(call) {
        if !call.headers.contains_key(header) {
            continue;
        }
        let value = call.header(header).ok_or(Refusal::header(header))?.trim();
        if !value.is_empty() && !properties.set(name, value) {
            return Err(Refusal::header(header));
        }
    }
    match properties.size() > MAX_PROPERTIES {
        true => Err(Refusal::new("InvalidHeaderValue").saying("The content settings are longer than 8 KiB.")),
        false => Ok(()),
    }
}

pub(crate) fn says_content(call: &Call) -> bool {
    content_headers(call).any(|(header, _)| call.headers.contains_key(header))
}

/// `new` takes the place of all metadata that was kept.
pub(crate) fn replace_metadata(properties: &mut Properties, new: &Properties) {
    properties.retain(|name| !name.starts_with(METADATA));
    for (name, value) in new.iter() {
        let kept = properties.set(name, value);
        debug_assert!(kept, "it was kept before");
    }
}

/// Name and value of each piece of metadata, without the prefix.
pub(crate) fn metadata_of(properties: &Properties) -> impl Iterator<Item = (&str, &str)> {
    properties.iter().filter_map(|(name, value)| Some((name.strip_prefix(METADATA)?, value)))
}

/// Puts what is kept on an answer. Only known names: a job could have kept any.
pub(crate) fn set(headers: &mut HeaderMap, properties: &Properties) {
    for (name, value) in properties.iter() {
        let known = name.starts_with(METADATA)
            || name.starts_with("x-ms-copy-")
            || CONTENT.iter().any(|(.., content)| *content == name);
        if let (true, Ok(name), Ok(value)) = (known, HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.insert(name, value);
        }
    }
}

fn invalid_metadata(key: &str) -> Refusal {
    Refusal::new("InvalidMetadata").saying(format!(
        "The metadata '{key}' cannot be kept: a name is letters, digits, '_' and '-', a value printable ASCII."
    ))
}
