//! Parser for the small XML documents in request bodies. Supports elements, text, CDATA and comments; ignores
//! attributes and processing instructions; rejects document types, so that no entity is expanded or fetched. Pure.

/// An element with its direct text and its children.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Element {
    pub name: String,
    pub text: String,
    pub children: Vec<Element>,
}

const MAX_DEPTH: usize = 16;
const MAX_ELEMENTS: usize = 1000;

impl Element {
    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    /// Trimmed text of a child; empty if absent.
    pub fn child_text(&self, name: &str) -> &str {
        self.child(name).map(|child| child.text.trim()).unwrap_or_default()
    }
}

/// The root element; `None` if the text is not a supported document.
pub(crate) fn parse(text: &str) -> Option<Element> {
    parse_with_limit(text, MAX_ELEMENTS)
}

/// Like [`parse`], with another limit for the number of elements.
pub(crate) fn parse_with_limit(text: &str, max_elements: usize) -> Option<Element> {
    let mut rest = text.strip_prefix('\u{FEFF}').unwrap_or(text);
    let mut open: Vec<Element> = Vec::new();
    let mut root = None;
    let mut n_elements = 0;
    while !rest.is_empty() {
        let (before, markup) = rest.split_at(rest.find('<').unwrap_or(rest.len()));
        match open.last_mut() {
            Some(element) => element.text.push_str(&unescape(before)?),
            None if before.trim().is_empty() => {}
            None => return None,
        }
        rest = markup;
        let closed = if rest.is_empty() {
            break;
        } else if let Some(after) = rest.strip_prefix("<!--") {
            rest = &after[after.find("-->")? + 3..];
            continue;
        } else if let Some(after) = rest.strip_prefix("<![CDATA[") {
            let end = after.find("]]>")?;
            open.last_mut()?.text.push_str(&after[..end]);
            rest = &after[end + 3..];
            continue;
        } else if let Some(after) = rest.strip_prefix("<?") {
            rest = &after[after.find("?>")? + 2..];
            continue;
        } else if let Some(after) = rest.strip_prefix("</") {
            let end = after.find('>')?;
            rest = &after[end + 1..];
            let element = open.pop()?;
            if element.name != after[..end].trim_end() {
                return None;
            }
            element
        } else {
            let (element, is_empty, after) = parse_start_tag(&rest[1..])?;
            rest = after;
            n_elements += 1;
            if root.is_some() || open.len() == MAX_DEPTH || n_elements > max_elements {
                return None;
            }
            if !is_empty {
                open.push(element);
                continue;
            }
            element
        };
        match open.last_mut() {
            Some(parent) => parent.children.push(closed),
            None => root = Some(closed),
        }
    }
    root.filter(|_| open.is_empty())
}

/// Parses what follows `<`: the element, whether it is self-closing, and the rest.
fn parse_start_tag(text: &str) -> Option<(Element, bool, &str)> {
    let end = text.find(|c: char| c.is_whitespace() || matches!(c, '>' | '/'))?;
    let (name, mut rest) = text.split_at(end);
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    if name.is_empty() || !name.chars().all(is_name) {
        return None;
    }
    let element = Element { name: name.to_owned(), ..Element::default() };
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('>') {
            return Some((element, false, after));
        }
        if let Some(after) = rest.strip_prefix("/>") {
            return Some((element, true, after));
        }
        // name="value" or name='value'
        let (attribute, after) = rest.split_once('=')?;
        if attribute.trim().is_empty() || attribute.contains(['<', '>', '/']) {
            return None;
        }
        let after = after.trim_start();
        let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        rest = after[1..].split_once(quote)?.1;
    }
}

fn unescape(text: &str) -> Option<String> {
    let mut pieces = text.split('&');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once(';')?;
        plain.push(match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            _ => {
                let code = name.strip_prefix('#')?;
                let code = match code.strip_prefix(['x', 'X']) {
                    Some(hex) => u32::from_str_radix(hex, 16),
                    None => code.parse(),
                };
                char::from_u32(code.ok()?)?
            }
        });
        plain.push_str(rest);
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_of_clients_are_parsed() {
        let text = "\u{FEFF}<?xml version='1.0' encoding='utf-8'?>\n<!-- c --><A x=\"1>\" y='<'>\n <B>a &amp; &#65;&#x42;</B>\
                    <C/><D ></D ><B><![CDATA[<x>]]></B></A>\n";
        let root = parse(text).expect("a document");
        assert_eq!((root.name.as_str(), root.children.len()), ("A", 4));
        assert_eq!((root.child_text("B"), root.child_text("C"), root.child_text("none")), ("a & AB", "", ""));
        assert_eq!(root.children[3].text, "<x>");
        assert!(root.child("D").is_some());
    }

    #[test]
    fn all_other_documents_are_rejected() {
        let deep = "<a>".repeat(MAX_DEPTH + 1) + &"</a>".repeat(MAX_DEPTH + 1);
        let wide = format!("<a>{}</a>", "<b/>".repeat(MAX_ELEMENTS));
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
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
