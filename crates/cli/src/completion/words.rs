//! The command line as shells pass it to a completion. Pure.

use std::ffi::OsString;

/// A shell with a completion script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// A command line with a cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletionRequest {
    pub shell: Shell,
    /// All words, beginning with the name of the program.
    pub words: Vec<OsString>,
    /// Index of the word at the cursor.
    pub index: usize,
    /// Beginning of the word at the cursor that the shell keeps: candidates are printed without it.
    pub prefix: String,
}

impl CompletionRequest {
    /// Reads the shell, the index of the word at the cursor, and the words up to it and after it.
    pub fn parse(arguments: &[OsString]) -> Option<CompletionRequest> {
        let [shell, index, words @ ..] = arguments else { return None };
        let shell = match shell.to_str()? {
            "bash" => Shell::Bash,
            "zsh" => Shell::Zsh,
            "fish" => Shell::Fish,
            _ => return None,
        };
        let index: usize = index.to_str()?.parse().ok()?;
        let mut words = words.to_vec();
        if words.is_empty() || index > words.len() {
            return None;
        }
        // Shells leave out the empty word after a space.
        words.truncate(index + 1);
        words.resize(index + 1, OsString::new());
        let request = CompletionRequest { shell, words, index, prefix: String::new() };
        Some(if shell == Shell::Bash { request.joined() } else { request })
    }

    pub fn current_word(&self) -> &str {
        self.words.last().and_then(|word| word.to_str()).unwrap_or_default()
    }

    /// Joins the words that bash splits at `=` and `:`, which are in its COMP_WORDBREAKS.
    fn joined(self) -> CompletionRequest {
        let is_break = |word: &OsString| word == "=" || word == ":";
        let mut words: Vec<OsString> = Vec::new();
        let mut prefix = String::new();
        for (idx, word) in self.words.iter().enumerate() {
            let follows_break = idx > 1 && is_break(&self.words[idx - 1]);
            let joins = idx > 1 && (is_break(word) || follows_break && words.len() > 1);
            match words.last_mut().filter(|_| joins) {
                Some(last) => {
                    prefix = last.to_string_lossy().into_owned();
                    last.push(word);
                    if is_break(word) {
                        // With the cursor behind the break, bash completes an empty word.
                        prefix = last.to_string_lossy().into_owned();
                    }
                }
                None => {
                    words.push(word.clone());
                    prefix.clear();
                }
            }
        }
        CompletionRequest { index: words.len() - 1, words, prefix, ..self }
    }
}

/// A word as bash has to insert it.
pub fn escape_for_bash(word: &str) -> String {
    let mut escaped = String::with_capacity(word.len());
    for c in word.chars() {
        let is_plain = c.is_alphanumeric() || "-_./=:@%+,~".contains(c);
        if !is_plain {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// The value of an option in a command line, by its long and short name.
pub fn option_value<'a>(words: &'a [OsString], long: &str, short: &str) -> Option<&'a str> {
    let mut words = words.iter().filter_map(|word| word.to_str());
    while let Some(word) = words.next() {
        if word == "--" {
            return None;
        }
        if word == long || !short.is_empty() && word == short {
            return words.next().filter(|value| !value.is_empty());
        }
        if let Some(value) = word.strip_prefix(long).and_then(|rest| rest.strip_prefix('=')) {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &[&str]) -> Option<(Vec<String>, String)> {
        let arguments: Vec<OsString> = line.iter().map(OsString::from).collect();
        let request = CompletionRequest::parse(&arguments)?;
        assert_eq!(request.index, request.words.len() - 1);
        let words = request.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        Some((words, request.prefix))
    }

    fn check(line: &[&str], words: &[&str], prefix: &str) {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        assert_eq!(request(line), Some((words, prefix.to_owned())), "{line:?}");
    }

    #[test]
    fn the_word_at_the_cursor_is_the_last() {
        check(&["zsh", "2", "corro", "job", "l"], &["corro", "job", "l"], "");
        check(&["fish", "2", "corro", "job"], &["corro", "job", ""], "");
        check(&["zsh", "1", "corro", "jo", "list"], &["corro", "jo"], "");
        for wrong in [&["csh", "1", "corro"][..], &["bash", "x", "corro"], &["bash", "9", "corro"], &["bash", "0"], &[]]
        {
            assert_eq!(request(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn what_bash_has_split_is_joined() {
        check(&["bash", "3", "corro", "--output", "=", "t"], &["corro", "--output=t"], "--output=");
        check(&["bash", "2", "corro", "--output", "="], &["corro", "--output="], "--output=");
        check(&["bash", "4", "corro", "ls", "data", ":", "ci"], &["corro", "ls", "data:ci"], "data:");
        check(&["bash", "3", "corro", "ls", "data", ":"], &["corro", "ls", "data:"], "data:");
        check(&["bash", "5", "corro", "cp", "a", ":", "b", "c"], &["corro", "cp", "a:b", "c"], "");
    }

    #[test]
    fn special_characters_are_escaped_for_bash() {
        assert_eq!(escape_for_bash("train-1"), "train-1");
        assert_eq!(escape_for_bash("a b$(c)"), r"a\ b\$\(c\)");
    }

    #[test]
    fn options_are_found_in_all_spellings() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let value = |line: &str| option_value(&words(line), "--workspace", "-w").map(str::to_owned);
        assert_eq!(value("corro job -w dev list"), Some("dev".to_owned()));
        assert_eq!(value("corro job --workspace dev"), Some("dev".to_owned()));
        assert_eq!(value("corro job --workspace=dev"), Some("dev".to_owned()));
        assert_eq!(value("corro job exec -- -w dev"), None);
        assert_eq!(value("corro job -w"), None);
    }
}
