//! XML document of a directory listing. Pure.

use std::fmt::Write;

use corro_shares::{Entry, Kind, Page, Stat};

use crate::protocol::listing::{ListingParams, close_listing, next_marker, push_params};
use crate::protocol::smb_properties::SmbProperties;
use crate::protocol::time_format::{http_date, smb_time};
use crate::protocol::xml::{DECLARATION, escape, is_representable, push_link, push_name};

/// Optional elements of a listing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Details {
    timestamps: bool,
    etag: bool,
    attributes: bool,
    permission_key: bool,
    /// Ids of the entries and of the directory.
    ids: bool,
}

impl Details {
    /// `include` is a comma-separated list; any item also selects the ids.
    pub fn parse(include: &str, extended: bool) -> Self {
        let wants = |what: &str| include.split(',').any(|word| word.trim().eq_ignore_ascii_case(what));
        Details {
            timestamps: wants("timestamps"),
            etag: wants("etag"),
            attributes: wants("attributes"),
            permission_key: wants("permissionkey"),
            ids: extended || !include.is_empty(),
        }
    }

    /// Whether the stored properties of the entries must be read.
    pub fn needs_properties(self) -> bool {
        self.timestamps || self.attributes || self.permission_key
    }
}

/// The listed directory.
pub(crate) struct Directory<'a> {
    pub share: &'a str,
    pub path: &'a str,
    pub stat: &'a Stat,
}

pub(crate) fn document(params: &ListingParams, directory: Directory<'_>, page: &Page, details: Details) -> String {
    let mut xml = format!(
        "{DECLARATION}<EnumerationResults ServiceEndpoint=\"{}\" ShareName=\"{}\" DirectoryPath=\"{}\">",
        escape(&params.endpoint),
        escape(directory.share),
        escape(directory.path)
    );
    push_params(&mut xml, params);
    if details.ids {
        let _ = write!(xml, "<DirectoryId>{}</DirectoryId>", directory.stat.id);
    }
    xml.push_str("<Entries>");
    // A client that does not know encoded names would take it for another name.
    for entry in page.entries.iter().filter(|entry| params.encodes_names || is_representable(&entry.name)) {
        push_entry(&mut xml, entry, details);
    }
    xml.push_str("</Entries>");
    let next = page.next.as_deref().map(|name| next_marker(name, params));
    close_listing(xml, next.as_deref())
}

fn push_entry(xml: &mut String, entry: &Entry, details: Details) {
    let element = match entry.kind() {
        // The emulated versions know only files and directories. A link is never a directory: clients would descend
        // into it.
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
    let smb = details.needs_properties().then(|| SmbProperties::load(&entry.stat, &entry.properties));
    if let Some(SmbProperties { created, written, changed, .. }) = smb.as_ref().filter(|_| details.timestamps) {
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
    if let Some(SmbProperties { attributes, .. }) = smb.as_ref().filter(|_| details.attributes) {
        let _ = write!(xml, "<Attributes>{}</Attributes>", escape(attributes));
    }
    if let Some(SmbProperties { permission_key, .. }) = smb.as_ref().filter(|_| details.permission_key) {
        let _ = write!(xml, "<PermissionKey>{}</PermissionKey>", escape(permission_key));
    }
    let _ = write!(xml, "</{element}>");
}
