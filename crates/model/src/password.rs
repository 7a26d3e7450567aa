//! Salted password hashes (PBKDF2). The server creates one with a cluster and does not store the password; it is
//! encrypted at rest, and the SSH server of a node checks logins against it. Randomness is an argument.

use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use ring::pbkdf2::{PBKDF2_HMAC_SHA256, derive, verify};
use serde::{Deserialize, Serialize};

use crate::Secret;

/// Iterations of PBKDF2-HMAC-SHA256; slows down guessing.
const PBKDF2_ROUNDS: u32 = 600_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PasswordVerifier {
    salt: String,
    rounds: NonZeroU32,
    /// Secret as well, since it allows offline guessing.
    hash: Secret,
}

impl PasswordVerifier {
    /// Hashes a password. Takes a noticeable fraction of a second, as does `accepts`: do not call either on a thread
    /// that must not block.
    pub fn new(password: &Secret, salt: [u8; 16]) -> PasswordVerifier {
        let rounds = NonZeroU32::new(PBKDF2_ROUNDS).expect("a positive constant");
        let mut hash = [0; 32];
        derive(PBKDF2_HMAC_SHA256, rounds, &salt, password.expose().as_bytes(), &mut hash);
        PasswordVerifier { salt: BASE64.encode(salt), rounds, hash: Secret::new(BASE64.encode(hash)) }
    }

    /// Checks a password in constant time.
    pub fn accepts(&self, password: &str) -> bool {
        // An empty password is never accepted, even if one was once recorded.
        if password.is_empty() {
            return false;
        }
        let (Ok(salt), Ok(hash)) = (BASE64.decode(&self.salt), BASE64.decode(self.hash.expose())) else { return false };
        verify(PBKDF2_HMAC_SHA256, self.rounds, &salt, password.as_bytes(), &hash).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_password_is_accepted_and_it_is_nowhere_to_be_seen() {
        let verifier = PasswordVerifier::new(&Secret::new("pass word 1"), [7; 16]);
        let text = serde_json::to_string(&verifier).expect("plain data");
        assert!(!text.contains("pass word 1") && !format!("{verifier:?}").contains(verifier.hash.expose()));
        let verifier: PasswordVerifier = serde_json::from_str(&text).expect("it reads back");
        assert!(verifier.accepts("pass word 1"));
        assert!(!verifier.accepts("pass word") && !verifier.accepts(""));
        assert_ne!(PasswordVerifier::new(&Secret::new("pass word 1"), [8; 16]), verifier, "the salt counts");
        assert!(!PasswordVerifier::new(&Secret::new(""), [7; 16]).accepts(""), "an empty password opens nothing");
    }
}
