//! Properties and metadata of shares, directories and files: reading and setting.

use bytes::Bytes;
use corro_model::Timestamp;
use corro_model::xml;
use reqwest::Method;
use reqwest::header::HeaderMap;

use super::resource_type::{DIRECTORY, SHARE};
use super::settings::{borrowed, metadata_headers};
use super::{ContentSettings, FileService, FileSettings, Metadata};
use crate::ClientError;
use crate::response::HttpResponse;

/// Properties common to all resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    pub etag: Option<String>,
    pub last_modified: Option<Timestamp>,
    pub metadata: Metadata,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShareProperties {
    pub properties: Properties,
    pub quota_gib: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileProperties {
    pub properties: Properties,
    pub length: u64,
    pub content: ContentSettings,
    pub copy: Copy,
    pub server_encrypted: Option<bool>,
    /// Only for blobs.
    pub created: Option<Timestamp>,
}

/// Copy state of a file, in the service's terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copy {
    pub id: Option<String>,
    pub status: Option<String>,
    pub source: Option<String>,
    pub progress: Option<String>,
    pub description: Option<String>,
    pub completed: Option<Timestamp>,
}

const METADATA: (&str, &str) = ("comp", "metadata");
const PROPERTIES: (&str, &str) = ("comp", "properties");

impl FileService {
    pub async fn share_properties(&self, share: &str) -> Result<ShareProperties, ClientError> {
        let answer = self.request(Method::GET, (share, ""), &[SHARE], &[], Bytes::new()).await?;
        let quota_gib = answer.header("x-ms-share-quota").and_then(|quota| quota.parse().ok());
        Ok(ShareProperties { properties: properties_of(&answer.headers), quota_gib })
    }

    pub async fn set_share_quota(&self, share: &str, quota_gib: u32) -> Result<(), ClientError> {
        let quota = quota_gib.to_string();
        self.set((share, ""), &[SHARE, PROPERTIES], &[("x-ms-share-quota", &quota)]).await
    }

    pub async fn set_share_metadata(&self, share: &str, metadata: &Metadata) -> Result<(), ClientError> {
        self.set_metadata((share, ""), &[SHARE, METADATA], metadata).await
    }

    /// Used space of the share, in whole GiB.
    pub async fn share_usage_gib(&self, share: &str) -> Result<u64, ClientError> {
        let query = [SHARE, ("comp", "stats")];
        let answer = self.request(Method::GET, (share, ""), &query, &[], Bytes::new()).await?;
        let stats = xml::parse_small(&String::from_utf8_lossy(&answer.body));
        let usage = stats.as_ref().and_then(|stats| stats.text_of("ShareUsage")?.parse().ok());
        usage.ok_or_else(|| ClientError::UnexpectedFileAnswer { request: "share stats".to_owned() })
    }

    pub async fn directory_properties(&self, share: &str, path: &str) -> Result<Properties, ClientError> {
        let answer = self.request(Method::GET, (share, path), &[DIRECTORY], &[], Bytes::new()).await?;
        Ok(properties_of(&answer.headers))
    }

    pub async fn set_directory_metadata(&self, share: &str, path: &str, new: &Metadata) -> Result<(), ClientError> {
        self.set_metadata((share, path), &[DIRECTORY, METADATA], new).await
    }

    pub async fn file_properties(&self, share: &str, path: &str) -> Result<FileProperties, ClientError> {
        let response = self.send(Method::HEAD, (share, path), &[], &[], Bytes::new()).await?;
        // From the header: a HEAD response has no body to measure.
        let length = response.headers().get("content-length").and_then(|v| v.to_str().ok()?.parse().ok());
        let answer = self.read(response, (share, path)).await?;
        Ok(file_properties_of(&answer.headers, length.unwrap_or(0)))
    }

    pub async fn set_file_metadata(&self, share: &str, path: &str, metadata: &Metadata) -> Result<(), ClientError> {
        self.set_metadata((share, path), &[METADATA], metadata).await
    }

    /// Replaces all content settings of a file.
    pub async fn set_content(&self, share: &str, path: &str, content: ContentSettings) -> Result<(), ClientError> {
        let headers = FileSettings { content, metadata: Metadata::new() }.headers_of(self.of_blobs);
        self.set((share, path), &[PROPERTIES], &borrowed(&headers).collect::<Vec<_>>()).await
    }

    pub async fn resize_file(&self, share: &str, path: &str, length: u64) -> Result<(), ClientError> {
        let length = length.to_string();
        self.set((share, path), &[PROPERTIES], &[("x-ms-content-length", &length)]).await
    }

    /// Copies the file at `source`, a URL of the same server, to `path`.
    pub async fn copy_file(
        &self,
        share: &str,
        path: &str,
        source: &str,
        metadata: &Metadata,
    ) -> Result<Copy, ClientError> {
        let mut headers = metadata_headers(metadata);
        headers.push(("x-ms-copy-source".to_owned(), source.to_owned()));
        let headers: Vec<_> = borrowed(&headers).collect();
        let answer = self.request(Method::PUT, (share, path), &[], &headers, Bytes::new()).await?;
        Ok(copy_of(&answer.headers))
    }

    /// Aborts a pending copy; an empty file remains.
    pub async fn abort_copy(&self, share: &str, path: &str, id: &str) -> Result<(), ClientError> {
        self.set((share, path), &[("comp", "copy"), ("copyid", id)], &[("x-ms-copy-action", "abort")]).await
    }

    async fn set_metadata(
        &self,
        target: (&str, &str),
        query: &[(&str, &str)],
        metadata: &Metadata,
    ) -> Result<(), ClientError> {
        let headers = metadata_headers(metadata);
        self.set(target, query, &borrowed(&headers).collect::<Vec<_>>()).await
    }

    async fn set(
        &self,
        target: (&str, &str),
        query: &[(&str, &str)],
        headers: &[(&str, &str)],
    ) -> Result<(), ClientError> {
        self.request(Method::PUT, target, query, headers, Bytes::new()).await.map(drop)
    }
}

pub(super) fn properties_of(headers: &HeaderMap) -> Properties {
    let metadata = headers.iter().filter_map(|(name, value)| {
        Some((name.as_str().strip_prefix("x-ms-meta-")?.to_owned(), value.to_str().ok()?.to_owned()))
    });
    Properties {
        etag: text(headers, "etag"),
        last_modified: text(headers, "last-modified").as_deref().and_then(http_time),
        metadata: metadata.collect(),
    }
}

pub(super) fn file_properties_of(headers: &HeaderMap, length: u64) -> FileProperties {
    FileProperties {
        properties: properties_of(headers),
        length,
        content: ContentSettings {
            content_type: text(headers, "content-type"),
            encoding: text(headers, "content-encoding"),
            language: text(headers, "content-language"),
            disposition: text(headers, "content-disposition"),
            cache_control: text(headers, "cache-control"),
            md5: ["content-md5", "x-ms-content-md5", "x-ms-blob-content-md5"]
                .iter()
                .find_map(|name| text(headers, name)),
        },
        copy: copy_of(headers),
        server_encrypted: text(headers, "x-ms-server-encrypted").map(|word| word == "true"),
        created: text(headers, "x-ms-creation-time").as_deref().and_then(http_time),
    }
}

fn copy_of(headers: &HeaderMap) -> Copy {
    Copy {
        id: text(headers, "x-ms-copy-id"),
        status: text(headers, "x-ms-copy-status"),
        source: text(headers, "x-ms-copy-source"),
        progress: text(headers, "x-ms-copy-progress"),
        description: text(headers, "x-ms-copy-status-description"),
        completed: text(headers, "x-ms-copy-completion-time").as_deref().and_then(http_time),
    }
}

/// Id and properties from the response that creates a snapshot.
pub(super) fn snapshot_of(answer: &HttpResponse) -> Option<(String, Properties)> {
    Some((answer.header("x-ms-snapshot")?.to_owned(), properties_of(&answer.headers)))
}

pub(super) fn http_time(text: &str) -> Option<Timestamp> {
    httpdate::parse_http_date(text).ok().map(Timestamp::from)
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}
