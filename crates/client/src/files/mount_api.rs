//! Requests of a mounted share: small ones about one entry or one range. Some are Corro's extensions (`comp=corro-…`).
//! Nothing is retried here: the caller knows which requests are idempotent.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{BufMut, Bytes, BytesMut};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use reqwest::{Method, StatusCode};

use super::resource_type::DIRECTORY;
use super::{FileService, Signer};
use crate::ClientError;
use crate::response::HttpResponse;

/// Ranges per write request.
pub const MAX_RANGES: usize = 1024;
/// Header that asks for symbolic links as links. Servers without support return their targets.
const SHOWS_LINKS: (&str, &str) = ("x-corro-links", "true");
const FOLLOWS_LINKS: (&str, &str) = ("x-corro-links", "false");
const LINK: (&str, &str) = ("restype", "symboliclink");
const LINK_TEXT: &str = "x-ms-link-text";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Directory,
    /// Symbolic link, resolved by the kernel of the mounting machine.
    Link,
}

/// Attributes of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileState {
    pub kind: EntryKind,
    /// 0 for a directory; length of the target text for a link.
    pub length: u64,
    pub modified: SystemTime,
    /// Changes with the content; empty in listings.
    pub etag: String,
}

/// Directory entry in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BriefEntry {
    pub name: String,
    pub state: FileState,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BriefPage {
    pub entries: Vec<BriefEntry>,
    /// First name of the next page.
    pub next: Option<String>,
}

/// Capacity of a share in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareSpace {
    pub used: u64,
    pub quota: Option<u64>,
}

/// Writer and number of an appended block, so that the server applies each block once.
#[derive(Clone, Debug)]
pub struct AppendToken {
    pub writer: String,
    pub number: u64,
    /// Set on a retry without a response: the block is not before this offset.
    pub again: Option<u64>,
}

impl FileService {
    /// Attributes of an entry; does not follow a link.
    pub async fn file_state(&self, share: &str, path: &str) -> Result<FileState, ClientError> {
        let query = [("comp", "corro-about")];
        let answer = self.request(Method::GET, (share, path), &query, &[SHOWS_LINKS], Bytes::new()).await?;
        state_of(&answer, path)
    }

    /// Attributes of the target of a path, through links that stay in the share.
    pub async fn target_state(&self, share: &str, path: &str) -> Result<FileState, ClientError> {
        let query = [("comp", "corro-about")];
        let answer = self.request(Method::GET, (share, path), &query, &[FOLLOWS_LINKS], Bytes::new()).await?;
        state_of(&answer, path)
    }

    /// Target text of a link.
    pub async fn read_link_text(&self, share: &str, path: &str) -> Result<Vec<u8>, ClientError> {
        let answer = self.request(Method::GET, (share, path), &[LINK], &[], Bytes::new()).await?;
        let text = answer.header(LINK_TEXT).ok_or_else(|| unexpected(path))?;
        Ok(percent_decode_str(text).collect())
    }

    /// Creates a link; fails if the name exists.
    pub async fn create_link(&self, share: &str, path: &str, text: &[u8]) -> Result<(), ClientError> {
        let text = percent_encode(text, NON_ALPHANUMERIC).to_string();
        let headers = [(LINK_TEXT, text.as_str())];
        self.request(Method::PUT, (share, path), &[LINK], &headers, Bytes::new()).await.map(drop)
    }

    /// One page of a directory listing that starts with the name `from`.
    pub async fn list_entries_brief(&self, share: &str, path: &str, from: &str) -> Result<BriefPage, ClientError> {
        let mut query = vec![("comp", "corro-list")];
        if !from.is_empty() {
            query.push(("marker", from));
        }
        let answer = self.request(Method::GET, (share, path), &query, &[SHOWS_LINKS], Bytes::new()).await?;
        std::str::from_utf8(&answer.body).ok().and_then(page).ok_or_else(|| unexpected(path))
    }

    /// Reads from `start`; returns fewer bytes at the end of the file.
    pub async fn read_range(&self, share: &str, path: &str, start: u64, length: u64) -> Result<Bytes, ClientError> {
        let Some(last) = length.checked_sub(1).map(|more| start.saturating_add(more)) else { return Ok(Bytes::new()) };
        let range = format!("bytes={start}-{last}");
        let target = (share, path);
        let answer = self.exchange(Method::GET, target, &[], &[("x-ms-range", &range)], Bytes::new()).await?;
        if answer.status == StatusCode::RANGE_NOT_SATISFIABLE {
            return Ok(Bytes::new());
        }
        let content = self.accepted(answer, target)?.body;
        if content.len() as u64 > length { Err(unexpected(path)) } else { Ok(content) }
    }

    /// Writes one range of at most 4 MiB and extends the file if needed.
    pub async fn write_extending(
        &self,
        share: &str,
        path: &str,
        start: u64,
        content: Bytes,
    ) -> Result<(), ClientError> {
        let range = format!("bytes={start}-{}", start + (content.len() as u64).saturating_sub(1));
        let headers = [("x-ms-write", "update"), ("x-ms-range", range.as_str()), ("x-corro-grow", "true")];
        let query = [("comp", "range")];
        self.request(Method::PUT, (share, path), &query, &headers, content).await.map(drop)
    }

    /// Writes up to [`MAX_RANGES`] ranges of at most 4 MiB together and extends the file if needed. If `new`, creates
    /// the file first and fails if it exists.
    pub async fn write_ranges(
        &self,
        share: &str,
        path: &str,
        ranges: &[(u64, Bytes)],
        new: bool,
    ) -> Result<(), ClientError> {
        let length: usize = ranges.iter().map(|(_, content)| 16 + content.len()).sum();
        let mut body = BytesMut::with_capacity(length);
        for (start, content) in ranges {
            body.put_u64(*start);
            body.put_u64(content.len() as u64);
        }
        ranges.iter().for_each(|(_, content)| body.extend_from_slice(content));
        let (count, query) = (ranges.len().to_string(), [("comp", "corro-ranges")]);
        let headers = [("x-corro-ranges", count.as_str()), ("x-corro-exclusive", if new { "true" } else { "false" })];
        self.request(Method::PUT, (share, path), &query, &headers, body.freeze()).await.map(drop)
    }

    /// Appends at most 4 MiB as one block. Returns its offset and the file's attributes.
    pub async fn append(
        &self,
        share: &str,
        path: &str,
        content: Bytes,
        appending: &AppendToken,
    ) -> Result<(u64, FileState), ClientError> {
        let (number, again) = (appending.number.to_string(), appending.again.map(|after| after.to_string()));
        let mut headers = vec![("x-corro-writer", appending.writer.as_str()), ("x-corro-block", &number)];
        headers.extend(again.as_deref().map(|after| ("x-corro-again", after)));
        let query = [("comp", "corro-append")];
        let answer = self.request(Method::PUT, (share, path), &query, &headers, content).await?;
        let offset = number_in(&answer, "x-corro-offset").ok_or_else(|| unexpected(path))?;
        Ok((offset, state_of(&answer, path)?))
    }

    /// Creates an empty file; fails if the name exists.
    pub async fn create_new(&self, share: &str, path: &str) -> Result<(), ClientError> {
        let headers = [("x-ms-type", "file"), ("x-ms-content-length", "0"), ("x-corro-exclusive", "true")];
        self.request(Method::PUT, (share, path), &[], &headers, Bytes::new()).await.map(drop)
    }

    /// Creates a directory; fails if the name exists.
    pub async fn create_new_directory(&self, share: &str, path: &str) -> Result<(), ClientError> {
        self.request(Method::PUT, (share, path), &[DIRECTORY], &[], Bytes::new()).await.map(drop)
    }

    /// Renames a file, directory or link within the share, with POSIX semantics.
    pub async fn rename(
        &self,
        share: &str,
        (from, to): (&str, &str),
        kind: EntryKind,
        replace: bool,
    ) -> Result<(), ClientError> {
        let mut source = format!("{}{}", self.transport.server(), self.path_of(share, from));
        if let Signer::Sas(sas) = &self.signer {
            source.push('?');
            source.push_str(sas.expose());
        }
        let replace = if replace { "true" } else { "false" };
        let headers = [
            ("x-ms-file-rename-source", source.as_str()),
            ("x-ms-file-rename-replace-if-exists", replace),
            ("x-corro-plain", "true"),
        ];
        let rename = ("comp", "rename");
        let of_file = [rename];
        let of_directory = [DIRECTORY, rename];
        let query: &[(&str, &str)] = if kind == EntryKind::Directory { &of_directory } else { &of_file };
        self.request(Method::PUT, (share, to), query, &headers, Bytes::new()).await.map(drop)
    }

    pub async fn resize(&self, share: &str, path: &str, length: u64) -> Result<(), ClientError> {
        let length = length.to_string();
        let (query, headers) = ([("comp", "properties")], [("x-ms-content-length", length.as_str())]);
        self.request(Method::PUT, (share, path), &query, &headers, Bytes::new()).await.map(drop)
    }

    pub async fn set_modified(&self, share: &str, path: &str, modified: SystemTime) -> Result<FileState, ClientError> {
        let since = modified.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let nanos = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX).to_string();
        let (query, headers) = ([("comp", "corro-modified")], [("x-corro-modified", nanos.as_str()), SHOWS_LINKS]);
        let answer = self.request(Method::PUT, (share, path), &query, &headers, Bytes::new()).await?;
        state_of(&answer, path)
    }

    /// Returns once written data, or the names in a directory, are on the server's disk.
    pub async fn sync(&self, share: &str, path: &str) -> Result<(), ClientError> {
        let query = [("comp", "corro-sync")];
        self.request(Method::PUT, (share, path), &query, &[], Bytes::new()).await.map(drop)
    }

    pub async fn share_space(&self, share: &str) -> Result<ShareSpace, ClientError> {
        let query = [("comp", "corro-room")];
        let answer = self.request(Method::GET, (share, ""), &query, &[], Bytes::new()).await?;
        let used = number_in(&answer, "x-corro-used").ok_or_else(|| unexpected(share))?;
        Ok(ShareSpace { used, quota: number_in(&answer, "x-corro-quota") })
    }

    /// Server address: `http://host:port`.
    pub fn server(&self) -> &str {
        self.transport.server()
    }

    /// Account endpoint as it was given.
    pub fn endpoint(&self) -> String {
        format!("{}{}", self.transport.server(), self.root)
    }
}

fn state_of(answer: &HttpResponse, path: &str) -> Result<FileState, ClientError> {
    let kind = answer.header("x-corro-kind").and_then(kind);
    let (length, modified) = (number_in(answer, "x-corro-length"), number_in(answer, "x-corro-modified"));
    let (Some(kind), Some(length), Some(modified)) = (kind, length, modified) else { return Err(unexpected(path)) };
    let etag = answer.header("etag").unwrap_or_default().to_owned();
    Ok(FileState { kind, length, modified: time(modified), etag })
}

fn number_in(answer: &HttpResponse, header: &str) -> Option<u64> {
    answer.header(header)?.parse().ok()
}

fn kind(word: &str) -> Option<EntryKind> {
    match word {
        "file" => Some(EntryKind::File),
        "directory" => Some(EntryKind::Directory),
        "link" => Some(EntryKind::Link),
        _ => None,
    }
}

fn time(nanos: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(nanos)
}

/// Parses `file 12 1528410115000000000 name`, each terminated by a zero byte; the rest is the start of the next page.
fn page(text: &str) -> Option<BriefPage> {
    let (entries, next) = match text.rsplit_once('\0') {
        Some((entries, next)) => (entries, next),
        None => return Some(BriefPage { next: (!text.is_empty()).then(|| text.to_owned()), ..BriefPage::default() }),
    };
    let brief = |line: &str| {
        let mut words = line.splitn(4, ' ');
        let kind = kind(words.next()?)?;
        let (length, modified) = (words.next()?.parse().ok()?, time(words.next()?.parse().ok()?));
        let state = FileState { kind, length, modified, etag: String::new() };
        Some(BriefEntry { name: words.next()?.to_owned(), state })
    };
    let entries: Option<Vec<BriefEntry>> = entries.split('\0').map(brief).collect();
    Some(BriefPage { entries: entries?, next: (!next.is_empty()).then(|| next.to_owned()) })
}

fn unexpected(path: &str) -> ClientError {
    ClientError::UnexpectedFileAnswer { request: format!("a mount about /{}", path.trim_matches('/')) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read_as_they_are_written() {
        let brief = |kind, length, name: &str| BriefEntry {
            name: name.to_owned(),
            state: FileState { kind, length, modified: time(5), etag: String::new() },
        };
        let check = |text: &str, expected: Option<BriefPage>| assert_eq!(page(text), expected, "{text:?}");
        check("", Some(BriefPage::default()));
        check(
            "file 3 5 a b\0directory 0 5 d\n\0link 2 5 l\0",
            Some(BriefPage {
                entries: vec![
                    brief(EntryKind::File, 3, "a b"),
                    brief(EntryKind::Directory, 0, "d\n"),
                    brief(EntryKind::Link, 2, "l"),
                ],
                next: None,
            }),
        );
        check(
            "file 3 5 a\0next one",
            Some(BriefPage { entries: vec![brief(EntryKind::File, 3, "a")], next: Some("next one".to_owned()) }),
        );
        check("pipe 3 5 a\0", None);
        check("file x 5 a\0", None);
        check("file 3 5\0", None);
    }
}
