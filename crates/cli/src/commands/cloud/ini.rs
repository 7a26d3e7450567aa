//! Small changes to the ini files of `az`, line by line, so that comments and whatever else is there stay as they are.
//! Pure: text in, text out. What a file says is read by `session::Ini`; this room only writes.

/// With `option = value` in `[section]`; the same text when it says so already.
pub fn with_option(text: &str, section: &str, option: &str, value: &str) -> String {
    let line = format!("{option} = {value}\n");
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let Some((head, end)) = section_lines(&lines, section) else {
        let gap = if text.is_empty() || text.ends_with("\n\n") { "" } else { "\n" };
        return format!("{}{gap}[{section}]\n{line}", ended(text));
    };
    // The last one counts.
    match (head + 1..end).rev().find(|idx| option_of(lines[*idx]).is_some_and(|(name, _)| name == option)) {
        Some(idx) if option_of(lines[idx]).is_some_and(|(_, kept)| kept == value) => text.to_owned(),
        Some(idx) => joined(&lines[..idx], &line, &lines[idx + 1..]),
        None => {
            let last = (head..end).rev().find(|idx| !lines[*idx].trim().is_empty()).unwrap_or(head);
            joined(&lines[..=last], &line, &lines[last + 1..])
        }
    }
}

/// Without the option, and without its section when nothing else is in it.
pub fn without_option(text: &str, section: &str, option: &str) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let Some((head, end)) = section_lines(&lines, section) else { return text.to_owned() };
    let is_it = |line: &&&str| option_of(line).is_some_and(|(name, _)| name == option);
    let kept: Vec<&str> = lines[head + 1..end].iter().filter(|line| !is_it(line)).copied().collect();
    match kept.iter().all(|line| line.trim().is_empty()) {
        true => joined(&lines[..head], "", &lines[end..]),
        false => joined(&lines[..=head], &kept.concat(), &lines[end..]),
    }
}

pub fn without_section(text: &str, section: &str) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    match section_lines(&lines, section) {
        Some((head, end)) => joined(&lines[..head], "", &lines[end..]),
        None => text.to_owned(),
    }
}

/// The lines of `[section]`: its head, and the one after its last.
fn section_lines(lines: &[&str], section: &str) -> Option<(usize, usize)> {
    let head = lines.iter().position(|line| section_of(line) == Some(section))?;
    let end = lines[head + 1..].iter().position(|line| section_of(line).is_some());
    Some((head, end.map_or(lines.len(), |after| head + 1 + after)))
}

fn section_of(line: &str) -> Option<&str> {
    line.trim_start_matches('\u{feff}').strip_prefix('[')?.split_once(']').map(|(name, _)| name)
}

/// Names are compared in lower case, as `az` does.
fn option_of(line: &str) -> Option<(String, &str)> {
    let is_comment = line.starts_with([' ', '\t', '#', ';', '[']);
    let (name, value) = line.split_once(['=', ':']).filter(|_| !is_comment)?;
    Some((name.trim().to_lowercase(), value.trim()))
}

fn joined(before: &[&str], line: &str, after: &[&str]) -> String {
    format!("{}{line}{}", ended(&before.concat()), after.concat())
}

/// The text with an end to its last line.
fn ended(text: &str) -> String {
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
    fn an_option_is_set_where_it_belongs_and_the_rest_stays() {
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
    fn what_was_set_is_taken_out() {
        let set = with_option(FILE, "cloud", "profile", "latest");
        assert_eq!(without_option(&set, "cloud", "profile"), FILE);
        assert_eq!(without_option("[cloud]\nname = corro\n\n[a]\nb = 1\n", "cloud", "name"), "[a]\nb = 1\n");
        assert_eq!(without_option(FILE, "none", "name"), FILE);
        assert_eq!(without_section("[a]\nb = 1\n[corro]\nc = 2\n\n[d]\n", "corro"), "[a]\nb = 1\n[d]\n");
        assert_eq!(without_section("[corro]\nc = 2\n", "corro"), "");
        assert_eq!(without_section(FILE, "corro"), FILE);
    }
}
