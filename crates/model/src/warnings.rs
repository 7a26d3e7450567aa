//! Warnings in the response header `Warning: 299 corro "text"`: the request succeeded, with a remark for the caller.
//! Azure clients ignore them.

pub const HEADER: &str = "warning";

/// Maximum length of a warning; longer ones are truncated.
const MAX_CHARS: usize = 1000;

/// Encodes a warning as the header's value.
pub fn encode(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    for letter in text.chars().take(MAX_CHARS) {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => quoted.push(' '),
            letter => quoted.push(letter),
        }
    }
    format!("299 corro \"{quoted}\"")
}

/// Text of a header's value; `None` when it is no warning of a Corro server.
pub fn decode(value: &str) -> Option<String> {
    let quoted = value.trim().strip_prefix("299 corro \"")?.strip_suffix('"')?;
    let mut letters = quoted.chars();
    let mut text = String::with_capacity(quoted.len());
    while let Some(letter) = letters.next() {
        text.push(if letter == '\\' { letters.next()? } else { letter });
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        for text in ["", "the job \"a\\b\" runs", "größer", "299 corro \"x\""] {
            assert_eq!(decode(&encode(text)).as_deref(), Some(text));
        }
        assert_eq!(decode(&encode("two\r\nlines")).as_deref(), Some("two  lines"));
        for foreign in
            ["110 anderson/1.3.37 \"Response is stale\"", "299 - \"old\"", "299 corro x", "299 corro \"x\\\""]
        {
            assert_eq!(decode(foreign), None, "{foreign}");
        }
    }
}
