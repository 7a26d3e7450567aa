//! Syntax check of SSH public keys: a key type, and base64 that begins with the same type. Possession of the private
//! key is not checked.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

const KINDS: [&str; 7] = [
    "ssh-rsa",
    "ssh-ed25519",
    "ssh-dss",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
];

/// Whether `text` is `TYPE BASE64 [COMMENT]`, and the base64 has that type and at least one number, each prefixed with
/// its length.
pub fn is_one(text: &str) -> bool {
    let Some((kind, body)) = halves(text) else { return false };
    let Ok(bytes) = STANDARD.decode(body) else { return false };
    let mut rest = &bytes[..];
    let mut n_fields = 0;
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let Some((field, after)) = after.split_at_checked(u32::from_be_bytes(*length) as usize) else { return false };
        if n_fields == 0 && field != kind.as_bytes() {
            return false;
        }
        n_fields += 1;
        rest = after;
    }
    rest.is_empty() && n_fields >= 2
}

/// Whether `text` begins like a public key, as in examples with a shortened key.
pub fn looks_like_one(text: &str) -> bool {
    halves(text).is_some_and(|(_, body)| body.starts_with("AAAA"))
}

fn halves(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    if text.contains(['\n', '\r', '\0']) {
        return None;
    }
    let (kind, rest) = text.split_once(' ')?;
    KINDS.contains(&kind).then(|| (kind, rest.trim_start().split(' ').next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_from_other_texts() {
        let ed25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPKSUTyz1HwHReFVvD5obVsALAgJRNarH4TRpNePnAS";
        for good in [ed25519.to_owned(), format!("{ed25519} me@host\n"), format!("  {ed25519}  a comment")] {
            assert!(is_one(&good) && looks_like_one(&good), "{good}");
        }
        let other_kind = ed25519.replace("ssh-ed25519", "ssh-rsa");
        let cut = &ed25519[..ed25519.len() - 4];
        for bad in ["", "garbage", "ssh-rsa", "ssh-rsa AAAA", &other_kind, cut, &format!("{ed25519}\n{ed25519}")] {
            assert!(!is_one(bad), "{bad}");
        }
        assert!(looks_like_one("ssh-rsa AAAAB3NzaC1yc...") && !looks_like_one("garbage AAAA"));
    }
}
