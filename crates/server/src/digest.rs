//! HMAC-SHA256 under the installation's key, and hexadecimal text.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// HMAC-SHA256 under a key, separated by purpose.
pub fn keyed_digest(key: &[u8], purpose: &str, text: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(purpose.as_bytes());
    mac.update(&[0]);
    mac.update(text);
    mac.finalize().into_bytes().into()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
