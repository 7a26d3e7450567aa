//! Pieces of messages that rules quote: paths, names in quotes, programs that a shell did not find. Pure.

/// Longer texts are cut where they are quoted.
const MAX_QUOTED_CHARS: usize = 200;

/// A text of a program for a sentence: bounded, on one line.
pub fn quotable(text: &str) -> String {
    let text: String = text.chars().take(MAX_QUOTED_CHARS + 1).collect();
    match text.char_indices().nth(MAX_QUOTED_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Text between the quotes at the beginning: `'x'`, `"x"`, `‘x’`, `` `x' ``.
pub fn quoted(text: &str) -> Option<&str> {
    let begin = text.chars().next()?;
    let end = match begin {
        '\'' | '`' => '\'',
        '"' => '"',
        '‘' => '’',
        _ => return None,
    };
    let rest = &text[begin.len_utf8()..];
    rest.find(end).map(|at| &rest[..at]).filter(|inside| !inside.is_empty())
}

/// Program that a shell, `env`, or Corro did not find, as the line names it.
pub fn missing_program(line: &str) -> Option<&str> {
    let line = line.trim_end();
    let of_corro = || line.strip_suffix(": no such program")?.split_once("cannot start ").map(|(_, program)| program);
    if let Some(program) = of_corro() {
        return Some(program);
    }
    let no_such_file = line.strip_suffix(": No such file or directory");
    if line.starts_with("env: ") || line.contains("/env: ") {
        let (_, program) = no_such_file?.rsplit_once("env: ")?;
        return Some(quoted(program).unwrap_or(program));
    }
    let of_shell = |before: &&str| is_shell(before);
    let before = line.strip_suffix(": command not found");
    let before = before.or_else(|| line.strip_suffix(": not found").filter(of_shell));
    if let Some(before) = before {
        return Some(before.rsplit(": ").next().unwrap_or(before)).filter(|program| is_program(program));
    }
    // bash about a path. Other programs end their messages about files in the same way.
    let before = no_such_file.filter(of_shell)?;
    let (shell, program) = before.rsplit_once(": ")?;
    // Not `bash: line 1: cd: /x`.
    let is_own = shell
        .rsplit(": ")
        .next()
        .is_some_and(|last| is_line_number(last) || last.rsplit('/').next().is_some_and(is_shell_name));
    Some(program).filter(|program| is_own && program.contains('/') && is_program(program))
}

/// Whether a line says that `program` was not found.
pub fn is_program_missing(line: &str, program: &str) -> bool {
    missing_program(line) == Some(program)
}

/// Whether a message begins as those of a shell do: `bash: line 1: `, `/bin/sh: 1: `, `run.sh: line 3: `.
pub fn is_shell(line: &str) -> bool {
    let mut parts = line.split(": ");
    let name = parts.next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
    is_shell_name(name) || (parts.next().is_some_and(is_line_number) && parts.next().is_some())
}

fn is_shell_name(name: &str) -> bool {
    matches!(name, "sh" | "bash" | "dash")
}

/// `line 3` of bash, `3` of dash.
fn is_line_number(part: &str) -> bool {
    let number = part.strip_prefix("line ").unwrap_or(part);
    !number.is_empty() && number.chars().all(|c| c.is_ascii_digit())
}

fn is_program(text: &str) -> bool {
    !text.is_empty() && !text.contains(char::is_whitespace) && !text.starts_with("http")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_are_named() {
        for (line, expected) in [
            ("/bin/sh: 1: python: not found", Some("python")),
            ("sh: python3: not found", Some("python3")),
            ("bash: line 1: foo: command not found", Some("foo")),
            ("run.sh: line 3: nvidia-smi: command not found", Some("nvidia-smi")),
            ("bash: line 1: /opt/none/python: No such file or directory", Some("/opt/none/python")),
            ("/bin/bash: ./run.sh: No such file or directory", Some("./run.sh")),
            ("env: ‘python’: No such file or directory", Some("python")),
            ("/usr/bin/env: 'python': No such file or directory", Some("python")),
            ("corro: cannot start python: no such program", Some("python")),
            ("bash: line 1: cd: /x/y: No such file or directory", None),
            ("cat: data.csv: No such file or directory", None),
            ("ls: cannot access '/x/y': No such file or directory", None),
            ("ERROR: library foo: not found in the cache file: not found", None),
            ("python: can't open file '/x/a.py': [Errno 2] No such file or directory", None),
        ] {
            assert_eq!(missing_program(line), expected, "{line}");
        }
    }

    #[test]
    fn quotes_are_removed_and_long_texts_cut() {
        for (text, expected) in [
            ("'a b' c", Some("a b")),
            ("\"a\"", Some("a")),
            ("‘a’", Some("a")),
            ("`a'", Some("a")),
            ("a", None),
            ("''", None),
        ] {
            assert_eq!(quoted(text), expected, "{text}");
        }
        assert_eq!(quotable("abc"), "abc");
        assert_eq!(quotable(&"é".repeat(300)), format!("{}…", "é".repeat(200)));
    }
}
