//! The book as a whole: every page is in the table of contents, every link leads somewhere, prose fits in 100 columns.

use std::collections::HashSet;
use std::path::Path;

use pulldown_cmark::{Event, Parser, Tag};

use crate::anchors::{headings, markdown_options};
use crate::{files, html, lookup, pages, picture, summary, table_of_contents};

/// Longest line of prose. Tables, code and links need not fit.
const MAX_COLUMNS: usize = 100;

#[test]
fn every_file_is_in_the_contents_and_every_entry_is_a_file() {
    let listed: Vec<&str> = summary::entries(table_of_contents()).map(|(_, path)| path).collect();
    let unique: HashSet<&str> = listed.iter().copied().collect();
    assert_eq!(unique.len(), listed.len(), "a page is listed twice");
    let present: HashSet<&str> =
        files::MARKDOWN.iter().map(|(path, _)| *path).filter(|path| *path != "SUMMARY.md").collect();
    assert_eq!(unique.difference(&present).collect::<Vec<_>>(), Vec::<&&str>::new(), "entries without a file");
    assert_eq!(present.difference(&unique).collect::<Vec<_>>(), Vec::<&&str>::new(), "files without an entry");
}

#[test]
fn every_page_has_one_title() {
    for page in pages() {
        let titles = headings(page.markdown).into_iter().filter(|heading| heading.level == 1).count();
        assert_eq!(titles, 1, "{} has {titles} headings of the first level", page.path);
    }
}

#[test]
fn every_link_leads_somewhere() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut broken = Vec::new();
    for page in pages() {
        for event in Parser::new_ext(page.markdown, markdown_options()) {
            let (Event::Start(Tag::Link { dest_url: link, .. }) | Event::Start(Tag::Image { dest_url: link, .. })) =
                event
            else {
                continue;
            };
            if !is_valid(page.path, &link) {
                broken.push(format!("{}: {link}", page.path));
            }
        }
    }
    for name in ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "docs/SPECIFICATION.md", "bench/README.md"] {
        let text = std::fs::read_to_string(repository.join(name)).expect("the repository has it");
        for event in Parser::new_ext(&text, markdown_options()) {
            let (Event::Start(Tag::Link { dest_url: link, .. }) | Event::Start(Tag::Image { dest_url: link, .. })) =
                event
            else {
                continue;
            };
            let path = link.split('#').next().unwrap_or_default();
            let target = repository.join(name).with_file_name(path);
            if !is_external(&link) && !path.is_empty() && !target.exists() {
                broken.push(format!("{name}: {link}"));
            }
            // Into the book: the anchor too.
            let in_book = path.split_once("docs/src/").map(|(_, page)| page);
            let anchor = link.split_once('#').map(|(_, anchor)| anchor);
            if let (Some(page), Some(anchor)) = (in_book, anchor)
                && !is_valid("x", &format!("{page}#{anchor}"))
            {
                broken.push(format!("{name}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn prose_fits_in_its_columns() {
    let mut long = Vec::new();
    for page in pages() {
        let (mut in_code, mut in_comment) = (false, false);
        for (index, line) in page.markdown.lines().enumerate() {
            in_code ^= line.trim_start().starts_with("```");
            in_comment = (in_comment || line.contains("<!--")) && !line.contains("-->");
            let is_prose =
                !in_code && !in_comment && !line.starts_with('|') && !line.contains("](") && !line.contains("://");
            if is_prose && line.chars().count() > MAX_COLUMNS {
                long.push(format!("{}:{}", page.path, index + 1));
            }
        }
    }
    assert!(long.is_empty(), "lines of more than {MAX_COLUMNS} columns: {long:?}");
}

#[test]
fn every_page_is_rendered_with_its_anchors() {
    for page in pages() {
        let path = page.path.replace(".md", ".html");
        let document = html::document(&path).unwrap_or_else(|| panic!("{path} is not rendered"));
        for heading in headings(page.markdown) {
            assert!(document.contains(&format!("id=\"{}\"", heading.anchor)), "{path} lacks #{}", heading.anchor);
        }
        assert!(!document.contains(".md\"") && !document.contains(".md#"), "{path} links to Markdown");
        assert!(!document.contains("<!--"), "{path} shows a comment");
    }
    assert_eq!(html::document("no/such.html"), None);
    assert_eq!(html::document("../Cargo.toml"), None);
}

#[test]
fn keys_find_pages_and_sections() {
    let quickstart = lookup::find("quickstart").expect("a page by its file name");
    assert_eq!(quickstart.page.path, "users/quickstart.md");
    assert_eq!(lookup::find("users/quickstart.md"), Some(quickstart));
    let heading = &headings(lookup::find("troubleshooting").expect("a page").markdown)[2];
    let section = lookup::find(&heading.anchor).expect("a section by its anchor");
    assert!(section.markdown.starts_with('#') && section.markdown.contains(&heading.text), "{section:?}");
    assert_eq!(lookup::find("no-such-key"), None);
    assert!(lookup::similar_keys("quick").contains(&"quickstart".to_owned()));
}

fn is_external(link: &str) -> bool {
    ["http://", "https://", "mailto:"].iter().any(|scheme| link.starts_with(scheme))
}

/// Whether a link of the page at `from` leads to a page, heading or picture of the book.
fn is_valid(from: &str, link: &str) -> bool {
    if is_external(link) {
        return true;
    }
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let target = match path {
        "" => from.to_owned(),
        path => resolve(from, path),
    };
    if path.ends_with(".png") {
        return picture(&target).is_some();
    }
    let Some(page) = pages().find(|page| page.path == target) else { return false };
    anchor.is_none_or(|anchor| headings(page.markdown).iter().any(|heading| heading.anchor == anchor))
}

/// Path below `docs/src` that a relative link of the page at `from` means.
fn resolve(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}
