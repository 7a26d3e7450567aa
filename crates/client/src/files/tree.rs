//! Shares, directories and what is in them. Entered by the storage commands.

use bytes::Bytes;
use corro_model::Timestamp;
use reqwest::Method;

use super::settings::{borrowed, metadata_headers};
use super::{FileProperties, FileService, Metadata, http_time, properties_of};
use crate::ClientError;
use crate::xml::{self, Element};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    pub name: String,
    pub quota_gib: Option<u64>,
    pub etag: Option<String>,
    pub last_modified: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    Directory { name: String },
    File { name: String, length: u64 },
}

const SHARE: (&str, &str) = ("restype", "share");
const CONTAINER: (&str, &str) = ("restype", "container");
const DIRECTORY: (&str, &str) = ("restype", "directory");
const LIST: (&str, &str) = ("comp", "list");

impl FileService {
    /// False when a share of that name was there already.
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

    pub async fn delete_share(&self, share: &str) -> Result<(), ClientError> {
        self.request(Method::DELETE, (share, ""), &[SHARE], &[], Bytes::new()).await.map(drop)
    }

    pub async fn list_shares(&self) -> Result<Vec<Share>, ClientError> {
        let shares = self.list_all(("", ""), &[LIST], "Shares").await?;
        Ok(shares.iter().filter_map(share).collect())
    }

    /// False when a container of that name was there already. Containers are made so that jobs can mount them.
    pub async fn create_container(&self, container: &str) -> Result<bool, ClientError> {
        created(self.request(Method::PUT, (container, ""), &[CONTAINER], &[], Bytes::new()).await.map(drop))
    }

    /// False when the directory was there already.
    pub async fn create_directory(&self, share: &str, path: &str, metadata: &Metadata) -> Result<bool, ClientError> {
        let headers = metadata_headers(metadata);
        let headers: Vec<(&str, &str)> = borrowed(&headers).collect();
        created(self.request(Method::PUT, (share, path), &[DIRECTORY], &headers, Bytes::new()).await.map(drop))
    }

    pub async fn delete_directory(&self, share: &str, path: &str) -> Result<(), ClientError> {
        self.request(Method::DELETE, (share, path), &[DIRECTORY], &[], Bytes::new()).await.map(drop)
    }

    /// What lies directly in a directory; an empty path is the share's root.
    pub async fn list(&self, share: &str, path: &str) -> Result<Vec<Entry>, ClientError> {
        let entries = self.list_all((share, path), &[DIRECTORY, LIST], "Entries").await?;
        Ok(entries.iter().filter_map(entry).collect())
    }

    pub async fn file_properties(&self, share: &str, path: &str) -> Result<FileProperties, ClientError> {
        let answer = self.request(Method::HEAD, (share, path), &[], &[], Bytes::new()).await?;
        let length = answer.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        Ok(properties_of(&answer.headers, length))
    }

    pub async fn delete_file(&self, share: &str, path: &str) -> Result<(), ClientError> {
        self.request(Method::DELETE, (share, path), &[], &[], Bytes::new()).await.map(drop)
    }

    /// Every page of a listing: the children of its element `container`.
    async fn list_all(
        &self,
        place: (&str, &str),
        query: &[(&str, &str)],
        container: &str,
    ) -> Result<Vec<Element>, ClientError> {
        let mut items = Vec::new();
        let mut marker = String::new();
        loop {
            let mut query = query.to_vec();
            if !marker.is_empty() {
                query.push(("marker", &marker));
            }
            let answer = self.request(Method::GET, place, &query, &[], Bytes::new()).await?;
            let document = String::from_utf8_lossy(&answer.body);
            let mut page = xml::parse(&document)
                .ok_or_else(|| ClientError::UnexpectedFileAnswer { request: "list".to_owned() })?;
            let next = page.text_of("NextMarker").unwrap_or_default().to_owned();
            if let Some(found) = page.children.iter_mut().find(|child| child.name == container) {
                items.append(&mut found.children);
            }
            if next.is_empty() || next == marker {
                return Ok(items);
            }
            marker = next;
        }
    }
}

fn created(result: Result<(), ClientError>) -> Result<bool, ClientError> {
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
    Some(Share {
        name: element.text_of("Name")?.to_owned(),
        quota_gib: property("Quota").and_then(|quota| quota.parse().ok()),
        etag: property("Etag").map(str::to_owned),
        last_modified: property("Last-Modified").and_then(http_time),
    })
}

fn entry(element: &Element) -> Option<Entry> {
    let name = element.text_of("Name")?.to_owned();
    match element.name.as_str() {
        "Directory" => Some(Entry::Directory { name }),
        "File" => {
            let length = element.child("Properties").and_then(|properties| properties.text_of("Content-Length"));
            Some(Entry::File { name, length: length.and_then(|length| length.parse().ok()).unwrap_or(0) })
        }
        _ => None,
    }
}
