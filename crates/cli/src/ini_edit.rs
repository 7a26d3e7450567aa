//! Line-based edits of az's ini files, which keep comments and all other lines. Pure: text in, text out. `session::Ini` parses such files.

/// The text with `option = value` in `[section]`; unchanged if it has that already.
pub fn with_option(text: &str, section: &str, option: &str, value: &str) -> String {
    let line = format!("{option} = {value}\n");
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let Some((head, end)) = section_lines(&lines, section) else {
        let gap = if text.is_empty() || text.ends_with("\n\n") { "" } else { "\n" };
        return format!("{}{gap}[{section}]\n{line}", with_final_newline(text));
    };
    // The last of several assignments is effective.
    match (head + 1..end).rev().find(|idx| parse_option(lines[*idx]).is_some_and(|(name, _)| name == option)) {
        Some(idx) if parse_option(lines[idx]).is_some_and(|(_, current)| current == value) => text.to_owned(),
        Some(idx) => insert_between(&lines[..idx], &line, &lines[idx + 1..]),
        None => {
            let last = (head..end).rev().find(|idx| !lines[*idx].trim().is_empty()).unwrap_or(head);
            insert_between(&lines[..=last], &line, &lines[last + 1..])
        }
    }
}

/// The text without the option, and without its section if that becomes empty.
pub fn without_option(text: &str, section: &str, option: &str) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let Some((head, end)) = section_lines(&lines, section) else { return text.to_owned() };
    let is_option = |line: &&&str| parse_option(line).is_some_and(|(name, _)| name == option);
    let kept: Vec<&str> = lines[head + 1..end].iter().filter(|line| !is_option(line)).copied().collect();
    match kept.iter().all(|line| line.trim().is_empty()) {
        true => insert_between(&lines[..head], "", &lines[end..]),
        false => insert_between(&lines[..=head], &kept.concat(), &lines[end..]),
    }
}

/// The text without a section.
pub fn without_section(text: &str, section: &str) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    match section_lines(&lines, section) {
        Some((head, end)) => insert_between(&lines[..head], "", &lines[end..]),
        None => text.to_owned(),
    }
}

/// Line range of `[section]`: its header, and the line after its last.
fn section_lines(lines: &[&str], section: &str) -> Option<(usize, usize)> {
    let head = lines.iter().position(|line| section_name(line) == Some(section))?;
    let end = lines[head + 1..].iter().position(|line| section_name(line).is_some());
    Some((head, end.map_or(lines.len(), |after| head + 1 + after)))
}

fn section_name(line: &str) -> Option<&str> {
    line.trim_start_matches('\u{feff}').strip_prefix('[')?.split_once(']').map(|(name, _)| name)
}

/// Name, in lower case as `az` compares it, and value.
fn parse_option(line: &str) -> Option<(String, &str)> {
    let is_comment = line.starts_with([' ', '\t', '#', ';', '[']);
    let (name, value) = line.split_once(['=', ':']).filter(|_| !is_comment)?;
    Some((name.trim().to_lowercase(), value.trim()))
}

/// Concatenates lines around `line`.
fn insert_between(before: &[&str], line: &str, after: &[&str]) -> String {
    format!("{}{line}{}", with_final_newline(&before.concat()), after.concat())
}

/// The text with a newline at its end.
fn with_final_newline(text: &str) -> String {
    match text.is_empty() || text.ends_with('\n') {
        true => text.to_owned(),
        false => format!("{text}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# mine\n[core]\noutput = table\n\n[cloud]\nName: AzureCloud\n\n[defaults]\ngroup = g";

    #[test]
    fn an_option_is_set_in_its_section_and_the_rest_stays() {
        let check = |text: &str, section: &str, option: &str, value: &str, expected: &str| {
            let set = with_option(text, section, option, value);
            assert_eq!(set, expected);
            assert_eq!(with_option(&set, section, option, value), set, "a second time changes nothing");
        };
        check("", "cloud", "name", "corro", "[cloud]\nname = corro\n");
        check(FILE, "cloud", "name", "corro", &FILE.replace("Name: AzureCloud", "name = corro"));
        check(FILE, "cloud", "name", "AzureCloud", FILE);
        check(FILE, "core", "x", "1", &FILE.replace("table\n", "table\nx = 1\n"));
        check(FILE, "defaults", "location", "eastus", &format!("{FILE}\nlocation = eastus\n"));
        check(FILE, "new", "a", "b", &format!("{FILE}\n\n[new]\na = b\n"));
        check("[a]\n#b = 1\n  b = 2\n", "a", "b", "3", "[a]\n#b = 1\n  b = 2\nb = 3\n");
    }

    #[test]
    fn options_and_sections_are_removed() {
        let set = with_option(FILE, "cloud", "profile", "latest");
        assert_eq!(without_option(&set, "cloud", "profile"), FILE);
        assert_eq!(without_option("[cloud]\nname = corro\n\n[a]\nb = 1\n", "cloud", "name"), "[a]\nb = 1\n");
        assert_eq!(without_option(FILE, "none", "name"), FILE);
        assert_eq!(without_section("[a]\nb = 1\n[corro]\nc = 2\n\n[d]\n", "corro"), "[a]\nb = 1\n[d]\n");
        assert_eq!(without_section("[corro]\nc = 2\n", "corro"), "");
        assert_eq!(without_section(FILE, "corro"), FILE);
    }
}
