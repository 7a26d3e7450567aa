//! `corro docs`: the documentation in the terminal, from the program itself. A page or a section by its key; without one, the list of
//! pages.

use clap::Args;
use corro_docs::lookup::{self, page_key};

use crate::error::CliError;
use crate::stdio::{note, print};

/// Most keys that a hint lists.
const MAX_SIMILAR_KEYS: usize = 12;

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  corro docs\n  corro docs quickstart\n  corro docs job-file | less\n\nA server also serves these pages to browsers, under /docs."
)]
pub struct DocsArgs {
    /// Page or section to print [default: the list of pages]
    #[arg(value_name = "KEY")]
    key: Option<String>,
}

pub fn run(args: DocsArgs) -> Result<(), CliError> {
    let Some(key) = args.key else {
        print(contents());
        return Ok(());
    };
    let section = lookup::find(&key).ok_or_else(|| unknown_key(&key))?;
    print(without_comments(section.markdown).trim_end());
    note(format_args!("\nOn your server: {}", section.url_path()));
    Ok(())
}

/// Table of pages with their keys.
fn contents() -> String {
    let pages: Vec<_> = corro_docs::pages().collect();
    let width = pages.iter().map(|page| page_key(page).len()).max().unwrap_or(0);
    let mut text = String::from("corro docs KEY prints a page, or a section by the anchor of its heading.\n");
    let mut part = "";
    for page in &pages {
        let folder = page.path.split_once('/').map_or("", |(folder, _)| folder);
        if folder != part {
            part = folder;
            text.push_str(&format!("\n{part}\n"));
        }
        text.push_str(&format!("  {:width$}  {}\n", page_key(page), page.title));
    }
    text.trim_end().to_owned()
}

fn unknown_key(key: &str) -> CliError {
    let mut similar = lookup::similar_keys(key);
    similar.truncate(MAX_SIMILAR_KEYS);
    let hint = match similar.is_empty() {
        true => "'corro docs' lists all pages".to_owned(),
        false => format!("similar keys: {}", similar.join(", ")),
    };
    CliError::usage(format!("the documentation has no page or section '{key}'")).hint(hint)
}

/// The Markdown without its comments, which are for tests.
fn without_comments(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, after)) = rest.split_once("<!--") {
        text.push_str(before.trim_end_matches('\n'));
        text.push_str("\n\n");
        rest = after.split_once("-->").map_or("", |(_, after)| after.trim_start_matches('\n'));
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_left_out() {
        assert_eq!(without_comments("a\n\n<!-- run\nx\n-->\n\nb\n"), "a\n\nb\n");
        assert_eq!(without_comments("plain\n"), "plain\n");
    }
}
