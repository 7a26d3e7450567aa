//! Finds the numbers in a line, each with its name and unit. Does not interpret names. Times of day, versions, paths
//! and addresses are not numbers: a number must be delimited on both sides.

/// Separator between a name and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Separator {
    /// `name=1`
    Equals,
    /// `name: 1`
    Colon,
    /// `name 1`
    Space,
    /// `name [1` or `name #1`
    Bracket,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Number<'a> {
    pub value: f64,
    /// The second number of `12/390`.
    pub total: Option<f64>,
    /// Text directly after the number: `%`, `ms/step`. A rate may follow after one space.
    pub unit: &'a str,
    pub name: Option<(&'a str, Separator)>,
    /// Byte range of the number; `end` includes the unit.
    pub start: usize,
    pub end: usize,
}

const MAX_NAME_LEN: usize = 64;

/// All numbers of the line, in order.
pub fn scan_numbers(line: &str) -> impl Iterator<Item = Number<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < line.len() {
            match parse_at(line, at) {
                Some(number) => {
                    at = number.end;
                    return Some(number);
                }
                // Advance to the next position at which a number may start.
                None => at = next_start(line.as_bytes(), at),
            }
        }
        None
    })
}

fn next_start(bytes: &[u8], at: usize) -> usize {
    let mut next = at + 1;
    while next < bytes.len() && !is_opening(bytes[next - 1]) {
        next += 1;
    }
    next
}

/// Bytes that may precede a number.
fn is_opening(byte: u8) -> bool {
    matches!(
        byte,
        b' ' | b'\t' | b'=' | b':' | b'[' | b'(' | b'|' | b',' | b'#' | b'\'' | b'"' | b'{' | b'<' | b';' | b'~'
    ) || byte >= 0x80
}

/// Bytes that may follow a number.
fn is_closing(byte: Option<&u8>) -> bool {
    byte.is_none_or(|byte| matches!(byte, b' ' | b'\t' | b',' | b';' | b')' | b']' | b'}' | b'|' | b'\'' | b'"'))
}

fn parse_at(line: &str, start: usize) -> Option<Number<'_>> {
    let bytes = line.as_bytes();
    if start > 0 && !is_opening(bytes[start - 1]) {
        return None;
    }
    let (value, mut end) = parse_number(bytes, start)?;
    let mut total = None;
    if bytes.get(end) == Some(&b'/') {
        if let Some((second, after)) = parse_integer(bytes, end + 1) {
            (total, end) = (Some(second), after);
        } else if line[end + 1..].starts_with("Unknown") {
            end += 8;
        }
    }
    let unit_start = end;
    while bytes.get(end).is_some_and(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'%' | b'/')) {
        end += 1;
    }
    let mut unit = &line[unit_start..end];
    // A full stop or colon may end the sentence around a number: `loss: 0.5.`, `iter 10: …`.
    let ends_words = matches!(bytes.get(end), Some(b'.' | b':')) && is_closing(bytes.get(end + 1));
    if !is_closing(bytes.get(end)) && !ends_words {
        return None;
    }
    if unit.is_empty() && bytes.get(end) == Some(&b' ') {
        // `123.4 img/sec`
        let word = line[end + 1..].split(' ').next().unwrap_or_default().trim_end_matches([',', ')', ']']);
        if word.contains('/') && word.len() < 16 && crate::metric_names::parse_rate(word).is_some() {
            (unit, end) = (word, end + 1 + word.len());
        }
    }
    Some(Number { value, total, unit, name: name_before(line, start), start, end })
}

/// Parses `-1.5e-3`, `nan`, `inf`. Reads the prefix `1.2` of `1.2.3`; the caller rejects it by the byte that follows.
fn parse_number(bytes: &[u8], start: usize) -> Option<(f64, usize)> {
    let signed = start + usize::from(matches!(bytes.get(start), Some(b'-' | b'+')));
    let rest = &bytes[signed..];
    for (word, value) in [("nan", f64::NAN), ("inf", f64::INFINITY)] {
        if rest.len() >= 3 && rest[..3].eq_ignore_ascii_case(word.as_bytes()) {
            let value = if bytes[start] == b'-' { -value } else { value };
            return Some((value, signed + 3));
        }
    }
    let digits = |from: usize| from + bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut end = digits(signed);
    if end == signed {
        return None;
    }
    if bytes.get(end) == Some(&b'.') && digits(end + 1) > end + 1 {
        end = digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let exponent = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'-' | b'+')));
        let after = digits(exponent.min(bytes.len()));
        if after > exponent {
            end = after;
        }
    }
    // The range contains only ASCII.
    let text = std::str::from_utf8(&bytes[start..end]).ok()?;
    Some((text.parse().ok()?, end))
}

fn parse_integer(bytes: &[u8], start: usize) -> Option<(f64, usize)> {
    let len = bytes.get(start..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let text = std::str::from_utf8(&bytes[start..start + len]).ok()?;
    (len > 0).then(|| text.parse().ok().map(|value| (value, start + len)))?
}

/// The name before the number at `start`, with the separator.
fn name_before(line: &str, start: usize) -> Option<(&str, Separator)> {
    let bytes = line.as_bytes();
    let mut at = start;
    let mut separator = Separator::Space;
    let back_over = |at: &mut usize, set: &[u8]| {
        while *at > 0 && set.contains(&bytes[*at - 1]) {
            *at -= 1;
        }
    };
    // PyTorch prints `tensor(0.5, …)`.
    if line[..at].ends_with("tensor(") {
        at -= "tensor(".len();
    }
    if at > 0 && matches!(bytes[at - 1], b'\'' | b'"') {
        at -= 1;
    }
    back_over(&mut at, b" \t");
    if at > 0 && matches!(bytes[at - 1], b'[' | b'#') {
        (at, separator) = (at - 1, Separator::Bracket);
        back_over(&mut at, b" \t");
    }
    if at > 0 && matches!(bytes[at - 1], b'=' | b':') {
        separator = match (separator, bytes[at - 1]) {
            (Separator::Bracket, _) => Separator::Bracket,
            (_, b'=') => Separator::Equals,
            _ => Separator::Colon,
        };
        at -= 1;
        back_over(&mut at, b" \t");
    }
    if at > 0 && matches!(bytes[at - 1], b'\'' | b'"') {
        at -= 1;
    }
    let end = at;
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'/' | b'.' | b'@' | b'-');
    while at > 0 && end - at < MAX_NAME_LEN && is_name_byte(bytes[at - 1]) {
        at -= 1;
    }
    let whole = at == 0 || is_opening(bytes[at - 1]) || bytes[at - 1] == b'>';
    let name = &line[at..end];
    (whole && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')).then_some((name, separator))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Renders each number as `name separator value/total unit`.
    fn check(line: &str, expected: &[&str]) {
        let one = |n: Number| {
            let name = n.name.map_or_else(|| "-".to_owned(), |(name, separator)| format!("{name} {separator:?}"));
            let of = n.total.map_or_else(String::new, |of| format!("/{of}"));
            format!("{name} {}{of} {}", n.value, n.unit).trim_end().to_owned()
        };
        assert_eq!(scan_numbers(line).map(one).collect::<Vec<_>>(), expected, "{line}");
    }

    #[test]
    fn numbers_have_names_and_units() {
        check("loss=0.5, acc: 97.5% lr 1e-04", &["loss Equals 0.5", "acc Colon 97.5 %", "lr Space 0.0001"]);
        check("12/390 [==>..] - ETA: 3s - loss: 1.25", &["- 12/390", "ETA Colon 3 s", "loss Colon 1.25"]);
        check("Epoch: [0][  10/5005]", &["Epoch Bracket 0", "- 10/5005"]);
        check("Epoch [1/10], Step [100/600]", &["Epoch Bracket 1/10", "Step Bracket 100/600"]);
        check("3s 12ms/step", &["- 3 s", "- 12 ms/step"]);
        check("Iter #0: 123.4 img/sec per GPU", &["Iter Bracket 0", "- 123.4 img/sec"]);
        check("loss: nan, x: -inf", &["loss Colon NaN", "x Colon -inf"]);
        check("{'loss': '0.5'} loss: tensor(0.25, grad_fn=<N>)", &["loss Colon 0.5", "loss Colon 0.25"]);
        check("step 10: loss 4.5.", &["step Space 10", "loss Space 4.5"]);
    }

    #[test]
    fn times_versions_paths_and_addresses_have_no_names() {
        for line in [
            "18:20:11.5",
            "v1.2.3",
            "version=1.2.3",
            "/tmp/loss=0.5/x",
            "epoch=3-loss=0.25.ckpt",
            "10.0.0.1:8080",
            "2026-11-16T07:00",
            "0x1f",
            "11/16/2026 07:00",
        ] {
            assert!(scan_numbers(line).all(|number| number.name.is_none() && number.total.is_none()), "{line}");
        }
    }
}
