//! The few XML documents of the file service, written by hand: they are flat, and their readers
//! care for exact element names. Pure.

use std::fmt::Write;

use corro_shares::{Entry, Kind, Page, Properties, TreeEntry};

use super::{
    about::metadata_of,
    reply::{http_date, smb_time},
    shares::Listed,
};

pub(super) const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>";

/// What a listing was asked for, repeated in its answer.
pub(super) struct Asked<'a> {
    pub endpoint: &'a str,
    pub prefix: &'a str,
    pub marker: &'a str,
    pub limit: Option<usize>,
}

pub(super) fn shares(
    asked: &Asked,
    shares: &[Listed],
    quota: fn(&Properties) -> u64,
    with_metadata: bool,
    next: Option<&str>,
) -> String {
    let mut xml = format!("{DECLARATION}<EnumerationResults ServiceEndpoint=\"{}\">", escape(asked.endpoint));
    echo(&mut xml, asked);
    xml.push_str("<Shares>");
    for Listed { snapshot, share } in shares {
        let _ = write!(xml, "<Share><Name>{}</Name>", escape(&share.name));
        if let Some(id) = snapshot {
            let _ = write!(xml, "<Snapshot>{}</Snapshot>", id.as_str());
        }
        let _ = write!(
            xml,
            "<Properties><Last-Modified>{}</Last-Modified><Etag>{}</Etag><Quota>{}</Quota></Properties>",
            http_date(share.modified),
            escape(&share.etag),
            quota(&share.properties),
        );
        if with_metadata {
            xml.push_str("<Metadata>");
            for (name, value) in metadata_of(&share.properties) {
                let _ = write!(xml, "<{name}>{}</{name}>", escape(value));
            }
            xml.push_str("</Metadata>");
        }
        xml.push_str("</Share>");
    }
    xml.push_str("</Shares>");
    finish(xml, next)
}

pub(super) fn containers(asked: &Asked, containers: &[TreeEntry], next: Option<&str>) -> String {
    let mut xml = format!("{DECLARATION}<EnumerationResults ServiceEndpoint=\"{}\">", escape(asked.endpoint));
    echo(&mut xml, asked);
    xml.push_str("<Containers>");
    for container in containers {
        let _ = write!(
            xml,
            "<Container><Name>{}</Name><Properties><Last-Modified>{}</Last-Modified><Etag>{}</Etag>\
             <LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState></Properties></Container>",
            escape(&container.name),
            http_date(container.modified),
            escape(&container.etag),
        );
    }
    xml.push_str("</Containers>");
    finish(xml, next)
}

/// `details`: times and ETags too, for versions that ask for them.
pub(super) fn directory(asked: &Asked, share: &str, path: &str, page: &Page, details: bool) -> String {
    let mut xml = format!(
        "{DECLARATION}<EnumerationResults ServiceEndpoint=\"{}\" ShareName=\"{}\" DirectoryPath=\"{}\">",
        escape(asked.endpoint),
        escape(share),
        escape(path)
    );
    echo(&mut xml, asked);
    xml.push_str("<Entries>");
    for entry in &page.entries {
        entry_xml(&mut xml, entry, details);
    }
    xml.push_str("</Entries>");
    finish(xml, page.next.as_deref())
}

/// The service counts whole GiB; newer clients read bytes.
pub(super) fn share_stats(bytes: u64) -> String {
    let gib = bytes.div_ceil(1 << 30);
    format!(
        "{DECLARATION}<ShareStats><ShareUsage>{gib}</ShareUsage><ShareUsageBytes>{bytes}</ShareUsageBytes></ShareStats>"
    )
}

pub(super) fn ranges(ranges: &[(u64, u64)]) -> String {
    let mut xml = format!("{DECLARATION}<Ranges>");
    for (start, end) in ranges {
        let _ = write!(xml, "<Range><Start>{start}</Start><End>{end}</End></Range>");
    }
    xml.push_str("</Ranges>");
    xml
}

fn entry_xml(xml: &mut String, entry: &Entry, details: bool) {
    let element = match entry.kind() {
        Kind::File => "File",
        Kind::Directory => "Directory",
    };
    let _ = write!(xml, "<{element}>");
    if details {
        let _ = write!(xml, "<FileId>{}</FileId>", entry.stat.id);
    }
    let _ = write!(xml, "<Name>{}</Name><Properties>", escape(&entry.name));
    if entry.kind() == Kind::File {
        let _ = write!(xml, "<Content-Length>{}</Content-Length>", entry.len());
    }
    if details {
        let modified = smb_time(entry.modified());
        let _ = write!(
            xml,
            "<CreationTime>{}</CreationTime><LastAccessTime>{modified}</LastAccessTime>\
             <LastWriteTime>{modified}</LastWriteTime><ChangeTime>{modified}</ChangeTime>\
             <Last-Modified>{}</Last-Modified><Etag>{}</Etag>",
            smb_time(entry.stat.created),
            http_date(entry.modified()),
            escape(&entry.stat.etag),
        );
    }
    let _ = write!(xml, "</Properties></{element}>");
}

fn echo(xml: &mut String, asked: &Asked) {
    for (element, value) in [("Prefix", asked.prefix), ("Marker", asked.marker)] {
        if !value.is_empty() {
            let _ = write!(xml, "<{element}>{}</{element}>", escape(value));
        }
    }
    if let Some(limit) = asked.limit {
        let _ = write!(xml, "<MaxResults>{limit}</MaxResults>");
    }
}

fn finish(mut xml: String, next: Option<&str>) -> String {
    match next {
        Some(next) => {
            let _ = write!(xml, "<NextMarker>{}</NextMarker>", escape(next));
        }
        None => xml.push_str("<NextMarker />"),
    }
    xml.push_str("</EnumerationResults>");
    xml
}

/// Text for elements and attributes. Characters that XML cannot say at all become U+FFFD; names in
/// shares have none, but prefixes and messages repeat what was asked.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' | '\r' => escaped.push(c),
            '\u{0}'..'\u{20}' | '\u{FFFE}' | '\u{FFFF}' => escaped.push('\u{FFFD}'),
            c => escaped.push(c),
        }
    }
    escaped
}
