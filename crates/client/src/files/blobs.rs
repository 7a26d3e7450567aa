//! Blob service of the account: containers and blobs. Reads, properties and deletion of a blob are those of a file at
//! another address.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use corro_model::Timestamp;
use corro_model::xml::Element;
use futures_util::{StreamExt, TryStreamExt, stream};
use reqwest::Method;

use super::properties::{http_time, properties_of};
use super::settings::{borrowed, metadata_headers};
use super::tree::{CONTAINER, LIST, Link, created, link_in};
use super::upload::{guess_content_type, open_source, read_range};
use super::{ContentSettings, FileService, FileSettings, Metadata, Progress, Properties, md5_base64, persistently};
use crate::ClientError;

/// Largest blob that is uploaded in one request; larger ones are uploaded in blocks.
const MAX_SINGLE_PUT_BYTES: u64 = 64 * 1024 * 1024;
const BLOCK_BYTES: u64 = 4 * 1024 * 1024;
/// Azure's limit of blocks per blob, from which the block size follows.
const MAX_BLOCKS: u64 = 50_000;

/// Container in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    pub name: String,
    pub properties: Properties,
    pub lease_status: Option<String>,
    pub lease_state: Option<String>,
}

/// Blob in a listing, or a common prefix of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlobEntry {
    Blob(Box<Blob>),
    Prefix(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    pub name: String,
    pub properties: Properties,
    pub length: u64,
    pub content: ContentSettings,
    pub created: Option<Timestamp>,
    pub link: Option<Link>,
}

/// Filter of a blob listing.
#[derive(Clone, Debug, Default)]
pub struct BlobFilter {
    pub prefix: Option<String>,
    pub delimiter: Option<String>,
    pub metadata: bool,
    pub limit: Option<usize>,
}

impl FileService {
    /// Blob service of the same account.
    pub fn blobs(self) -> FileService {
        let server = self.transport.server().to_owned();
        let (server, root) = match self.root.is_empty() {
            true => (server.replacen(".file.", ".blob.", 1), String::new()),
            false => (server, format!("{}.blob", self.root)),
        };
        let transport = self.transport.clone().at(server);
        FileService { transport, root, of_blobs: true, ..self }
    }

    /// The same, if the endpoint already is the blob service's.
    pub fn as_blobs(self) -> FileService {
        FileService { of_blobs: true, ..self }
    }

    pub async fn list_containers(
        &self,
        prefix: Option<&str>,
        with_metadata: bool,
        limit: Option<usize>,
    ) -> Result<Vec<Container>, ClientError> {
        let mut query = vec![LIST];
        query.extend(prefix.map(|prefix| ("prefix", prefix)));
        query.extend(with_metadata.then_some(("include", "metadata")));
        let containers = self.list_all(("", ""), &query, "Containers", limit).await?;
        Ok(containers.iter().filter_map(container).collect())
    }

    pub async fn container_properties(&self, container: &str) -> Result<Container, ClientError> {
        let answer = self.request(Method::GET, (container, ""), &[CONTAINER], &[], Bytes::new()).await?;
        let text = |name: &str| answer.header(name).map(str::to_owned);
        Ok(Container {
            name: container.to_owned(),
            properties: properties_of(&answer.headers),
            lease_status: text("x-ms-lease-status"),
            lease_state: text("x-ms-lease-state"),
        })
    }

    /// Creates a container; false if it already exists.
    pub async fn create_container_with(&self, container: &str, metadata: &Metadata) -> Result<bool, ClientError> {
        let headers = metadata_headers(metadata);
        let headers: Vec<(&str, &str)> = borrowed(&headers).collect();
        created(self.request(Method::PUT, (container, ""), &[CONTAINER], &headers, Bytes::new()).await.map(drop))
    }

    pub async fn delete_container(&self, container: &str) -> Result<(), ClientError> {
        self.request(Method::DELETE, (container, ""), &[CONTAINER], &[], Bytes::new()).await.map(drop)
    }

    pub async fn list_blobs(&self, container: &str, filter: &BlobFilter) -> Result<Vec<BlobEntry>, ClientError> {
        let mut query = vec![CONTAINER, LIST];
        query.extend(filter.prefix.as_deref().map(|prefix| ("prefix", prefix)));
        query.extend(filter.delimiter.as_deref().map(|delimiter| ("delimiter", delimiter)));
        query.extend(filter.metadata.then_some(("include", "metadata")));
        let blobs = self.list_all((container, ""), &query, "Blobs", filter.limit).await?;
        Ok(blobs.iter().filter_map(entry).collect())
    }

    /// Creates or replaces the blob `name` with the content of `source`, atomically.
    pub async fn upload_blob(
        &self,
        (container, name): (&str, &str),
        source: &Path,
        settings: &FileSettings,
        connections: usize,
        progress: Progress<'_>,
    ) -> Result<(), ClientError> {
        let (file, total) = open_source(source)?;
        let mut headers = settings.headers_of(true);
        if settings.content.content_type.is_none() {
            let guessed = guess_content_type(name);
            headers.extend(guessed.map(|kind| ("x-ms-blob-content-type".to_owned(), kind.to_owned())));
        }
        let headers: Vec<(&str, &str)> = borrowed(&headers).collect();
        progress(0, total);
        if total <= MAX_SINGLE_PUT_BYTES {
            let content = read_range(file, 0, total, source).await?;
            self.put_blob((container, name), &headers, content).await?;
            progress(total, total);
            return Ok(());
        }
        let size = BLOCK_BYTES.max(total.div_ceil(MAX_BLOCKS));
        let starts: Vec<u64> = (0..total).step_by(size as usize).collect();
        let done = AtomicU64::new(0);
        stream::iter(starts.iter().copied())
            .map(|start| {
                let (file, done) = (Arc::clone(&file), &done);
                async move {
                    let length = size.min(total - start);
                    let content = read_range(file, start, length, source).await?;
                    self.put_block((container, name), &block_id(start), content).await?;
                    progress(done.fetch_add(length, Ordering::Relaxed) + length, total);
                    Ok::<(), ClientError>(())
                }
            })
            .buffer_unordered(connections.max(1))
            .try_collect::<Vec<()>>()
            .await?;
        let list: String = starts.iter().map(|start| format!("<Latest>{}</Latest>", block_id(*start))).collect();
        let list = format!("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>{list}</BlockList>");
        let query = [("comp", "blocklist")];
        self.request(Method::PUT, (container, name), &query, &headers, list.into()).await.map(drop)
    }

    async fn put_blob(
        &self,
        target: (&str, &str),
        headers: &[(&str, &str)],
        content: Bytes,
    ) -> Result<(), ClientError> {
        let digest = self.validating.then(|| md5_base64(&content));
        let mut headers = headers.to_vec();
        headers.push(("x-ms-blob-type", "BlockBlob"));
        headers.extend(digest.as_deref().map(|md5| ("content-md5", md5)));
        persistently(|| self.request(Method::PUT, target, &[], &headers, content.clone())).await.map(drop)
    }

    async fn put_block(&self, target: (&str, &str), id: &str, content: Bytes) -> Result<(), ClientError> {
        let digest = self.validating.then(|| md5_base64(&content));
        let headers: Vec<_> = digest.as_deref().map(|md5| ("content-md5", md5)).into_iter().collect();
        let query = [("comp", "block"), ("blockid", id)];
        persistently(|| self.request(Method::PUT, target, &query, &headers, content.clone())).await.map(drop)
    }
}

/// Block ids of equal length in upload order.
fn block_id(start: u64) -> String {
    STANDARD.encode(format!("{start:032}"))
}

fn described(element: &Element) -> (Properties, impl Fn(&str) -> Option<String> + '_) {
    let property = |name: &str| {
        let text = element.child("Properties").and_then(|properties| properties.text_of(name));
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let metadata = element.child("Metadata").map(|metadata| metadata.children.iter()).unwrap_or_default();
    let properties = Properties {
        etag: property("Etag"),
        last_modified: property("Last-Modified").as_deref().and_then(http_time),
        metadata: metadata.map(|pair| (pair.name.clone(), pair.text.clone())).collect(),
    };
    (properties, property)
}

fn container(element: &Element) -> Option<Container> {
    let (properties, property) = described(element);
    Some(Container {
        name: element.text_of("Name")?.to_owned(),
        properties,
        lease_status: property("LeaseStatus"),
        lease_state: property("LeaseState"),
    })
}

fn entry(element: &Element) -> Option<BlobEntry> {
    let name = element.text_of("Name")?.to_owned();
    if element.name != "Blob" {
        return (element.name == "BlobPrefix").then_some(BlobEntry::Prefix(name));
    }
    let (properties, property) = described(element);
    let content = ContentSettings {
        content_type: property("Content-Type"),
        encoding: property("Content-Encoding"),
        language: property("Content-Language"),
        disposition: property("Content-Disposition"),
        cache_control: property("Cache-Control"),
        md5: property("Content-MD5"),
    };
    Some(BlobEntry::Blob(Box::new(Blob {
        name,
        properties,
        length: property("Content-Length").and_then(|length| length.parse().ok()).unwrap_or(0),
        content,
        created: property("Creation-Time").as_deref().and_then(http_time),
        link: element.child("Properties").and_then(link_in),
    })))
}
