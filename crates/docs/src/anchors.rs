//! Anchors of headings, as mdBook makes them, so that links work in both renderings.

use std::collections::HashMap;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// A heading of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heading {
    pub level: usize,
    pub text: String,
    pub anchor: String,
    /// Byte offset of the heading in the page's Markdown.
    pub offset: usize,
}

/// Options of the Markdown dialect: tables, as mdBook has them by default.
pub fn markdown_options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH
}

/// Headings of a page with their anchors, in order.
pub fn headings(markdown: &str) -> Vec<Heading> {
    let mut seen = HashMap::new();
    let mut headings: Vec<Heading> = Vec::new();
    let mut is_open = false;
    for (event, range) in Parser::new_ext(markdown, markdown_options()).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { level, .. }) => {
                let heading =
                    Heading { level: level as usize, text: String::new(), anchor: String::new(), offset: range.start };
                headings.push(heading);
                is_open = true;
            }
            Event::End(TagEnd::Heading(_)) => {
                is_open = false;
                if let Some(heading) = headings.last_mut() {
                    heading.anchor = unique(anchor_of(&heading.text), &mut seen);
                }
            }
            Event::Text(text) | Event::Code(text) if is_open => {
                if let Some(heading) = headings.last_mut() {
                    heading.text.push_str(&text);
                }
            }
            _ => {}
        }
    }
    headings
}

/// Anchor of a heading's text: lower case, white space to `-`, punctuation dropped.
fn anchor_of(text: &str) -> String {
    let mapped = text.trim().chars().filter_map(|char| match char {
        _ if char.is_alphanumeric() || char == '_' || char == '-' => Some(char.to_ascii_lowercase()),
        _ if char.is_whitespace() => Some('-'),
        _ => None,
    });
    mapped.collect()
}

/// `anchor`, with a number where the page has had it before.
fn unique(anchor: String, seen: &mut HashMap<String, usize>) -> String {
    let count = seen.entry(anchor.clone()).or_insert(0);
    *count += 1;
    match *count {
        1 => anchor,
        n => format!("{anchor}-{}", n - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_those_of_mdbook() {
        let markdown =
            "# `corro up`: a server\n\ntext\n\n## Files & shares\n\n## Files & shares\n\n```sh\n# not a heading\n```\n";
        let found: Vec<(usize, String)> = headings(markdown).into_iter().map(|it| (it.level, it.anchor)).collect();
        let expected = [(1, "corro-up-a-server"), (2, "files--shares"), (2, "files--shares-1")];
        assert_eq!(found, expected.map(|(level, anchor)| (level, anchor.to_owned())));
    }
}
