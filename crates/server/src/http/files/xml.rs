//! The few XML documents of the file service, written by hand: they are flat, and their readers
//! care for exact element names. Pure.

use std::fmt::Write;

use corro_shares::{Difference, Entry, Kind, Link, Page, Properties, Stat, TreeEntry};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::{
    about::metadata_of,
    reply::{http_date, smb_time},
    shares::Listed,
    smb::Shown,
};

pub(super) const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>";

/// What a listing was asked for, repeated in its answer.
pub(super) struct Asked<'a> {
    pub endpoint: String,
    pub prefix: &'a str,
    pub marker: &'a str,
    pub limit: Option<usize>,
    /// The reader knows names that are written encoded, because XML cannot say them.
    pub encodes: bool,
}

pub(super) fn shares(
    asked: &Asked,
    shares: &[Listed],
    describe: impl Fn(&Properties) -> String,
    with_metadata: bool,
    next: Option<&str>,
) -> String {
    let mut xml = format!("{DECLARATION}<EnumerationResults ServiceEndpoint=\"{}\">", escape(&asked.endpoint));
    echo(&mut xml, asked);
    xml.push_str("<Shares>");
    for Listed { snapshot, share } in shares {
        let _ = write!(xml, "<Share><Name>{}</Name>", escape(&share.name));
        if let Some(id) = snapshot {
            let _ = write!(xml, "<Snapshot>{}</Snapshot>", id.as_str());
        }
        let _ = write!(
            xml,
            "<Properties><Last-Modified>{}</Last-Modified><Etag>{}</Etag>{}</Properties>",
            http_date(share.modified),
            escape(&share.etag),
            describe(&share.properties),
        );
        if with_metadata {
            push_metadata(&mut xml, &share.properties);
        }
        xml.push_str("</Share>");
    }
    xml.push_str("</Shares>");
    finish(xml, next)
}

pub(super) fn containers(asked: &Asked, containers: &[TreeEntry], with_metadata: bool, next: Option<&str>) -> String {
    let mut xml = format!("{DECLARATION}<EnumerationResults ServiceEndpoint=\"{}\">", escape(&asked.endpoint));
    echo(&mut xml, asked);
    xml.push_str("<Containers>");
    for container in containers {
        let _ = write!(
            xml,
            "<Container><Name>{}</Name><Properties><Last-Modified>{}</Last-Modified><Etag>{}</Etag>\
             <LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState>\
             <HasImmutabilityPolicy>false</HasImmutabilityPolicy><HasLegalHold>false</HasLegalHold></Properties>",
            escape(&container.name),
            http_date(container.modified),
            escape(&container.etag),
        );
        if with_metadata {
            push_metadata(&mut xml, &container.properties);
        }
        xml.push_str("</Container>");
    }
    xml.push_str("</Containers>");
    finish(xml, next)
}

/// What a listing says about each entry besides name and length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Details {
    timestamps: bool,
    etag: bool,
    attributes: bool,
    permission_key: bool,
    /// The ids of entries and directory.
    ids: bool,
}

impl Details {
    /// `include` is a list of words; any of them asks for the ids too.
    pub fn of(include: &str, extended: bool) -> Self {
        let wants = |what: &str| include.split(',').any(|word| word.trim().eq_ignore_ascii_case(what));
        Details {
            timestamps: wants("timestamps"),
            etag: wants("etag"),
            attributes: wants("attributes"),
            permission_key: wants("permissionkey"),
            ids: extended || !include.is_empty(),
        }
    }

    /// Whether some of it must be looked for beside the entries.
    pub fn is_kept_beside(self) -> bool {
        self.timestamps || self.attributes || self.permission_key
    }
}

/// The directory that is listed.
pub(super) struct Directory<'a> {
    pub share: &'a str,
    pub path: &'a str,
    pub stat: &'a Stat,
}

pub(super) fn directory(asked: &Asked, directory: Directory<'_>, page: &Page, details: Details) -> String {
    let mut xml = format!(
        "{DECLARATION}<EnumerationResults ServiceEndpoint=\"{}\" ShareName=\"{}\" DirectoryPath=\"{}\">",
        escape(&asked.endpoint),
        escape(directory.share),
        escape(directory.path)
    );
    echo(&mut xml, asked);
    if details.ids {
        let _ = write!(xml, "<DirectoryId>{}</DirectoryId>", directory.stat.id);
    }
    xml.push_str("<Entries>");
    // To others such a name would be another one.
    for entry in page.entries.iter().filter(|entry| asked.encodes || can_be_said(&entry.name)) {
        entry_xml(&mut xml, entry, details);
    }
    xml.push_str("</Entries>");
    let next = page.next.as_deref().map(|name| marker_of(name, asked));
    finish(xml, next.as_deref())
}

/// The service counts whole GiB; newer clients read bytes.
pub(super) fn share_stats(bytes: u64) -> String {
    let gib = bytes.div_ceil(1 << 30);
    format!(
        "{DECLARATION}<ShareStats><ShareUsage>{gib}</ShareUsage><ShareUsageBytes>{bytes}</ShareUsageBytes></ShareStats>"
    )
}

pub(super) fn ranges(difference: &Difference) -> String {
    let written = difference.written.iter().map(|range| ("Range", range));
    let mut all: Vec<_> = written.chain(difference.cleared.iter().map(|range| ("ClearRange", range))).collect();
    all.sort_by_key(|(_, range)| **range);
    let mut xml = format!("{DECLARATION}<Ranges>");
    for (element, (start, end)) in all {
        let _ = write!(xml, "<{element}><Start>{start}</Start><End>{end}</End></{element}>");
    }
    xml.push_str("</Ranges>");
    xml
}

fn entry_xml(xml: &mut String, entry: &Entry, details: Details) {
    let element = match entry.kind() {
        // The service of that time knows no third kind. Never a directory: clients would descend into it.
        Kind::File | Kind::Link => "File",
        Kind::Directory => "Directory",
    };
    let _ = write!(xml, "<{element}>");
    if details.ids {
        let _ = write!(xml, "<FileId>{}</FileId>", entry.stat.id);
    }
    push_name(xml, "Name", &entry.name);
    xml.push_str("<Properties>");
    if entry.kind() != Kind::Directory {
        let _ = write!(xml, "<Content-Length>{}</Content-Length>", entry.len());
    }
    push_link(xml, entry.link.as_ref(), &entry.stat);
    let shown = details.is_kept_beside().then(|| Shown::of(&entry.stat, &entry.properties));
    if let Some(Shown { created, written, changed, .. }) = shown.as_ref().filter(|_| details.timestamps) {
        let _ = write!(
            xml,
            "<CreationTime>{created}</CreationTime><LastAccessTime>{}</LastAccessTime>\
             <LastWriteTime>{written}</LastWriteTime><ChangeTime>{changed}</ChangeTime>\
             <Last-Modified>{}</Last-Modified>",
            smb_time(entry.modified()),
            http_date(entry.modified()),
        );
    }
    if details.etag {
        let _ = write!(xml, "<Etag>{}</Etag>", escape(&entry.stat.etag));
    }
    xml.push_str("</Properties>");
    if let Some(Shown { attributes, .. }) = shown.as_ref().filter(|_| details.attributes) {
        let _ = write!(xml, "<Attributes>{}</Attributes>", escape(attributes));
    }
    if let Some(Shown { permission_key, .. }) = shown.as_ref().filter(|_| details.permission_key) {
        let _ = write!(xml, "<PermissionKey>{}</PermissionKey>", escape(permission_key));
    }
    let _ = write!(xml, "</{element}>");
}

/// Marks a link among the properties of an entry, with elements that clients of the service pass over.
pub(super) fn push_link(xml: &mut String, link: Option<&Link>, stat: &Stat) {
    let Some(link) = link else { return };
    let _ = write!(xml, "<FileType>SymLink</FileType><LinkText>{}</LinkText>", escape(&link.text));
    // A read gives the file and not the text.
    let _ = write!(xml, "<LinksToFile>{}</LinksToFile>", stat.kind == Kind::File);
}

pub(super) fn push_metadata(xml: &mut String, properties: &Properties) {
    xml.push_str("<Metadata>");
    for (name, value) in metadata_of(properties) {
        let _ = write!(xml, "<{name}>{}</{name}>", escape(value));
    }
    xml.push_str("</Metadata>");
}

pub(super) fn echo(xml: &mut String, asked: &Asked) {
    for (element, value) in [("Prefix", asked.prefix), ("Marker", asked.marker)] {
        match value.is_empty() {
            true => {}
            false if asked.encodes => push_name(xml, element, value),
            false => {
                let _ = write!(xml, "<{element}>{}</{element}>", escape(value));
            }
        }
    }
    if let Some(limit) = asked.limit {
        let _ = write!(xml, "<MaxResults>{limit}</MaxResults>");
    }
}

pub(super) fn finish(mut xml: String, next: Option<&str>) -> String {
    match next {
        Some(next) => {
            let _ = write!(xml, "<NextMarker>{}</NextMarker>", escape(next));
        }
        None => xml.push_str("<NextMarker />"),
    }
    xml.push_str("</EnumerationResults>");
    xml
}

/// A name, encoded if it must be.
pub(super) fn push_name(xml: &mut String, element: &str, name: &str) {
    let _ = match can_be_said(name) {
        true => write!(xml, "<{element}>{}</{element}>", escape(name)),
        false => {
            let encoded = utf8_percent_encode(name, NON_ALPHANUMERIC);
            write!(xml, "<{element} Encoded=\"true\">{encoded}</{element}>")
        }
    };
}

/// Where the next page begins: a name, or, when that does not do, a slash, which is in no name, before name and prefix.
/// The SDKs of these versions repeat the prefix wrongly when they ask for the next page, so the marker carries it.
fn marker_of(name: &str, asked: &Asked) -> String {
    match can_be_said(name) && (asked.prefix.is_empty() || !asked.encodes) {
        true => name.to_owned(),
        false => {
            let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
            format!("/{}/{}", encode(name), encode(asked.prefix))
        }
    }
}

/// A marker for a name that may hold anything; [`marked`] reads it.
pub(super) fn encoded_marker(name: &str) -> String {
    format!("/{}/", utf8_percent_encode(name, NON_ALPHANUMERIC))
}

/// The name that a marker stands for, and the prefix if it carries one.
pub(super) fn marked(marker: &str) -> (String, Option<String>) {
    let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    match marker.strip_prefix('/').and_then(|both| both.split_once('/')) {
        Some((name, prefix)) => (decode(name), Some(decode(prefix))),
        None => (marker.to_owned(), None),
    }
}

pub(super) fn can_be_said(text: &str) -> bool {
    !text.contains(|c| matches!(c, '\u{0}'..'\u{20}' | '\u{FFFE}' | '\u{FFFF}'))
}

/// Text for elements and attributes. Characters that XML cannot say at all become U+FFFD: prefixes and messages repeat
/// what was asked.
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
