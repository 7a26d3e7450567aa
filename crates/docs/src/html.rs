//! Pages of the book as HTML: contents on the left, the page on the right, no scripts.

use std::fmt::Write as _;

use pulldown_cmark::{CodeBlockKind, CowStr, Event, Parser, Tag, TagEnd, html::push_html};

use crate::anchors::{headings, markdown_options};
use crate::summary::entry;
use crate::{Page, pages, table_of_contents};

/// Style sheet of all pages; embedded in each, so that the server can name it by its digest.
pub const STYLE: &str = include_str!("style.css");

/// HTML document of the page at `path` (`users/quickstart.html`); `None` where there is none.
pub fn document(path: &str) -> Option<String> {
    let source = format!("{}.md", path.strip_suffix(".html")?);
    let all: Vec<Page> = pages().collect();
    let index = all.iter().position(|page| page.path == source)?;
    let page = all[index];
    let mut html = String::with_capacity(page.markdown.len() * 2);
    let root = "../".repeat(page.path.matches('/').count());
    write!(
        html,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title} – Corro</title><link rel=\"icon\" href=\"/ui/assets/icon.svg\"><style>{STYLE}</style></head>\
         <body><nav><p class=\"home\"><a href=\"{root}introduction.html\">Corro</a> \
         <a class=\"dashboard\" href=\"/ui/\">Dashboard</a></p>",
        title = escaped(page.title),
    )
    .expect("memory takes what is written");
    push_contents(&mut html, &page, &root);
    html.push_str("</nav><main>");
    push_body(&mut html, page.markdown);
    html.push_str("<footer>");
    if let Some(previous) = index.checked_sub(1).map(|index| all[index]) {
        push_link(&mut html, "previous", &root, &previous);
    }
    if let Some(next) = all.get(index + 1) {
        push_link(&mut html, "next", &root, next);
    }
    html.push_str("</footer></main></body></html>\n");
    Some(html)
}

/// Table of contents with the current page marked.
fn push_contents(html: &mut String, current: &Page, root: &str) {
    let summary = table_of_contents();
    for line in summary.lines() {
        if let Some(part) = line.strip_prefix("# ").filter(|part| *part != "Summary") {
            write!(html, "<h2>{}</h2>", escaped(part)).expect("memory takes what is written");
            continue;
        }
        let depth = line.len() - line.trim_start().len();
        if let Some((title, path)) = entry(line) {
            let class = if depth > 0 { "nested" } else { "page" };
            let mark = if path == current.path { " aria-current=\"page\"" } else { "" };
            let href = path.trim_end_matches(".md");
            write!(html, "<a class=\"{class}\"{mark} href=\"{root}{href}.html\">{}</a>", escaped(title))
                .expect("memory takes what is written");
        }
    }
}

fn push_link(html: &mut String, class: &str, root: &str, page: &Page) {
    let href = page.path.trim_end_matches(".md");
    write!(html, "<a class=\"{class}\" href=\"{root}{href}.html\">{}</a>", escaped(page.title))
        .expect("memory takes what is written");
}

/// The page's Markdown as HTML: headings with anchors, links to `.html`, no comments.
fn push_body(html: &mut String, markdown: &str) {
    let mut anchors = headings(markdown).into_iter().map(|heading| heading.anchor);
    let events = Parser::new_ext(markdown, markdown_options()).filter_map(|event| match event {
        Event::Start(Tag::Heading { level, classes, attrs, .. }) => {
            let id = anchors.next().map(CowStr::from);
            Some(Event::Start(Tag::Heading { level, id, classes, attrs }))
        }
        Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
            let dest_url = html_link(&dest_url).into();
            Some(Event::Start(Tag::Link { link_type, dest_url, title, id }))
        }
        Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
            let language = info.split(',').next().unwrap_or_default().to_owned();
            Some(Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language.into()))))
        }
        // The only HTML of the book is comments.
        Event::Html(_) | Event::InlineHtml(_) | Event::Start(Tag::HtmlBlock) | Event::End(TagEnd::HtmlBlock) => None,
        other => Some(other),
    });
    push_html(html, events);
}

/// Link of the rendered page: `.md` of the book becomes `.html`.
fn html_link(link: &str) -> String {
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let path = match path.strip_suffix(".md") {
        Some(path) if !path.contains("://") => format!("{path}.html"),
        _ => path.to_owned(),
    };
    anchor.map_or(path.clone(), |anchor| format!("{path}#{anchor}"))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}
