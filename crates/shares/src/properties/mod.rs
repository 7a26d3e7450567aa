//! Properties of a file, directory or share: names and values such as `content-type` and `x-ms-meta-owner`. Here they
//! are text that fits into a header; the file service knows their meaning.
//!
//! `property_store` stores them, `property_ops` reads and changes those of entries by path, `permissions` has those of
//! accounts and the security descriptors of shares.

pub(crate) mod permissions;
pub(crate) mod property_ops;
pub(crate) mod property_store;

use std::{collections::BTreeMap, io::Write};

/// Maximum bytes of the properties of one entry, names and values together.
pub const MAX_PROPERTIES: usize = 16 << 10;

/// Lower-case names with their values, in byte order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties(BTreeMap<String, String>);

impl Properties {
    /// False, and nothing is set, if the pair cannot be stored unambiguously or sent as a header.
    #[must_use]
    pub fn set(&mut self, name: &str, value: &str) -> bool {
        let fits = is_name(name) && is_value(value);
        if fits {
            self.0.insert(name.to_owned(), value.to_owned());
        }
        fits
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.0.retain(|name, _| keep(name));
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of names and values together.
    pub fn size(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// One `name: value` per line, readable with `getfattr`.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for (name, value) in &self.0 {
            writeln!(text, "{name}: {value}").expect("memory takes everything");
        }
        text
    }

    /// Skips invalid lines: a job can write any bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let mut properties = Properties::default();
        for line in bytes.split(|byte| *byte == b'\n') {
            let line = std::str::from_utf8(line).unwrap_or_default();
            if let Some((name, value)) = line.split_once(": ") {
                let _ = properties.set(name, value);
            }
        }
        properties
    }
}

fn is_name(name: &str) -> bool {
    let in_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
    !name.is_empty() && name.bytes().all(in_name)
}

fn is_value(value: &str) -> bool {
    value.bytes().all(|b| (b' '..=b'~').contains(&b)) && value.trim() == value
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn properties_that_cannot_be_headers_are_rejected() {
        let mut properties = Properties::default();
        for (name, value) in [("", "v"), ("A", "v"), ("a b", "v"), ("a:", "v"), ("a", "x\ny"), ("a", "é"), ("a", " v")]
        {
            assert!(!properties.set(name, value), "{name:?} {value:?}");
        }
        assert!(properties.is_empty());
        assert!(properties.set("x-ms-meta-a_b", "c: d") && properties.set("empty", ""));
        assert_eq!(properties.to_bytes(), b"empty: \nx-ms-meta-a_b: c: d\n");
        assert_eq!(properties.size(), 5 + 13 + 4);
    }

    proptest! {
        #[test]
        fn properties_round_trip(pairs in proptest::collection::btree_map("[a-z0-9_-]{1,12}", "([!-~]([ -~]{0,12}[!-~])?)?", 0..8)) {
            let properties = Properties(pairs);
            prop_assert_eq!(Properties::from_bytes(&properties.to_bytes()), properties);
        }

        #[test]
        fn any_bytes_can_be_parsed(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let read = Properties::from_bytes(&bytes);
            prop_assert_eq!(Properties::from_bytes(&read.to_bytes()), read);
        }
    }
}
