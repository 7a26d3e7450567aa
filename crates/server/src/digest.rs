//! HMAC-SHA256, and hexadecimal text.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// HMAC-SHA256 under a key, separated by purpose.
pub fn keyed_digest(key: &[u8], purpose: &str, text: &[u8]) -> [u8; 32] {
    hmac_sha256(key, &[purpose.as_bytes(), &[0], text])
}

/// HMAC-SHA256 of parts that follow each other.
pub fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
