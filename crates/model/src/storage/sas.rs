//! Service SAS: a signed URL for one file, share, blob or container. Made for download links of job output; verified
//! also for URLs that the SDKs made. The signature is checked before the terms, so that a forged URL reveals nothing.
//! Never reads a clock: `now` is an argument.
//!
//! The terms may come from an access policy of the share. `account` has the SAS of a whole account, `terms` the terms
//! of both kinds.

mod account;
mod terms;

use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{hmac_base64, hmac_signer, query_pairs};

pub use self::account::{AccountSas, ResourceType};
use self::terms::Terms;
pub use self::terms::{Bearer, is_time};

/// Version in Corro's own SAS, the one in the service's download links.
const MADE_VERSION: &str = "2016-05-31";
/// Versions from which a SAS of the blob service signs more fields. Versions are dates, so they compare as text.
const SIGNS_RESOURCE: &str = "2018-11-09";
const SIGNS_SCOPE: &str = "2020-12-06";

/// SAS query that allows reading one file until `expires` (Unix seconds). `path` is decoded, without a leading slash.
pub fn read_link_query(
    key: &[u8],
    account: &str,
    share: &str,
    path: &str,
    expires: i64,
) -> Result<String, ExpiryOutOfRange> {
    link_query(Resource::File, "rl", key, (account, share, path), expires, "")
}

/// SAS query for a share, a container or a file in one. A revocation of the principal in `by` ends it before `expires`;
/// an empty `by` adds nothing.
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
        // Dashes are not encoded, as in the service's own SAS.
        sas.expiry.replace(':', "%3A"),
    ))
}

#[derive(Debug, thiserror::Error)]
#[error("the expiry, {expires} seconds after 1970, is out of range")]
pub struct ExpiryOutOfRange {
    expires: i64,
}

/// Kind of resource that a SAS grants access to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Resource {
    #[default]
    File,
    Share,
    /// A file in a container.
    Blob,
    /// A container and its contents.
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

    /// Whether this is a resource of the blob service, not of the file service.
    pub fn is_of_blobs(self) -> bool {
        matches!(self, Resource::Blob | Resource::Container)
    }
}

/// A permission: one letter of `sp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    Read,
    Create,
    Write,
    Delete,
    List,
}

/// Parameters of a SAS as in the query.
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
    /// Principal and revocation mark for which the server made the SAS. A Corro extension; empty in one made by a
    /// client.
    pub by: String,
    /// Empty before signing.
    pub signature: String,
}

/// Response headers set by the SAS; empty ones are not set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overrides {
    pub cache_control: String,
    pub content_disposition: String,
    pub content_encoding: String,
    pub content_language: String,
    pub content_type: String,
}

/// Stored access policy of a share, for terms that a SAS omits. An empty field means that the SAS must have it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    pub start: String,
    pub expiry: String,
    pub permissions: String,
}

/// Reason for refusing a SAS. A request with a wrong signature learns only `Signature`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SasError {
    #[error("the parameters of the shared access signature are incomplete or malformed")]
    Malformed,
    #[error("the signature does not match this resource and these parameters")]
    Signature,
    #[error("the share has no stored access policy with this identifier, or both set the same field")]
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
    /// Parses the SAS of a query; `None` when the query has no signature.
    pub fn from_query(query: &str) -> Option<Result<Self, SasError>> {
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
            // A repeated parameter could be verified with one value and applied with the other. A line break could move
            // a value into the next line of the string to sign.
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
            _ => return Some(Err(SasError::Malformed)),
        };
        if malformed || sas.version.is_empty() {
            return Some(Err(SasError::Malformed));
        }
        Some(Ok(sas))
    }

    /// Index of the key in `keys` that signed this SAS, for this path (decoded, no leading slash). Must be called
    /// before any other check.
    pub fn check_signature<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        account: &str,
        share: &str,
        path: &str,
    ) -> Result<usize, SasError> {
        hmac_signer(keys, &self.string_to_sign(account, share, path), &self.signature).ok_or(SasError::Signature)
    }

    /// Checks that the SAS is valid at `now`. `policy` is the share's access policy with the identifier of the SAS; not
    /// needed without an identifier. Returns the SAS with all its terms; permissions are checked with [`Sas::permits`].
    pub fn check_terms(mut self, policy: Option<&Policy>, bearer: Bearer, now: i64) -> Result<Self, SasError> {
        if !self.identifier.is_empty() {
            let Policy { start, expiry, permissions } = policy.ok_or(SasError::Policy)?;
            for (own, of_policy) in
                [(&mut self.start, start), (&mut self.expiry, expiry), (&mut self.permissions, permissions)]
            {
                match (own.is_empty(), of_policy.is_empty()) {
                    (true, _) => own.clone_from(of_policy),
                    (false, true) => {}
                    // A term in both is ambiguous.
                    (false, false) => return Err(SasError::Policy),
                }
            }
        }
        self.check_own_terms(bearer, now)?;
        Ok(self)
    }

    /// Checks a SAS that has all its terms, without or after applying a policy.
    pub fn check_own_terms(&self, bearer: Bearer, now: i64) -> Result<(), SasError> {
        let Sas { start, expiry, addresses, protocols, .. } = self;
        Terms { start, expiry, addresses, protocols }.check(bearer, now)
    }

    /// Signs the parameters and returns the query, in the order of the SDKs. `path` is decoded, without a leading
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
        encode_parameters(&parameters, &SAS_VALUE_ESCAPES)
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
        // A newer SAS of the blob service also signs the resource, a snapshot and an encryption scope. The last two are
        // always empty here.
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
        // An extra line that no client signs: `by` can be neither added nor removed.
        if self.by.is_empty() { text } else { format!("{text}\nby:{}", self.by) }
    }
}

/// Characters that are percent-encoded in a SAS value; the SDKs encode the same ones.
const SAS_VALUE_ESCAPES: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// Encodes the parameters that are not empty as a query.
fn encode_parameters(parameters: &[(&str, &str)], escapes: &'static AsciiSet) -> String {
    let given = parameters.iter().filter(|(_, value)| !value.is_empty());
    given.map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, escapes))).collect::<Vec<_>>().join("&")
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
