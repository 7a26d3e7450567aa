//! Finds a part of the book by a short key, for `corro docs KEY` and for errors that refer to it.

use crate::anchors::headings;
use crate::{Page, pages};

/// Part of the book that a key names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    pub page: Page,
    /// Anchor within the page; `None` is the whole page.
    pub anchor: Option<String>,
    pub markdown: &'static str,
}

impl Section {
    /// Path of the section on a server.
    pub fn url_path(&self) -> String {
        let page = self.page.path.trim_end_matches(".md");
        match &self.anchor {
            Some(anchor) => format!("/docs/{page}.html#{anchor}"),
            None => format!("/docs/{page}.html"),
        }
    }
}

/// Short name of a page: its path without the suffix, or only the file's name.
pub fn page_key(page: &Page) -> &'static str {
    let path = page.path.trim_end_matches(".md");
    path.rsplit('/').next().unwrap_or(path)
}

/// Section with this key: a page by path or file name, else a heading by its anchor. The first one in the book's order.
pub fn find(key: &str) -> Option<Section> {
    let wanted = key.trim_end_matches(".md").trim_end_matches(".html").to_lowercase();
    let is_named = |page: &Page| page.path.trim_end_matches(".md") == wanted || page_key(page) == wanted;
    if let Some(page) = pages().find(is_named) {
        return Some(Section { page, anchor: None, markdown: page.markdown });
    }
    let (path, anchor) = wanted.split_once('#').unwrap_or(("", &wanted));
    let mut candidates = pages().filter(|page| path.is_empty() || page.path.trim_end_matches(".md") == path);
    candidates.find_map(|page| section_at(page, anchor))
}

/// Keys that contain `part`, for a hint where a key is unknown.
pub fn similar_keys(part: &str) -> Vec<String> {
    let part = part.to_lowercase();
    let keys = pages().flat_map(|page| {
        let anchors = headings(page.markdown).into_iter().map(|heading| heading.anchor);
        std::iter::once(page_key(&page).to_owned()).chain(anchors)
    });
    keys.filter(|key| key.contains(&part)).collect()
}

fn section_at(page: Page, anchor: &str) -> Option<Section> {
    let all = headings(page.markdown);
    let index = all.iter().position(|heading| heading.anchor == anchor)?;
    let start = &all[index];
    let end = all[index + 1..].iter().find(|next| next.level <= start.level).map(|next| next.offset);
    let markdown = &page.markdown[start.offset..end.unwrap_or(page.markdown.len())];
    Some(Section { page, anchor: Some(anchor.to_owned()), markdown })
}
