//! Reading a corpus, and mutations of its inputs that are the same in every run with the same seed. Shared by the
//! coverage-guided driver and the ordinary test.

use std::path::Path;

/// Tokens that parsers recognise.
#[rustfmt::skip]
const TOKENS: &[&[u8]] = &[
    b"..", b"/", b"%2e", b"%2F", b"%00", b"\\", b"//", b"\0", "é".as_bytes(), "\u{202e}".as_bytes(), b"bytes=", b"0-", b"-1", b"18446744073709551616",
    b",", b"SharedKey acc:", b"SharedKeyLite acc:", b"Bearer ", b"node:", b":", b"sig=", b"&se=", b"&sp=r", b"&sr=f", b"&sr=b", b"spr=https", b"sip=", b"&si=",
    b"x-ms-range: ", b"range: ", b"if-match: *", b"restype=directory", b"comp=list", b"sharesnapshot=", b"prevsharesnapshot=",
    b"{", b"}", b"[", b"]", b"\"", b"null", b"true", b"1e999", b"-0", b"\\ud800", b"\"properties\":", b"\"nodeCount\":", b"\n", b"\r\n", b"\r\n\r\n",
    b"resourceGroups", b"workspaces", b"providers", b"Microsoft.BatchAI", b"subscriptions",
    b"<", b"</", b"/>", b"<!--", b"<![CDATA[", b"<?xml ", b"<!DOCTYPE", b"&amp;", b"&#x10ffff;", b"&lt;", b"<SignedIdentifiers>", b"<Block>", b"<Latest>",
    b"\x00\x00\x00\x00", b"\x00\x00\x00\x01", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\x80\x20\x00\x00", b"@R", b"@F",
    b"corro\r\n", b"corro\x00\x01", b"HTTP/1.1 200 OK\r\n", b"content-length: ", b"HOROVOD_", b"loss: ", b"epoch ",
];

/// SplitMix64: deterministic on every platform.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// The files of a directory in the order of their names; empty if the directory is missing.
pub fn read_corpus(directory: &Path) -> Vec<Vec<u8>> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    paths.iter().filter(|path| path.is_file()).map(|path| std::fs::read(path).expect("readable")).collect()
}

/// One to eight small changes to an input of the corpus.
pub fn mutate(corpus: &[Vec<u8>], random: &mut Random, max_len: usize) -> Vec<u8> {
    let mut input = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(8) {
        let at = random.below(input.len() + 1);
        match random.below(10) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = random.next() as u8,
            2 => {
                let end = (at + 1 + random.below(8)).min(input.len());
                input.drain(at.min(end)..end);
            }
            3 => {
                let end = (at + random.below(64)).min(input.len());
                let piece = input[at..end].to_vec();
                input.splice(at..at, piece);
            }
            4 => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            5 if at < input.len() => {
                // A number close to the original one.
                let step = 1 + random.below(16) as u8;
                input[at] =
                    if random.below(2) == 0 { input[at].wrapping_add(step) } else { input[at].wrapping_sub(step) };
            }
            6 => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len() + 1);
                let to = (from + random.below(64)).min(other.len());
                input.splice(at..at, other[from..to].iter().copied());
            }
            7 if at < input.len() => {
                let token = TOKENS[random.below(TOKENS.len())];
                let end = (at + token.len()).min(input.len());
                input.splice(at..end, token.iter().copied());
            }
            _ => {
                let token = TOKENS[random.below(TOKENS.len())];
                input.splice(at..at, token.iter().copied());
            }
        }
        input.truncate(max_len);
    }
    input
}
