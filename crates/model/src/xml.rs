//! Reader of the XML documents of the file service, for both sides of it: elements, text, character references and CDATA.
//! Attributes, comments and processing instructions are checked and skipped. A document type is refused, so nothing is
//! ever expanded or fetched. Pure.

use quick_xml::Reader;
use quick_xml::events::{BytesRef, BytesStart, Event};

/// An element with the text directly in it and its child elements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    pub name: String,
    pub text: String,
    pub children: Vec<Element>,
}

const MAX_SMALL_DOCUMENT_ELEMENTS: usize = 1000;
const MAX_DEPTH: usize = 16;

impl Element {
    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The text of a child, when it is there and not empty.
    pub fn text_of(&self, name: &str) -> Option<&str> {
        self.child(name).map(|child| child.text.as_str()).filter(|text| !text.is_empty())
    }

    /// The text of a child without surrounding white space; empty when there is no such child.
    pub fn child_text(&self, name: &str) -> &str {
        self.text_of(name).unwrap_or_default().trim()
    }
}

/// The root element of settings, policies or an error, as [`parse`].
pub fn parse_small(text: &str) -> Option<Element> {
    parse(text, MAX_SMALL_DOCUMENT_ELEMENTS)
}

/// The root element; `None` when the text is not a well-formed document of at most `max_elements` elements.
pub fn parse(text: &str, max_elements: usize) -> Option<Element> {
    let mut reader = Reader::from_str(text.strip_prefix('\u{FEFF}').unwrap_or(text));
    let mut open: Vec<Element> = Vec::new();
    let mut root = None;
    let mut n_elements = 0;
    loop {
        let closed = match reader.read_event().ok()? {
            Event::Eof => return root.filter(|_| open.is_empty()),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => continue,
            Event::DocType(_) => return None,
            Event::Text(text) => {
                match open.last_mut() {
                    Some(element) => element.text.push_str(&text),
                    None if text.trim().is_empty() => {}
                    None => return None,
                }
                continue;
            }
            Event::CData(text) => {
                open.last_mut()?.text.push_str(&text);
                continue;
            }
            Event::GeneralRef(reference) => {
                open.last_mut()?.text.push(referenced_char(&reference)?);
                continue;
            }
            Event::End(_) => open.pop()?,
            Event::Start(start) => {
                n_elements += 1;
                if root.is_some() || open.len() == MAX_DEPTH || n_elements > max_elements {
                    return None;
                }
                open.push(element(&start)?);
                continue;
            }
            Event::Empty(start) => {
                n_elements += 1;
                if root.is_some() || open.len() == MAX_DEPTH || n_elements > max_elements {
                    return None;
                }
                element(&start)?
            }
        };
        match open.last_mut() {
            Some(parent) => parent.children.push(closed),
            None => root = Some(closed),
        }
    }
}

/// An empty element with this name, if its name and attributes are well-formed.
fn element(start: &BytesStart) -> Option<Element> {
    let name = start.name();
    let name = name.into_inner();
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    if name.is_empty() || !name.chars().all(is_name) || start.attributes().any(|attribute| attribute.is_err()) {
        return None;
    }
    Some(Element { name: name.to_owned(), ..Element::default() })
}

/// `&amp;` and the other four, `&#65;`, `&#x41;`.
fn referenced_char(reference: &BytesRef) -> Option<char> {
    if let Some(c) = reference.resolve_char_ref().ok()? {
        return Some(c);
    }
    match &**reference {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_of_clients_and_of_the_service_are_read() {
        let text = "\u{FEFF}<?xml version='1.0' encoding='utf-8'?>\n<!-- c --><A x=\"1>\" y='<'>\n <B>a &amp; &#65;&#x42;</B>\
                    <C/><D ></D ><B><![CDATA[<x>]]></B></A>\n";
        let root = parse(text, 10).expect("a document");
        assert_eq!((root.name.as_str(), root.children.len()), ("A", 4));
        assert_eq!((root.text_of("B"), root.text_of("C"), root.text_of("none")), (Some("a & AB"), None, None));
        assert_eq!(root.children[3].text, "<x>");
        assert!(root.child("D").is_some());
        let listing = parse("<E a=\"http://x/\"><F><Name> ñ.txt </Name><P /></F><NextMarker/></E>\n", 10);
        let listing = listing.expect("a document");
        assert_eq!(listing.children[0].text_of("Name"), Some(" ñ.txt "));
        assert_eq!((listing.children[0].child_text("Name"), listing.child_text("none")), ("ñ.txt", ""));
    }

    #[test]
    fn anything_else_is_refused() {
        let deep = "<a>".repeat(MAX_DEPTH + 1) + &"</a>".repeat(MAX_DEPTH + 1);
        let wide = format!("<a>{}</a>", "<b/>".repeat(10));
        for text in [
            "",
            " ",
            "x",
            "<",
            "<a",
            "<a>",
            "</a>",
            "<a></b>",
            "<a/><b/>",
            "<a/>x",
            "x<a/>",
            "<>",
            "< a/>",
            "<a x/>",
            "<a x=1/>",
            "<a x=\"1/>",
            "<a>&x;</a>",
            "<a>&#xD800;</a>",
            "<a>&amp</a>",
            "<!DOCTYPE a [<!ENTITY b 'c'>]><a/>",
            "<a><!-- </a>",
            "<a><![CDATA[</a>",
            "<?xml <a/>",
            &deep,
            &wide,
        ] {
            assert_eq!(parse(text, 10), None, "{text}");
        }
    }
}
