//! Shares, directories and listings.

use bytes::Bytes;
use corro_model::xml::{self, Element};
use reqwest::Method;

use super::properties::{http_time, snapshot_of};
use super::resource_type::{DIRECTORY, SHARE};
use super::settings::{borrowed, metadata_headers};
use super::{FileService, Metadata, Properties, ShareProperties};
use crate::ClientError;

/// Limit of XML elements. The service lists at most 5,000 entries per page, far below this.
const MAX_LISTING_ELEMENTS: usize = 1_000_000;

/// Share, or one of its snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    pub name: String,
    pub snapshot: Option<String>,
    pub about: ShareProperties,
}

/// Filter and fields of a share listing.
#[derive(Clone, Debug, Default)]
pub struct ShareFilter {
    pub prefix: Option<String>,
    pub metadata: bool,
    pub snapshots: bool,
    pub limit: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    Directory { name: String },
    File { name: String, length: u64 },
    Link { name: String, length: u64, link: Link },
}

/// Symbolic link in a listing. Operations on its name affect the link; a read returns what `leads_to_file` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub text: String,
    /// A read returns the target file; for other links their target text.
    pub leads_to_file: bool,
}

/// File or link below a directory; links are not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkedFile {
    pub path: String,
    pub link: Option<Link>,
}

pub(super) const CONTAINER: (&str, &str) = ("restype", "container");
pub(super) const LIST: (&str, &str) = ("comp", "list");

impl FileService {
    /// Creates a share; false if it already exists.
    pub async fn create_share(
        &self,
        share: &str,
        quota_gib: Option<u32>,
        metadata: &Metadata,
    ) -> Result<bool, ClientError> {
        let mut headers = metadata_headers(metadata);
        headers.extend(quota_gib.map(|quota| ("x-ms-share-quota".to_owned(), quota.to_string())));
        let headers: Vec<(&str, &str)> = borrowed(&headers).collect();
        created(self.request(Method::PUT, (share, ""), &[SHARE], &headers, Bytes::new()).await.map(drop))
    }

    /// Deletes a share. One with snapshots is deleted only together with them.
    pub async fn delete_share(&self, share: &str, with_snapshots: bool) -> Result<(), ClientError> {
        let headers: &[(&str, &str)] = if with_snapshots { &[("x-ms-delete-snapshots", "include")] } else { &[] };
        self.request(Method::DELETE, (share, ""), &[SHARE], headers, Bytes::new()).await.map(drop)
    }

    pub async fn list_shares(&self, filter: &ShareFilter) -> Result<Vec<Share>, ClientError> {
        let mut query = vec![LIST];
        query.extend(filter.prefix.as_deref().map(|prefix| ("prefix", prefix)));
        let include: Vec<&str> = [(filter.metadata, "metadata"), (filter.snapshots, "snapshots")]
            .into_iter()
            .filter_map(|(wanted, word)| wanted.then_some(word))
            .collect();
        let include = include.join(",");
        if !include.is_empty() {
            query.push(("include", &include));
        }
        let shares = self.list_all(("", ""), &query, "Shares", filter.limit).await?;
        Ok(shares.iter().filter_map(share).collect())
    }

    /// Creates a snapshot; returns its id and properties.
    pub async fn snapshot_share(&self, share: &str, metadata: &Metadata) -> Result<(String, Properties), ClientError> {
        let headers = metadata_headers(metadata);
        let headers: Vec<(&str, &str)> = borrowed(&headers).collect();
        let query = [SHARE, ("comp", "snapshot")];
        let answer = self.request(Method::PUT, (share, ""), &query, &headers, Bytes::new()).await?;
        snapshot_of(&answer).ok_or_else(|| ClientError::UnexpectedFileAnswer { request: "share snapshot".to_owned() })
    }

    /// Creates a container that jobs can mount; false if it already exists.
    pub async fn create_container(&self, container: &str) -> Result<bool, ClientError> {
        created(self.request(Method::PUT, (container, ""), &[CONTAINER], &[], Bytes::new()).await.map(drop))
    }

    /// Creates a directory; false if it already exists.
    pub async fn create_directory(&self, share: &str, path: &str, metadata: &Metadata) -> Result<bool, ClientError> {
        let headers = metadata_headers(metadata);
        let headers: Vec<(&str, &str)> = borrowed(&headers).collect();
        created(self.request(Method::PUT, (share, path), &[DIRECTORY], &headers, Bytes::new()).await.map(drop))
    }

    pub async fn delete_directory(&self, share: &str, path: &str) -> Result<(), ClientError> {
        self.request(Method::DELETE, (share, path), &[DIRECTORY], &[], Bytes::new()).await.map(drop)
    }

    /// Entries of a directory; an empty path is the share's root.
    pub async fn list(&self, share: &str, path: &str) -> Result<Vec<Entry>, ClientError> {
        self.list_some(share, path, None).await
    }

    /// Same as `list`, at most `limit` entries.
    pub async fn list_some(&self, share: &str, path: &str, limit: Option<usize>) -> Result<Vec<Entry>, ClientError> {
        let entries = self.list_all((share, path), &[DIRECTORY, LIST], "Entries", limit).await?;
        Ok(entries.iter().filter_map(entry).collect())
    }

    /// All files and links below a directory, in byte order of their paths.
    pub async fn walk(&self, share: &str, path: &str) -> Result<Vec<WalkedFile>, ClientError> {
        let mut files = Vec::new();
        let mut unvisited = vec![path.trim_matches('/').to_owned()];
        while let Some(directory) = unvisited.pop() {
            let within =
                |name: &str| if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") };
            for entry in self.list(share, &directory).await? {
                match entry {
                    Entry::Directory { name } => unvisited.push(within(&name)),
                    Entry::File { name, .. } => files.push(WalkedFile { path: within(&name), link: None }),
                    Entry::Link { name, link, .. } => files.push(WalkedFile { path: within(&name), link: Some(link) }),
                }
            }
        }
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }

    pub async fn delete_file(&self, share: &str, path: &str) -> Result<(), ClientError> {
        self.request(Method::DELETE, (share, path), &[], &[], Bytes::new()).await.map(drop)
    }

    /// All pages of a listing: the children of the element `container`.
    pub(super) async fn list_all(
        &self,
        target: (&str, &str),
        query: &[(&str, &str)],
        container: &str,
        limit: Option<usize>,
    ) -> Result<Vec<Element>, ClientError> {
        let mut items = Vec::new();
        let mut marker = String::new();
        loop {
            let mut query = query.to_vec();
            // The service has its own page limit and returns fewer entries.
            let wanted = limit.map(|limit| limit.saturating_sub(items.len()).to_string());
            query.extend(wanted.as_deref().map(|wanted| ("maxresults", wanted)));
            if !marker.is_empty() {
                query.push(("marker", &marker));
            }
            let answer = self.request(Method::GET, target, &query, &[], Bytes::new()).await?;
            let document = String::from_utf8_lossy(&answer.body);
            let mut page = xml::parse(&document, MAX_LISTING_ELEMENTS)
                .ok_or_else(|| ClientError::UnexpectedFileAnswer { request: "list".to_owned() })?;
            let next = page.text_of("NextMarker").unwrap_or_default().to_owned();
            if let Some(found) = page.children.iter_mut().find(|child| child.name == container) {
                items.append(&mut found.children);
            }
            let enough = limit.is_some_and(|limit| items.len() >= limit);
            if next.is_empty() || next == marker || enough {
                items.truncate(limit.unwrap_or(usize::MAX));
                return Ok(items);
            }
            marker = next;
        }
    }
}

pub(super) fn created(result: Result<(), ClientError>) -> Result<bool, ClientError> {
    match result {
        Ok(()) => Ok(true),
        Err(ClientError::Api(error))
            if error.status == 409
                && matches!(
                    error.code.as_str(),
                    "ShareAlreadyExists" | "ContainerAlreadyExists" | "ResourceAlreadyExists"
                ) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn share(element: &Element) -> Option<Share> {
    let property = |name: &str| element.child("Properties").and_then(|properties| properties.text_of(name));
    let metadata = element.child("Metadata").map(|metadata| metadata.children.iter()).unwrap_or_default();
    Some(Share {
        name: element.text_of("Name")?.to_owned(),
        snapshot: element.text_of("Snapshot").map(str::to_owned),
        about: ShareProperties {
            properties: Properties {
                etag: property("Etag").map(str::to_owned),
                last_modified: property("Last-Modified").and_then(http_time),
                metadata: metadata.map(|pair| (pair.name.clone(), pair.text.clone())).collect(),
            },
            quota_gib: property("Quota").and_then(|quota| quota.parse().ok()),
        },
    })
}

/// Corro marks links among the properties of an entry; other servers have none.
pub(super) fn link_in(properties: &Element) -> Option<Link> {
    (properties.text_of("FileType") == Some("SymLink")).then(|| Link {
        text: properties.text_of("LinkText").unwrap_or_default().to_owned(),
        leads_to_file: properties.text_of("LinksToFile") == Some("true"),
    })
}

fn entry(element: &Element) -> Option<Entry> {
    let name = element.text_of("Name")?.to_owned();
    match element.name.as_str() {
        "Directory" => Some(Entry::Directory { name }),
        "File" => {
            let properties = element.child("Properties");
            let length = properties.and_then(|properties| properties.text_of("Content-Length"));
            let length = length.and_then(|length| length.parse().ok()).unwrap_or(0);
            Some(match properties.and_then(link_in) {
                Some(link) => Entry::Link { name, length, link },
                None => Entry::File { name, length },
            })
        }
        _ => None,
    }
}
