//! Properties and metadata that a caller sets, as request headers.

use std::collections::BTreeMap;

/// User metadata.
pub type Metadata = BTreeMap<String, String>;

/// Content settings of a file. Absent ones are not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContentSettings {
    /// Guessed from the name if absent.
    pub content_type: Option<String>,
    pub encoding: Option<String>,
    pub language: Option<String>,
    pub disposition: Option<String>,
    pub cache_control: Option<String>,
    pub md5: Option<String>,
}

/// Settings of an uploaded file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSettings {
    pub content: ContentSettings,
    pub metadata: Metadata,
}

/// Headers with names built at run time.
pub(super) type Headers = Vec<(String, String)>;

impl FileSettings {
    pub(super) fn headers(&self) -> Headers {
        self.headers_of(false)
    }

    /// Request headers; blobs have different names.
    pub(super) fn headers_of(&self, blob: bool) -> Headers {
        let content = &self.content;
        let mut headers = metadata_headers(&self.metadata);
        let given = [
            ("x-ms-content-type", &content.content_type),
            ("x-ms-content-encoding", &content.encoding),
            ("x-ms-content-language", &content.language),
            ("x-ms-content-disposition", &content.disposition),
            // The only one without "content" in its name.
            ("x-ms-cache-control", &content.cache_control),
            ("x-ms-content-md5", &content.md5),
        ];
        let named = |name: &str| if blob { name.replacen("x-ms-", "x-ms-blob-", 1) } else { name.to_owned() };
        headers.extend(given.into_iter().filter_map(|(name, value)| Some((named(name), value.clone()?))));
        headers
    }
}

pub(super) fn metadata_headers(metadata: &Metadata) -> Headers {
    metadata.iter().map(|(name, value)| (format!("x-ms-meta-{name}"), value.clone())).collect()
}

pub(super) fn borrowed(headers: &Headers) -> impl Iterator<Item = (&str, &str)> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_str()))
}
