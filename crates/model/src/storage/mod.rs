//! Authentication of storage requests: Shared Key signatures and shared access signatures (SAS). Pure: keys, times and
//! request parts are arguments; nothing here reads a clock, a socket or a file, and no key ever appears in an error.
//!
//! Reading order: `shared_key`, then `sas`.

pub mod sas;
pub mod shared_key;

use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use percent_encoding::percent_decode;
use sha2::Sha256;

/// Query parameters in their original order, decoded once. `+` is a space, as the 1.x and 2.x SDKs encode it. Bytes
/// that are not UTF-8 become U+FFFD, which no signature matches.
pub fn query_pairs(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    query.split('&').filter(|part| !part.is_empty()).map(|part| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        (decode_query(name), decode_query(value))
    })
}

/// Decodes `%` and `+`. Most texts contain neither and are borrowed.
fn decode_query(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(text);
    }
    match text.contains('+') {
        false => percent_decode(text.as_bytes()).decode_utf8_lossy(),
        true => {
            let spaced = text.replace('+', " ");
            Cow::Owned(percent_decode(spaced.as_bytes()).decode_utf8_lossy().into_owned())
        }
    }
}

/// Query parameters as owned strings.
pub fn query_texts(query: &str) -> Vec<(String, String)> {
    query_pairs(query).map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

/// base64(HMAC-SHA256(key, text)).
pub fn hmac_base64(key: &[u8], text: &str) -> String {
    STANDARD.encode(mac_of(key, text).finalize().into_bytes())
}

/// Index of the key in `keys` that made the base64 `signature` of `text`. Constant-time: the duration reveals neither
/// how much of the signature matched nor, for the same number of keys, which key it was.
pub fn hmac_signer<K: AsRef<[u8]>>(keys: &[K], text: &str, signature: &str) -> Option<usize> {
    // An invalid base64 signature is still compared, so that it takes as long as a wrong one.
    let signature = STANDARD.decode(signature).unwrap_or_default();
    let mut signer = None;
    for (number, key) in keys.iter().enumerate() {
        if mac_of(key.as_ref(), text).verify_slice(&signature).is_ok() {
            signer = Some(number);
        }
    }
    signer
}

fn mac_of(key: &[u8], text: &str) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded_once() {
        let check = |query: &str, expected: &[(&str, &str)]| {
            let pairs = query_texts(query);
            let expected: Vec<_> = expected.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
            assert_eq!(pairs, expected, "{query}");
        };
        check("", &[]);
        check("comp=list&include=", &[("comp", "list"), ("include", "")]);
        check("prefix=a+b%2Bc%2525", &[("prefix", "a b+c%25")]);
        check("flag&&sig=a%3D%3D", &[("flag", ""), ("sig", "a==")]);
        check("x=a=b", &[("x", "a=b")]);
    }

    #[test]
    fn any_of_several_keys_matches_and_no_other() {
        // RFC 4231, test case 2.
        let text = "what do ya want for nothing?";
        let signature = "W9zBRr9gdU5qBCQmCJV1x1oAPwidJzmDnexYuWTsOEM=";
        assert_eq!(hmac_base64(b"Jefe", text), signature);
        assert_eq!(hmac_signer(&[b"other".as_slice(), b"Jefe"], text, signature), Some(1));
        assert_eq!(hmac_signer(&[b"other".as_slice()], text, signature), None);
        assert_eq!(hmac_signer::<&[u8]>(&[], text, signature), None);
        assert_eq!(hmac_signer(&[b"Jefe"], text, "not base64!"), None);
        assert_eq!(hmac_signer(&[b"Jefe"], text, ""), None);
        assert_eq!(hmac_signer(&[b"Jefe"], text, &signature[..40]), None);
    }
}
