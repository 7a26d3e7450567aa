//! A reader for the small XML documents of the file service: elements, text and the five entities. Entered by `files`.
//! Not a general parser: no attributes' values, namespaces, document types or processing beyond skipping them.

/// An element with its text and children.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Element {
    pub name: String,
    pub text: String,
    pub children: Vec<Element>,
}

impl Element {
    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The text of a child, when it is there and not empty.
    pub fn text_of(&self, name: &str) -> Option<&str> {
        self.child(name).map(|child| child.text.as_str()).filter(|text| !text.is_empty())
    }
}

/// The root element; `None` when the document is not well-formed.
pub fn parse(document: &str) -> Option<Element> {
    // The stack begins with a nameless element that receives the root.
    let mut open = vec![Element::default()];
    let mut rest = document.trim_start_matches('\u{feff}');
    while let Some(at) = rest.find('<') {
        open.last_mut()?.text.push_str(&unescape(&rest[..at])?);
        rest = &rest[at..];
        if let Some(comment) = rest.strip_prefix("<!--") {
            rest = &comment[comment.find("-->")? + 3..];
            continue;
        }
        let end = rest.find('>')?;
        let tag = &rest[1..end];
        rest = &rest[end + 1..];
        match tag.chars().next()? {
            '?' | '!' => {}
            '/' => {
                let closed = open.pop()?;
                (closed.name == tag[1..].trim()).then_some(())?;
                open.last_mut()?.children.push(closed);
            }
            _ => {
                let empty = tag.ends_with('/');
                let name = tag.trim_end_matches('/').split_whitespace().next()?;
                let element = Element { name: name.to_owned(), ..Element::default() };
                if empty {
                    open.last_mut()?.children.push(element);
                } else {
                    open.push(element);
                }
            }
        }
    }
    let mut outside = open.pop().filter(|_| open.is_empty())?;
    (outside.children.len() == 1).then(|| outside.children.remove(0))
}

fn unescape(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        plain.push_str(&rest[..at]);
        let end = rest[at..].find(';')? + at;
        plain.push(match &rest[at + 1..end] {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            code => {
                let digits = code.strip_prefix('#')?;
                let number = match digits.strip_prefix('x') {
                    Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                    None => digits.parse().ok()?,
                };
                char::from_u32(number)?
            }
        });
        rest = &rest[end + 1..];
    }
    plain.push_str(rest);
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing() {
        let root = parse(
            "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<EnumerationResults ServiceEndpoint=\"http://x/\">\
             <Entries><Directory><Name>a &amp; b&#x21;</Name><Properties /></Directory>\
             <File><Name>ñ.txt</Name><Properties><Content-Length>12</Content-Length></Properties></File></Entries>\
             <!-- no more --><NextMarker/></EnumerationResults>\n",
        )
        .expect("well-formed");
        assert_eq!(root.name, "EnumerationResults");
        let entries = &root.child("Entries").expect("entries").children;
        assert_eq!(entries[0].text_of("Name"), Some("a & b!"));
        let size = entries[1].child("Properties").and_then(|properties| properties.text_of("Content-Length"));
        assert_eq!((entries[1].text_of("Name"), size), (Some("ñ.txt"), Some("12")));
        assert_eq!(root.text_of("NextMarker"), None);
    }

    #[test]
    fn broken_documents() {
        for broken in ["", "text", "<a>", "</a>", "<a></b>", "<a/><b/>", "<a>&nope;</a>", "<a", "<>", "<a>&amp</a>"] {
            assert_eq!(parse(broken), None, "{broken}");
        }
    }
}
