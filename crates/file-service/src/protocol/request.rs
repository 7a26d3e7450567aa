//! Parsed request: account, share, path, parameters, headers. Pure. The path is percent-decoded exactly once and then
//! split, because newer SDKs send nested directories as one segment with `%2F`. A name that looks encoded afterwards is
//! taken literally.

use std::{
    borrow::Cow,
    net::SocketAddr,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::extract::ConnectInfo;
use corro_model::storage::{query_pairs, sas::Bearer};
use corro_shares::{SharePath, SnapshotId, is_share_name};
use http::{HeaderMap, Method, request::Parts};
use percent_encoding::percent_decode_str;

use crate::protocol::error::StorageError;

/// How the URL names the account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressStyle {
    /// `http://{account}.file.{suffix}/{share}/…`
    Host,
    /// `http://{account}.blob.{suffix}/{container}/…`: the blob service.
    BlobHost,
    /// `http://{address}/{account}/{share}/…`
    Path,
    /// `http://{address}/{account}.blob/{container}/…`: the blob service.
    BlobPath,
}

/// Request extension: the request came over TLS. Without it a SAS with `spr=https` is rejected. A SAS with an address
/// range needs the extension `axum::extract::ConnectInfo<std::net::SocketAddr>`.
#[derive(Debug, Clone, Copy)]
pub struct OverTls;

pub(crate) struct StorageRequest {
    pub account: String,
    pub method: Method,
    pub headers: HeaderMap,
    /// As received.
    pub raw_path: String,
    pub raw_query: String,
    pub target: Result<Target, StorageError>,
    /// API version (`x-ms-version`) of the response.
    pub version: String,
    pub request_id: String,
    pub address: Option<std::net::IpAddr>,
    pub over_tls: bool,
    /// The request was addressed to the blob service.
    pub is_blob_service: bool,
    style: AddressStyle,
    parameters: Vec<(String, String)>,
}

/// Resource that a URL names. An empty share name is the account itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub share: String,
    pub path: SharePath,
}

impl AddressStyle {
    pub fn is_blob(self) -> bool {
        matches!(self, AddressStyle::BlobHost | AddressStyle::BlobPath)
    }
}

/// Snapshot named in a query.
pub(crate) fn parse_snapshot(query: &str) -> Result<Option<SnapshotId>, StorageError> {
    parse_snapshot_parameter(query, SNAPSHOT)
}

const SNAPSHOT: &str = "sharesnapshot";

/// Like [`parse_snapshot`], for another parameter.
pub(crate) fn parse_snapshot_parameter(query: &str, parameter: &str) -> Result<Option<SnapshotId>, StorageError> {
    let named = query_pairs(query).find(|(name, value)| name.eq_ignore_ascii_case(parameter) && !value.is_empty());
    match named {
        None => Ok(None),
        Some((_, text)) => SnapshotId::parse(&text).map(Some).ok_or_else(|| {
            StorageError::new("InvalidQueryParameterValue")
                .with_message(format!("The parameter {parameter} must be a time such as 2018-06-07T22:21:55.0000000Z."))
        }),
    }
}

/// For requests without a valid `x-ms-version`.
const DEFAULT_VERSION: &str = "2018-03-28";
/// First API version with SMB properties in responses about files and directories.
const SMB_VERSION: &str = "2019-02-02";
/// First API version with percent-encoded names in listings.
const ENCODED_VERSION: &str = "2021-12-02";

impl StorageRequest {
    /// Canonical text of the client's IP address.
    pub fn client_address(&self) -> String {
        self.address.map_or_else(|| "unknown".to_owned(), |address| address.to_canonical().to_string())
    }

    pub fn new(account: &str, style: AddressStyle, parts: Parts) -> Self {
        let raw_path = parts.uri.path().to_owned();
        let raw_query = parts.uri.query().unwrap_or_default().to_owned();
        let over_tls = parts.extensions.get::<OverTls>().is_some();
        let address = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
        let version = header_text(&parts.headers, "x-ms-version").filter(|v| is_version(v));
        // Names are taken literally. A client can ask for the old rule that "a." is "a".
        let trims =
            header_text(&parts.headers, "x-ms-allow-trailing-dot").is_some_and(|v| v.eq_ignore_ascii_case("false"));
        let target = Target::parse(&raw_path, style, account);
        let target = if trims { target.and_then(Target::without_trailing_dots) } else { target };
        StorageRequest {
            account: account.to_owned(),
            target,
            version: version.unwrap_or(DEFAULT_VERSION).to_owned(),
            request_id: next_request_id(),
            parameters: parameters_in(&raw_query),
            method: parts.method,
            headers: parts.headers,
            raw_path,
            raw_query,
            address,
            over_tls,
            is_blob_service: style.is_blob(),
            style,
        }
    }

    /// Base URL of the account, as the client addressed it.
    pub fn endpoint(&self) -> String {
        let (scheme, account) = (if self.over_tls { "https" } else { "http" }, &self.account);
        let host = self.header("host").unwrap_or_default();
        match self.style {
            AddressStyle::Host | AddressStyle::BlobHost => format!("{scheme}://{host}/"),
            AddressStyle::Path => format!("{scheme}://{host}/{account}/"),
            AddressStyle::BlobPath => format!("{scheme}://{host}/{account}.blob/"),
        }
    }

    /// Snapshot that the request is about.
    pub fn snapshot(&self) -> Result<Option<SnapshotId>, StorageError> {
        // Most requests have no such parameter.
        match self.parameters.iter().any(|(name, _)| name.eq_ignore_ascii_case(SNAPSHOT)) {
            true => parse_snapshot(&self.raw_query),
            false => Ok(None),
        }
    }

    /// Value of a query parameter; empty if absent.
    pub fn parameter(&self, name: &str) -> &str {
        let found = self.parameters.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// Text of a header; `None` if absent or not printable ASCII.
    pub fn header(&self, name: &str) -> Option<&str> {
        header_text(&self.headers, name)
    }

    /// Number in a header; `None` if absent.
    pub fn number(&self, name: &'static str) -> Result<Option<u64>, StorageError> {
        let Some(value) = self.headers.get(name) else { return Ok(None) };
        let digits = value.to_str().ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
        match digits.and_then(|text| text.parse().ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(StorageError::invalid_header(name)),
        }
    }

    /// A header that is `true` or `false`; absent means false.
    pub fn flag(&self, header: &'static str) -> Result<bool, StorageError> {
        match self.headers.contains_key(header).then(|| self.header(header)) {
            None => Ok(false),
            Some(Some(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
            Some(Some(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
            Some(_) => Err(StorageError::invalid_header(header)),
        }
    }

    /// All headers as text for signing. Python's http.client sends non-ASCII text as Latin-1 if possible, else as
    /// UTF-8, and signs the characters.
    pub fn signed_headers(&self) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
        self.headers.iter().map(|(name, value)| {
            let text = match std::str::from_utf8(value.as_bytes()) {
                Ok(text) => Cow::Borrowed(text),
                Err(_) => value.as_bytes().iter().map(|byte| char::from(*byte)).collect(),
            };
            (name.as_str(), text)
        })
    }

    pub fn bearer(&self) -> Bearer {
        Bearer { address: self.address, over_tls: self.over_tls }
    }

    /// Whether the client understands percent-encoded names in listings.
    pub fn supports_encoded_names(&self) -> bool {
        self.version.as_str() >= ENCODED_VERSION
    }

    pub fn supports_smb_headers(&self) -> bool {
        // Versions are ISO dates and sort as text.
        self.version.as_str() >= SMB_VERSION
    }
}

impl Target {
    pub fn parse(raw_path: &str, style: AddressStyle, account: &str) -> Result<Self, StorageError> {
        let decoded = percent_decode_str(raw_path).decode_utf8().map_err(|_| StorageError::new("InvalidUri"))?;
        let mut rest = decoded.strip_prefix('/').ok_or(StorageError::new("InvalidUri"))?;
        if let AddressStyle::Path | AddressStyle::BlobPath = style {
            let (first, after) = rest.split_once('/').unwrap_or((rest, ""));
            let suffix = if style.is_blob() { ".blob" } else { "" };
            if first.strip_suffix(suffix) != Some(account) {
                return Err(StorageError::new("InvalidUri"));
            }
            rest = after;
        }
        let (share, path) = rest.split_once('/').unwrap_or((rest, ""));
        if !share.is_empty() && !is_share_name(share) || share.is_empty() && !path.is_empty() {
            return Err(StorageError::new("InvalidResourceName"));
        }
        if style.is_blob() && path.ends_with('/') {
            let message =
                "Blob names that end with a slash are not supported: blobs are stored as files in directories.";
            return Err(StorageError::new("InvalidResourceName").with_message(message));
        }
        // Some clients end the path of a directory with a slash.
        let path = SharePath::parse(path.strip_suffix('/').unwrap_or(path))
            .map_err(|error| StorageError::from(corro_shares::ShareError::from(error)))?;
        Ok(Target { share: share.to_owned(), path })
    }

    pub fn without_trailing_dots(self) -> Result<Self, StorageError> {
        let names: Vec<&str> = self.path.as_str().split('/').map(|name| name.trim_end_matches('.')).collect();
        let path = SharePath::parse(&names.join("/"))
            .map_err(|error| StorageError::from(corro_shares::ShareError::from(error)))?;
        match path.is_root() == self.path.is_root() {
            true => Ok(Target { path, ..self }),
            false => Err(StorageError::new("InvalidFileOrDirectoryPathName")),
        }
    }
}

/// Unique, not secret. For finding a request in the log.
fn next_request_id() -> String {
    static START: LazyLock<(u64, u64)> = LazyLock::new(|| uuid::Uuid::new_v4().as_u64_pair());
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let (server, first) = *START;
    uuid::Uuid::from_u64_pair(server, first.wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed))).to_string()
}

/// Parameters except those of a SAS, which are parsed separately.
fn parameters_in(query: &str) -> Vec<(String, String)> {
    let others = query_pairs(query).filter(|(name, _)| !matches!(&**name, "sv" | "sr" | "sig" | "se" | "sp" | "by"));
    others.map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

fn header_text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

fn is_version(text: &str) -> bool {
    let shape = |(idx, byte): (usize, u8)| match idx {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    text.len() == 10 && text.bytes().enumerate().all(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded_once_and_split_afterwards() {
        use AddressStyle::{BlobHost, BlobPath, Host, Path};
        let check = |style, raw: &str, expected: Result<(&str, &str), &str>| {
            let found = Target::parse(raw, style, "acc");
            let found = found.as_ref().map(|t| (t.share.as_str(), t.path.as_str())).map_err(|r| r.code);
            assert_eq!(found, expected, "{raw}");
        };
        check(Host, "/", Ok(("", "")));
        check(Path, "/acc", Ok(("", "")));
        check(Path, "/acc/", Ok(("", "")));
        check(Host, "/share", Ok(("share", "")));
        check(Host, "/share/", Ok(("share", "")));
        check(Path, "/acc/share/d%2Fsub", Ok(("share", "d/sub")));
        check(Path, "/acc/share/d/sub/", Ok(("share", "d/sub")));
        check(Host, "/share/a%20b%2Bc%2525", Ok(("share", "a b+c%25")));
        check(Host, "/share/a+b", Ok(("share", "a+b")));
        check(Host, "/share/%252e%252e/x", Ok(("share", "%2e%2e/x")));
        check(Path, "/other/share/d", Err("InvalidUri"));
        check(BlobPath, "/acc.blob/share/d/f", Ok(("share", "d/f")));
        check(BlobPath, "/acc/share/d", Err("InvalidUri"));
        check(BlobHost, "/share/d/", Err("InvalidResourceName"));
        check(Host, "/share/%ff", Err("InvalidUri"));
        check(Host, "//x", Err("InvalidResourceName"));
        check(Host, "/..", Err("InvalidResourceName"));
        check(Host, "/%2e%2e/x", Err("InvalidResourceName"));
        check(Host, "/.trash-1-1/x", Err("InvalidResourceName"));
        for path in [
            "../x",
            "a/../../x",
            "..%2fx",
            "%2e%2e/x",
            "%2E%2E%2Fx",
            "a/%2e%2e%2f%2e%2e",
            "./x",
            "a//b",
            "a%2F%2Fb",
            "..%5cx",
            "%5c",
            "x%00",
            "x%0a",
            "%2fetc",
            "%2f%2f",
        ] {
            check(Host, &format!("/share/{path}"), Err("InvalidFileOrDirectoryPathName"));
            check(Path, &format!("/acc/share/{path}"), Err("InvalidFileOrDirectoryPathName"));
        }
    }

    #[test]
    fn versions_are_dates() {
        for (text, expected) in [
            ("2018-03-28", true),
            ("2099-12-01", true),
            ("2018-3-28", false),
            ("2018-03-28x", false),
            ("latest", false),
            ("", false),
        ] {
            assert_eq!(is_version(text), expected, "{text}");
        }
    }
}
