//! Shared access signatures of the file service: a link that carries its own permission. Made
//! for download links of job output; checked by the file service, also for links that the SDKs
//! made. The signature is judged before anything else is said about a link, so that a forger
//! learns nothing. Never reads a clock: `now` is an argument.
//!
//! Here are links to one file or share, whose terms may lie in a policy that the share keeps; `account`
//! has those of a whole account, `terms` what both have in common.

mod account;
mod terms;

use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{hmac_base64, hmac_signer, query_pairs};

pub use self::account::{AccountSas, ResourceType};
use self::terms::Terms;
pub use self::terms::{Bearer, is_time};

/// The version the service wrote into its own download links.
const MADE_VERSION: &str = "2016-05-31";
/// Versions since which links of the blob service sign more. Versions are dates: their text sorts as they do.
const SIGNS_RESOURCE: &str = "2018-11-09";
const SIGNS_SCOPE: &str = "2020-12-06";

/// Query of a link that lets its holder read one file until `expires` (unix seconds). `path` is
/// decoded, without a leading slash.
pub fn read_link_query(
    key: &[u8],
    account: &str,
    share: &str,
    path: &str,
    expires: i64,
) -> Result<String, ExpiryOutOfRange> {
    link_query(Resource::File, "rl", key, (account, share, path), expires, "")
}

/// A link to a share, a container or a file in one, which ends with what stands behind `by` as well; nothing when it is empty.
pub fn link_query(
    resource: Resource,
    permissions: &str,
    key: &[u8],
    (account, share, path): (&str, &str, &str),
    expires: i64,
    by: &str,
) -> Result<String, ExpiryOutOfRange> {
    let expires = Timestamp::from_second(expires).map_err(|_| ExpiryOutOfRange { expires })?;
    let sas = Sas {
        version: MADE_VERSION.to_owned(),
        resource,
        permissions: permissions.to_owned(),
        expiry: expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        by: by.to_owned(),
        ..Sas::default()
    };
    let signature = hmac_base64(key, &sas.string_to_sign(account, share, path));
    let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
    let by = if by.is_empty() { String::new() } else { format!("&by={}", encode(by)) };
    Ok(format!(
        "sv={MADE_VERSION}&sr={}&sig={}&se={}&sp={permissions}{by}",
        resource.letter(),
        encode(&signature),
        // Dashes stay as the service wrote them.
        sas.expiry.replace(':', "%3A"),
    ))
}

#[derive(Debug, thiserror::Error)]
#[error("the link's expiry, {expires} seconds after 1970, is no time of the calendar")]
pub struct ExpiryOutOfRange {
    expires: i64,
}

/// What a link gives access to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Resource {
    #[default]
    File,
    Share,
    /// A file in a container.
    Blob,
    /// A container and what is in it.
    Container,
}

impl Resource {
    fn letter(self) -> &'static str {
        match self {
            Resource::File => "f",
            Resource::Share => "s",
            Resource::Blob => "b",
            Resource::Container => "c",
        }
    }

    /// Of the blob service, not of the file service.
    pub fn is_of_blobs(self) -> bool {
        matches!(self, Resource::Blob | Resource::Container)
    }
}

/// One letter of `sp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    Read,
    Create,
    Write,
    Delete,
    List,
}

/// A link's parameters as they stood in the query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sas {
    pub version: String,
    pub resource: Resource,
    pub permissions: String,
    pub start: String,
    pub expiry: String,
    pub identifier: String,
    pub addresses: String,
    pub protocols: String,
    pub overrides: Overrides,
    /// Ours: for whom the server made the link, and until which revocation. Empty in links that clients made.
    pub by: String,
    /// Empty in one that is yet to be signed.
    pub signature: String,
}

/// Response headers that the link's maker chose; empty ones are not set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overrides {
    pub cache_control: String,
    pub content_disposition: String,
    pub content_encoding: String,
    pub content_language: String,
    pub content_type: String,
}

/// What a share keeps under a name, for links that leave it out. Empty means that the link says it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    pub start: String,
    pub expiry: String,
    pub permissions: String,
}

/// Why a link does not open the door. Only `Signature` is ever said to someone whose signature
/// is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the parameters of the shared access signature are incomplete or malformed")]
    Malformed,
    #[error("the signature does not match this resource and these parameters")]
    Signature,
    #[error("the share keeps no policy of this name, or the link repeats what the policy says")]
    Policy,
    #[error("the shared access signature is not valid yet")]
    NotYet,
    #[error("the shared access signature has expired")]
    Expired,
    #[error("the shared access signature is limited to other addresses")]
    Address,
    #[error("the shared access signature is limited to https")]
    Protocol,
}

impl Sas {
    /// None when the query carries no signature at all.
    pub fn from_query(query: &str) -> Option<Result<Self, Refused>> {
        let mut sas = Sas::default();
        let mut resource = String::new();
        let mut malformed = false;
        for (name, value) in query_pairs(query) {
            let slot = match &*name {
                "sv" => &mut sas.version,
                "sr" => &mut resource,
                "sp" => &mut sas.permissions,
                "st" => &mut sas.start,
                "se" => &mut sas.expiry,
                "si" => &mut sas.identifier,
                "sip" => &mut sas.addresses,
                "spr" => &mut sas.protocols,
                "sig" => &mut sas.signature,
                "by" => &mut sas.by,
                "rscc" => &mut sas.overrides.cache_control,
                "rscd" => &mut sas.overrides.content_disposition,
                "rsce" => &mut sas.overrides.content_encoding,
                "rscl" => &mut sas.overrides.content_language,
                "rsct" => &mut sas.overrides.content_type,
                _ => continue,
            };
            // A repeated parameter could be signed in one reading and obeyed in another; a line
            // break could move a value into its neighbour's line of the string to sign.
            malformed |= !slot.is_empty() || value.chars().any(char::is_control);
            *slot = value.into_owned();
        }
        if sas.signature.is_empty() {
            return None;
        }
        sas.resource = match resource.as_str() {
            "f" => Resource::File,
            "s" => Resource::Share,
            "b" => Resource::Blob,
            "c" => Resource::Container,
            _ => return Some(Err(Refused::Malformed)),
        };
        if malformed || sas.version.is_empty() {
            return Some(Err(Refused::Malformed));
        }
        Some(Ok(sas))
    }

    /// Which one of `keys` this link was made with, for this path (decoded, no leading slash). Nothing else may be said
    /// about one that was not.
    pub fn check_signature<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        account: &str,
        share: &str,
        path: &str,
    ) -> Result<usize, Refused> {
        hmac_signer(keys, &self.string_to_sign(account, share, path), &self.signature).ok_or(Refused::Signature)
    }

    /// Whether the link is good at `now`. `policy` is what the share keeps under the link's identifier; a link without
    /// one needs none. Gives the link with all its terms; what it permits is asked with [`Sas::permits`].
    pub fn check_terms(mut self, policy: Option<&Policy>, bearer: Bearer, now: i64) -> Result<Self, Refused> {
        if !self.identifier.is_empty() {
            let Policy { start, expiry, permissions } = policy.ok_or(Refused::Policy)?;
            for (own, kept) in
                [(&mut self.start, start), (&mut self.expiry, expiry), (&mut self.permissions, permissions)]
            {
                match (own.is_empty(), kept.is_empty()) {
                    (true, _) => own.clone_from(kept),
                    (false, true) => {}
                    // Which of the two should count cannot be known.
                    (false, false) => return Err(Refused::Policy),
                }
            }
        }
        self.check_own_terms(bearer, now)?;
        Ok(self)
    }

    /// The same for a link that has all its terms: by itself, or since they were found.
    pub fn check_own_terms(&self, bearer: Bearer, now: i64) -> Result<(), Refused> {
        let Sas { start, expiry, addresses, protocols, .. } = self;
        Terms { start, expiry, addresses, protocols }.check(bearer, now)
    }

    /// The query of a link with these parameters, in the order the SDKs write it. `path` is decoded, without a leading
    /// slash, and empty for a whole share.
    pub fn signed_query(&self, key: &[u8], account: &str, share: &str, path: &str) -> String {
        let resource = self.resource.letter();
        let signature = hmac_base64(key, &self.string_to_sign(account, share, path));
        let parameters = [
            ("st", self.start.as_str()),
            ("se", &self.expiry),
            ("sp", &self.permissions),
            ("sip", &self.addresses),
            ("spr", &self.protocols),
            ("sv", &self.version),
            ("sr", resource),
            ("si", &self.identifier),
            ("rscc", &self.overrides.cache_control),
            ("rscd", &self.overrides.content_disposition),
            ("rsce", &self.overrides.content_encoding),
            ("rscl", &self.overrides.content_language),
            ("rsct", &self.overrides.content_type),
            ("by", &self.by),
            ("sig", &signature),
        ];
        encode_parameters(&parameters, &KEPT)
    }

    pub fn permits(&self, permission: Permission) -> bool {
        self.permissions.contains(letter_of(permission))
    }

    fn string_to_sign(&self, account: &str, share: &str, path: &str) -> String {
        let resource = match self.resource {
            Resource::File => format!("/file/{account}/{share}/{path}"),
            Resource::Share => format!("/file/{account}/{share}"),
            Resource::Blob => format!("/blob/{account}/{share}/{path}"),
            Resource::Container => format!("/blob/{account}/{share}"),
        };
        let mut lines = vec![
            self.permissions.as_str(),
            &self.start,
            &self.expiry,
            &resource,
            &self.identifier,
            &self.addresses,
            &self.protocols,
            &self.version,
        ];
        // Newer links of the blob service also say what they are of, a snapshot and an encryption scope; of those there are
        // none here.
        if self.resource.is_of_blobs() && self.version.as_str() >= SIGNS_RESOURCE {
            lines.extend([self.resource.letter(), ""]);
            lines.extend((self.version.as_str() >= SIGNS_SCOPE).then_some(""));
        }
        lines.extend([
            self.overrides.cache_control.as_str(),
            &self.overrides.content_disposition,
            &self.overrides.content_encoding,
            &self.overrides.content_language,
            &self.overrides.content_type,
        ]);
        let text = lines.join("\n");
        // A line of its own, which no link of a client has: it can be neither added nor left out.
        if self.by.is_empty() { text } else { format!("{text}\nby:{}", self.by) }
    }
}

/// What the SDKs leave as it is in a link, besides letters and digits.
const KEPT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// Those that are not empty, as a query.
fn encode_parameters(parameters: &[(&str, &str)], kept: &'static AsciiSet) -> String {
    let given = parameters.iter().filter(|(_, value)| !value.is_empty());
    given.map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, kept))).collect::<Vec<_>>().join("&")
}

fn letter_of(permission: Permission) -> char {
    match permission {
        Permission::Read => 'r',
        Permission::Create => 'c',
        Permission::Write => 'w',
        Permission::Delete => 'd',
        Permission::List => 'l',
    }
}

#[cfg(test)]
mod tests;
