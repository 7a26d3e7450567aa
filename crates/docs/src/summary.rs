//! The table of contents, `SUMMARY.md`, in mdBook's format: one `[title](path)` a line, `#` headings for parts.

/// Title and path in one line of the table of contents, if it has one.
pub fn entry(line: &str) -> Option<(&str, &str)> {
    let line = line.trim().trim_start_matches("- ");
    let (title, rest) = line.strip_prefix('[')?.split_once("](")?;
    Some((title, rest.strip_suffix(')')?))
}

/// Titles and paths of the pages, in order.
pub fn entries(summary: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    summary.lines().filter_map(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_titles_and_paths() {
        let summary = "# Summary\n\n[Introduction](introduction.md)\n\n# Users\n\n- [Start](users/start.md)\n  - [More](users/more.md)\n";
        let expected = [("Introduction", "introduction.md"), ("Start", "users/start.md"), ("More", "users/more.md")];
        assert_eq!(entries(summary).collect::<Vec<_>>(), expected);
    }
}
