//! XML document of a directory listing. Pure.

use std::fmt::Write;

use corro_shares::{Entry, Kind, Page, Stat};

use crate::protocol::listing::{Asked, echo, finish, marker_of};
use crate::protocol::smb_properties::Shown;
use crate::protocol::time_format::{http_date, smb_time};
use crate::protocol::xml::{DECLARATION, can_be_said, escape, push_link, push_name};

/// What a listing says about each entry besides name and length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Details {
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
pub(crate) struct Directory<'a> {
    pub share: &'a str,
    pub path: &'a str,
    pub stat: &'a Stat,
}

pub(crate) fn document(asked: &Asked, directory: Directory<'_>, page: &Page, details: Details) -> String {
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
