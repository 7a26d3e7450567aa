//! Primitives for XML documents, which are written by hand: they are flat, and clients depend on exact element names.
//! Pure.

use std::fmt::Write;

use corro_shares::{Kind, Link, Properties, Stat};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::protocol::metadata_headers::metadata_entries;

pub(crate) const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>";

/// Marks a symbolic link among the properties of an entry, with elements that Azure clients ignore.
pub(crate) fn push_link(xml: &mut String, link: Option<&Link>, stat: &Stat) {
    let Some(link) = link else { return };
    let _ = write!(xml, "<FileType>SymLink</FileType><LinkText>{}</LinkText>", escape(&link.text));
    // Whether a read returns the target's content instead of the target path.
    let _ = write!(xml, "<LinksToFile>{}</LinksToFile>", stat.kind == Kind::File);
}

pub(crate) fn push_metadata(xml: &mut String, properties: &Properties) {
    xml.push_str("<Metadata>");
    for (name, value) in metadata_entries(properties) {
        let _ = write!(xml, "<{name}>{}</{name}>", escape(value));
    }
    xml.push_str("</Metadata>");
}

/// A name, percent-encoded if XML cannot represent it.
pub(crate) fn push_name(xml: &mut String, element: &str, name: &str) {
    let _ = match is_representable(name) {
        true => write!(xml, "<{element}>{}</{element}>", escape(name)),
        false => {
            let encoded = utf8_percent_encode(name, NON_ALPHANUMERIC);
            write!(xml, "<{element} Encoded=\"true\">{encoded}</{element}>")
        }
    };
}

pub(crate) fn is_representable(text: &str) -> bool {
    !text.contains(|c| matches!(c, '\u{0}'..'\u{20}' | '\u{FFFE}' | '\u{FFFF}'))
}

/// Escapes text for elements and attributes. Characters that XML cannot represent become U+FFFD; they occur in echoed
/// prefixes and messages.
pub(crate) fn escape(text: &str) -> String {
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
