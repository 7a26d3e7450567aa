//! Expands `$NAME` and `${NAME}` in paths and values like a shell inside double quotes. No shell is started and nothing
//! else is special, so a value cannot run a command. Pure.

use std::collections::BTreeMap;

/// Treatment of unknown names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownName {
    /// As in a shell: replaced by nothing.
    Remove,
    /// Left as it is, for secrets: a password may contain a dollar sign.
    Keep,
}

/// Expands all references in `text`.
pub fn expand(text: &str, known: &BTreeMap<String, String>, unknown: UnknownName) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        let reference = &rest[at..];
        match parse(reference) {
            Some((name, length)) => {
                match (known.get(name), unknown) {
                    (Some(value), _) => expanded.push_str(value),
                    (None, UnknownName::Remove) => {}
                    (None, UnknownName::Keep) => expanded.push_str(&reference[..length]),
                }
                rest = &reference[length..];
            }
            None => {
                expanded.push('$');
                rest = &reference[1..];
            }
        }
    }
    expanded.push_str(rest);
    expanded
}

/// The name at the start of `reference`, and the length of the whole reference.
fn parse(reference: &str) -> Option<(&str, usize)> {
    let after = reference.strip_prefix('$')?;
    match after.strip_prefix('{') {
        Some(braced) => {
            let name = &braced[..braced.find('}')?];
            (name_length(name) == name.len() && !name.is_empty()).then_some((name, name.len() + 3))
        }
        None => match name_length(after) {
            0 => None,
            length => Some((&after[..length], length + 1)),
        },
    }
}

fn name_length(text: &str) -> usize {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return 0;
    }
    text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_references_are_expanded() {
        let known = BTreeMap::from([("A".to_owned(), "x".to_owned()), ("A_B".to_owned(), "y $A".to_owned())]);
        for (text, vanishing, staying) in [
            ("", "", ""),
            ("$A/b", "x/b", "x/b"),
            ("${A}b$A_B", "xby $A", "xby $A"),
            ("$A$A", "xx", "xx"),
            ("é$A-", "éx-", "éx-"),
            ("a$Q/b${Q}c", "a/bc", "a$Q/b${Q}c"),
            ("pa$$word$", "pa$$", "pa$$word$"),
            ("$$A", "$x", "$x"),
            ("$1 $(id) `id` ${A", "$1 $(id) `id` ${A", "$1 $(id) `id` ${A"),
            ("${} ${A-b}", "${} ${A-b}", "${} ${A-b}"),
        ] {
            assert_eq!(expand(text, &known, UnknownName::Remove), vanishing, "{text}");
            assert_eq!(expand(text, &known, UnknownName::Keep), staying, "{text}");
        }
    }
}
