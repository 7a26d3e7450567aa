//! Keeps secrets out of what a process says: where one appears literally, `***` stands in its place, also when it comes in
//! two reads; every other byte passes as it came. `reader` enters here with output, the agent with lines of its own. Never
//! looks at a stream of a process that has no secrets.
//!
//! A secret of fewer than [`SHORTEST`] bytes stays: it is a common word or number more often than not, and a log in which
//! every `1` is gone says less to its reader and more about the secret.

use std::fmt;
use std::sync::Arc;

/// In place of a secret, however long it is.
pub const SHOWN_INSTEAD: &[u8] = b"***";
/// Secrets of fewer bytes are not looked for.
pub const SHORTEST: usize = 8;

/// The words that must not be shown. Clones share them.
#[derive(Clone, Default)]
pub struct Secrets {
    words: Option<Arc<Words>>,
}

struct Words {
    /// Longest first.
    words: Vec<Box<[u8]>>,
    /// Whether a word begins with this byte.
    begins: [bool; 256],
}

impl Secrets {
    /// Of a secret of several lines each line is one too: tools print them one by one.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Secrets {
        let lines_of = |value: &'a str| value.split(['\n', '\r']).map(str::trim).chain([value, value.trim()]);
        let long_enough = |word: &&str| word.len() >= SHORTEST;
        let words = values.into_iter().flat_map(lines_of).filter(long_enough);
        let mut words: Vec<Box<[u8]>> = words.map(|word| word.as_bytes().into()).collect();
        words.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        words.dedup();
        if words.is_empty() {
            return Secrets::default();
        }
        let mut begins = [false; 256];
        words.iter().for_each(|word| begins[usize::from(word[0])] = true);
        Secrets { words: Some(Arc::new(Words { words, begins })) }
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_none()
    }

    /// A text that is whole.
    pub fn redact<'a>(&self, text: &'a str) -> std::borrow::Cow<'a, str> {
        let Some(mut redactor) = self.redactor() else { return text.into() };
        redactor.push(text.as_bytes());
        redactor.finish();
        match redactor.ready() == text.as_bytes() {
            true => text.into(),
            // Words are text, and what is left between them is too.
            false => String::from_utf8_lossy(redactor.ready()).into_owned().into(),
        }
    }

    /// For a stream; `None` when there is nothing to look for.
    pub fn redactor(&self) -> Option<Redactor> {
        let words = self.words.clone()?;
        Some(Redactor { words, held: Vec::new(), covered: 0, ready: Vec::new() })
    }
}

/// One stream. Whatever could still become a secret is held back.
pub struct Redactor {
    words: Arc<Words>,
    /// Not yet decided.
    held: Vec<u8>,
    /// So many of the bytes that come next belong to a secret that was found.
    covered: usize,
    ready: Vec<u8>,
}

impl Redactor {
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        self.decide(false);
    }

    /// The stream has ended: what was held back is no secret.
    pub fn finish(&mut self) {
        self.decide(true);
    }

    /// What can be shown and was not taken yet.
    pub fn ready(&self) -> &[u8] {
        &self.ready
    }

    /// The first bytes of it have been shown.
    pub fn take(&mut self, n_bytes: usize) {
        self.ready.drain(..n_bytes);
    }

    /// Looks at each byte as the first of a word. Secrets that overlap are one: no end of either is shown.
    fn decide(&mut self, ended: bool) {
        let mut at = 0;
        while at < self.held.len() {
            if self.covered == 0 {
                let rest = &self.held[at..];
                let plain = rest.iter().position(|byte| self.words.begins[usize::from(*byte)]).unwrap_or(rest.len());
                self.ready.extend_from_slice(&rest[..plain]);
                at += plain;
                if at == self.held.len() {
                    break;
                }
            }
            match self.words.at(&self.held[at..], ended) {
                Found::Undecided => break,
                Found::Word(length) => {
                    if self.covered == 0 {
                        self.ready.extend_from_slice(SHOWN_INSTEAD);
                    }
                    self.covered = self.covered.max(length);
                }
                Found::Nothing if self.covered == 0 => self.ready.push(self.held[at]),
                Found::Nothing => {}
            }
            self.covered = self.covered.saturating_sub(1);
            at += 1;
        }
        self.held.drain(..at);
    }
}

enum Found {
    Nothing,
    /// The longest that stands there.
    Word(usize),
    /// More bytes may make a word, or a longer one.
    Undecided,
}

impl Words {
    fn at(&self, rest: &[u8], ended: bool) -> Found {
        if !self.begins[usize::from(rest[0])] {
            return Found::Nothing;
        }
        for word in &self.words {
            if rest.starts_with(word) {
                return Found::Word(word.len());
            }
            if !ended && word.starts_with(rest) {
                return Found::Undecided;
            }
        }
        Found::Nothing
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.words.as_ref().map_or(0, |words| words.words.len()))
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(secrets: &Secrets, pieces: &[&[u8]]) -> Vec<u8> {
        let mut redactor = secrets.redactor().expect("there are secrets");
        let mut shown = Vec::new();
        for piece in pieces {
            redactor.push(piece);
            shown.extend_from_slice(redactor.ready());
            redactor.take(redactor.ready().len());
        }
        redactor.finish();
        shown.extend_from_slice(redactor.ready());
        shown
    }

    fn check(secrets: &[&str], text: &str, expected: &str) {
        let secrets = Secrets::new(secrets.iter().copied());
        assert_eq!(secrets.redact(text), expected);
        for at in 0..=text.len() {
            let (one, two) = text.as_bytes().split_at(at);
            assert_eq!(shown(&secrets, &[one, two]), expected.as_bytes(), "{text:?} cut at {at}");
        }
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(shown(&secrets, &bytes), expected.as_bytes(), "{text:?} byte by byte");
    }

    #[test]
    fn secrets_are_not_shown_however_they_come() {
        check(&["hunter2-and-more"], "the password is hunter2-and-more.\n", "the password is ***.\n");
        check(&["hunter2-and-more"], "hunter2-and-less hunter2-and", "hunter2-and-less hunter2-and");
        check(&["aaaaaaaa"], "aaaaaaaaaaaaaaaab", "***b");
        check(&["abcdefgh", "abcdefghijkl"], "abcdefghijk abcdefghijkl", "***ijk ***");
        check(&["abcdefgh", "efghijkl"], "-abcdefghijkl-", "-***-");
        check(&["abcdefgh", "ijklmnop"], "abcdefghijklmnop", "******");
        check(&["pass wörd €"], "x pass wörd € y", "x *** y");
    }

    #[test]
    fn every_line_of_a_secret_is_one() {
        let key = "-----BEGIN KEY-----\r\nAAAABBBBCCCC\r\nshort\r\n";
        check(&[key], "> AAAABBBBCCCC\n> short\n", "> ***\n> short\n");
        check(&[key], &format!("[{key}]"), "[***]");
        check(&["  with blanks around  "], "(with blanks around)", "(***)");
    }

    #[test]
    fn short_ones_stay() {
        assert!(Secrets::new(["", "1", "SECRET", "1234567"]).is_empty());
        assert!(!Secrets::new(["12345678"]).is_empty());
        assert_eq!(Secrets::new(["1"]).redact("1 of 1"), "1 of 1");
        assert_eq!(format!("{:?}", Secrets::new(["a long secret"])), "1 secrets");
    }

    /// What a reader who has everything at once would do, byte by byte.
    fn oracle(words: &[String], text: &[u8]) -> Vec<u8> {
        let mut shown = Vec::new();
        let mut covered = 0;
        for at in 0..text.len() {
            let here = words.iter().filter(|word| word.len() >= SHORTEST && text[at..].starts_with(word.as_bytes()));
            if let Some(longest) = here.map(String::len).max() {
                if covered == 0 {
                    shown.extend_from_slice(SHOWN_INSTEAD);
                }
                covered = covered.max(longest);
            } else if covered == 0 {
                shown.push(text[at]);
            }
            covered = covered.saturating_sub(1);
        }
        shown
    }

    proptest! {
        /// Words and text of few letters, so that words begin, break off, repeat and overlap all the time.
        #[test]
        fn no_byte_is_lost_and_none_is_shown(
            words in proptest::collection::vec("[ab]{6,12}", 1..5),
            text in "[abc]{0,200}",
            cuts in proptest::collection::vec(0usize..200, 0..20),
        ) {
            let secrets = Secrets::new(words.iter().map(String::as_str));
            prop_assume!(!secrets.is_empty());
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.sort_unstable();
            let bounds: Vec<usize> = [0].into_iter().chain(cuts).chain([text.len()]).collect();
            let pieces: Vec<&[u8]> = bounds.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
            prop_assert_eq!(shown(&secrets, &pieces), oracle(&words, text.as_bytes()));
        }

        #[test]
        fn what_holds_no_secret_passes_byte_for_byte(bytes in proptest::collection::vec(any::<u8>(), 0..500), cut in 0usize..500) {
            let secrets = Secrets::new(["a secret that chance does not make"]);
            let (one, two) = bytes.split_at(cut.min(bytes.len()));
            prop_assert_eq!(shown(&secrets, &[one, two]), bytes);
        }
    }
}
