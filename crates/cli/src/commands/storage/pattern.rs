//! Patterns of the batch commands with the semantics of Python's `fnmatch`: `*` matches any text (also slashes), `?` any character, `[ab]`, `[a-z]` and
//! `[!ab]` one of a set. Pure.

/// Whether the pattern matches the whole text.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Position of the last star and the length of its match. Backtracking to earlier stars is never needed.
    let mut star = None;
    loop {
        if p < pattern.len() && pattern[p] == '*' {
            star = Some((p, t));
            p += 1;
        } else if t < text.len()
            && let Some(next) = step(&pattern, p, text[t])
        {
            (p, t) = (next, t + 1);
        } else if t == text.len() && p == pattern.len() {
            return true;
        } else if let Some((at, taken)) = star.filter(|(_, taken)| *taken < text.len()) {
            star = Some((at, taken + 1));
            (p, t) = (at + 1, taken + 1);
        } else {
            return false;
        }
    }
}

/// The position in the pattern after matching `c`; `None` if it does not match.
fn step(pattern: &[char], at: usize, c: char) -> Option<usize> {
    match pattern.get(at)? {
        '?' => Some(at + 1),
        '[' => match set_end(pattern, at) {
            None => (c == '[').then_some(at + 1), // never closed: a bracket is a bracket
            Some(end) => in_set(&pattern[at + 1..end], c).then_some(end + 1),
        },
        literal => (*literal == c).then_some(at + 1),
    }
}

/// Position of the bracket that closes the set; a leading `]` belongs to the set.
fn set_end(pattern: &[char], at: usize) -> Option<usize> {
    let mut from = at + 1;
    if pattern.get(from) == Some(&'!') {
        from += 1;
    }
    if pattern.get(from) == Some(&']') {
        from += 1;
    }
    (from..pattern.len()).find(|idx| pattern[*idx] == ']')
}

fn in_set(set: &[char], c: char) -> bool {
    let (negated, set) = match set {
        ['!', rest @ ..] => (true, rest),
        _ => (false, set),
    };
    let mut found = false;
    let mut rest = set;
    loop {
        rest = match rest {
            [low, '-', high, more @ ..] => {
                found |= (*low..=*high).contains(&c);
                more
            }
            [one, more @ ..] => {
                found |= *one == c;
                more
            }
            [] => return found != negated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_python_matches() {
        for (pattern, text, expected) in [
            ("*", "a/b.txt", true),
            ("*.txt", "a/b.txt", true),
            ("*.txt", "a.txt.gz", false),
            ("a/*", "a/b/c", true),
            ("a/*/c", "a/c", false),
            ("?.py", "a.py", true),
            ("?.py", "ab.py", false),
            ("[ab]*", "bcd", true),
            ("[!ab]*", "bcd", false),
            ("[a-c]x", "cx", true),
            ("[]]", "]", true),
            ("[!]]", "]", false),
            ("[a", "[a", true),
            ("[a-]", "-", true),
            ("", "", true),
            ("", "a", false),
            ("**a*", "xxa", true),
            ("A*", "abc", false),
            ("é?", "éß", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        assert!(!matches(&"*a".repeat(40), &"a".repeat(2000).replace("aaaa", "b")));
        assert!(!matches(&format!("{}b", "*a".repeat(30)), &"a".repeat(3000)));
    }

    /// Reference implementation by exhaustive search.
    fn naive(pattern: &[char], text: &[char]) -> bool {
        match pattern {
            [] => text.is_empty(),
            ['*', rest @ ..] => (0..=text.len()).any(|n| naive(rest, &text[n..])),
            _ => text
                .first()
                .is_some_and(|c| step(pattern, 0, *c).is_some_and(|next| naive(&pattern[next..], &text[1..]))),
        }
    }

    #[test]
    fn every_short_pattern_agrees_with_the_plain_reading() {
        let words = |letters: &[char], length: u32| -> Vec<String> {
            let n = letters.len();
            (0..=length)
                .flat_map(|len| {
                    (0..n.pow(len)).map(move |mut code| {
                        (0..len)
                            .map(|_| {
                                let c = letters[code % n];
                                code /= n;
                                c
                            })
                            .collect()
                    })
                })
                .collect()
        };
        for pattern in words(&['a', '*', '?', '[', ']', '!', '-'], 4) {
            let chars: Vec<char> = pattern.chars().collect();
            for text in words(&['a', 'b', '['], 3) {
                let expected = naive(&chars, &text.chars().collect::<Vec<_>>());
                assert_eq!(matches(&pattern, &text), expected, "{pattern:?} {text:?}");
            }
        }
    }
}
