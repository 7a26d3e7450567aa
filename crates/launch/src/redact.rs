//! Redacts secrets in output: each literal occurrence is replaced by `***`, also if it is split over
//! two reads; all other bytes are unchanged.
//!
//! Secrets of fewer than [`MIN_SECRET_BYTES`] bytes are not redacted: they are usually common words or numbers, and a log in which
//! every `1` is replaced is unreadable and reveals the secret.

use std::fmt;
use std::sync::Arc;

/// Replaces a secret of any length.
pub const REPLACEMENT: &[u8] = b"***";
/// Shorter secrets are not redacted.
pub const MIN_SECRET_BYTES: usize = 8;

/// The secrets to redact. Clones share them.
#[derive(Clone, Default)]
pub struct Secrets {
    words: Option<Arc<SecretWords>>,
}

struct SecretWords {
    /// Longest first.
    words: Vec<Box<[u8]>>,
    /// Whether a word begins with this byte.
    begins: [bool; 256],
}

impl Secrets {
    /// Each line of a multi-line secret is a secret too, because tools print lines separately.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Secrets {
        let lines_of = |value: &'a str| value.split(['\n', '\r']).map(str::trim).chain([value, value.trim()]);
        let long_enough = |word: &&str| word.len() >= MIN_SECRET_BYTES;
        let words = values.into_iter().flat_map(lines_of).filter(long_enough);
        let mut words: Vec<Box<[u8]>> = words.map(|word| word.as_bytes().into()).collect();
        words.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        words.dedup();
        if words.is_empty() {
            return Secrets::default();
        }
        let mut begins = [false; 256];
        words.iter().for_each(|word| begins[usize::from(word[0])] = true);
        Secrets { words: Some(Arc::new(SecretWords { words, begins })) }
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_none()
    }

    /// Redacts a complete text.
    pub fn redact<'a>(&self, text: &'a str) -> std::borrow::Cow<'a, str> {
        let Some(mut redactor) = self.redactor() else { return text.into() };
        redactor.push(text.as_bytes());
        redactor.finish();
        match redactor.ready() == text.as_bytes() {
            true => text.into(),
            // Secrets are UTF-8, so the text between them is too.
            false => String::from_utf8_lossy(redactor.ready()).into_owned().into(),
        }
    }

    /// A redactor for a stream; `None` when there are no secrets.
    pub fn redactor(&self) -> Option<Redactor> {
        let words = self.words.clone()?;
        Some(Redactor { words, held: Vec::new(), covered: 0, ready: Vec::new() })
    }
}

/// Redactor of one stream. Holds back bytes that may be the beginning of a secret.
pub struct Redactor {
    words: Arc<SecretWords>,
    /// Bytes that are not decided yet.
    held: Vec<u8>,
    /// Number of following bytes that belong to a found secret.
    covered: usize,
    ready: Vec<u8>,
}

impl Redactor {
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        self.decide(false);
    }

    /// Ends the stream: bytes that were held back are no secret.
    pub fn finish(&mut self) {
        self.decide(true);
    }

    /// Redacted bytes that are not consumed yet.
    pub fn ready(&self) -> &[u8] {
        &self.ready
    }

    /// Consumes the first bytes of [`Redactor::ready`].
    pub fn consume(&mut self, n_bytes: usize) {
        self.ready.drain(..n_bytes);
    }

    /// Tests each byte as the first of a secret. Overlapping secrets count as one, so that no part of either remains.
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
            match self.words.match_at(&self.held[at..], ended) {
                Match::Undecided => break,
                Match::Word(length) => {
                    if self.covered == 0 {
                        self.ready.extend_from_slice(REPLACEMENT);
                    }
                    self.covered = self.covered.max(length);
                }
                Match::Nothing if self.covered == 0 => self.ready.push(self.held[at]),
                Match::Nothing => {}
            }
            self.covered = self.covered.saturating_sub(1);
            at += 1;
        }
        self.held.drain(..at);
    }
}

enum Match {
    Nothing,
    /// Length of the longest secret at this position.
    Word(usize),
    /// More bytes may complete a secret, or a longer one.
    Undecided,
}

impl SecretWords {
    fn match_at(&self, rest: &[u8], ended: bool) -> Match {
        if !self.begins[usize::from(rest[0])] {
            return Match::Nothing;
        }
        for word in &self.words {
            if rest.starts_with(word) {
                return Match::Word(word.len());
            }
            if !ended && word.starts_with(rest) {
                return Match::Undecided;
            }
        }
        Match::Nothing
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
            redactor.consume(redactor.ready().len());
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
    fn secrets_are_redacted_however_they_are_split() {
        check(&["hunter2-and-more"], "the password is hunter2-and-more.\n", "the password is ***.\n");
        check(&["hunter2-and-more"], "hunter2-and-less hunter2-and", "hunter2-and-less hunter2-and");
        check(&["aaaaaaaa"], "aaaaaaaaaaaaaaaab", "***b");
        check(&["abcdefgh", "abcdefghijkl"], "abcdefghijk abcdefghijkl", "***ijk ***");
        check(&["abcdefgh", "efghijkl"], "-abcdefghijkl-", "-***-");
        check(&["abcdefgh", "ijklmnop"], "abcdefghijklmnop", "******");
        check(&["pass wörd €"], "x pass wörd € y", "x *** y");
    }

    #[test]
    fn every_line_of_a_secret_is_redacted() {
        let key = "-----BEGIN KEY-----\r\nAAAABBBBCCCC\r\nshort\r\n";
        check(&[key], "> AAAABBBBCCCC\n> short\n", "> ***\n> short\n");
        check(&[key], &format!("[{key}]"), "[***]");
        check(&["  with blanks around  "], "(with blanks around)", "(***)");
    }

    #[test]
    fn short_secrets_are_not_redacted() {
        assert!(Secrets::new(["", "1", "SECRET", "1234567"]).is_empty());
        assert!(!Secrets::new(["12345678"]).is_empty());
        assert_eq!(Secrets::new(["1"]).redact("1 of 1"), "1 of 1");
        assert_eq!(format!("{:?}", Secrets::new(["a long secret"])), "1 secrets");
    }

    /// Reference implementation on the complete text.
    fn oracle(words: &[String], text: &[u8]) -> Vec<u8> {
        let mut shown = Vec::new();
        let mut covered = 0;
        for at in 0..text.len() {
            let here =
                words.iter().filter(|word| word.len() >= MIN_SECRET_BYTES && text[at..].starts_with(word.as_bytes()));
            if let Some(longest) = here.map(String::len).max() {
                if covered == 0 {
                    shown.extend_from_slice(REPLACEMENT);
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
        /// Secrets and text of few letters, so that secrets begin, break off, repeat and overlap often.
        #[test]
        fn no_byte_is_lost_and_no_secret_remains(
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
        fn text_without_secrets_is_unchanged(bytes in proptest::collection::vec(any::<u8>(), 0..500), cut in 0usize..500) {
            let secrets = Secrets::new(["a secret that chance does not make"]);
            let (one, two) = bytes.split_at(cut.min(bytes.len()));
            prop_assert_eq!(shown(&secrets, &[one, two]), bytes);
        }
    }
}
